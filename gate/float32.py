"""Running both arms' decoders in float32 too, beside a run in 16 bits.

The same requests in the same batches, or a declared share of each request class. Resumed at batch
grain like the rest. What cannot be run in float32 is a note, and the verdict INCONCLUSIVE.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from gate.collect import Collected, step_rows
from gate.conformance import TASK as CONFORMANCE
from gate.errors import GateError, RunError
from gate.measures.float32 import Float32
from gate.measures.paired import Arm, Paired, make_arm
from gate.plan import ARMS, Plan
from gate.progress import Progress
from gate.records import NoiseBound, Request
from gate.store import BatchResult, RunStore, StoredPlan

FOLDER = "float32"
CALIBRATION_REQUESTS = 4
Batches = tuple[tuple[Request, ...], ...]


def add_float32(
    plan: Plan, store: RunStore, session: Any, collected: Collected, progress: Progress
) -> Collected:
    """Return what was collected, with both arms in float32 where the run is not."""
    if not plan.runs_in_float32:
        return collected
    collector = _Collector(plan, store, session, progress)
    return dataclasses.replace(collected, float32=collector.collect())


class _Collector:
    """One pass in float32. The model is loaded when the first batch is missing."""

    def __init__(self, plan: Plan, store: RunStore, session: Any, progress: Progress) -> None:
        self._plan = plan
        self._store = store
        self._served = session
        self._progress = progress
        self._session: Any = None

    def collect(self) -> Float32:
        """Return both arms, or why there are none. Raises RunError where weights were changed."""
        try:
            batches = self._plan_batches()
            bound = self._measure_bound(batches)
            arms: dict[str, Any] = {name: self._collect_arm(name, batches) for name in ARMS}
        except (GateError, RuntimeError, MemoryError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            return Float32(note=f"the decoders could not be run in float32: {reason}")
        if self._session is not None and not self._session.is_unchanged:
            msg = "a decoder changed the model's weights in float32; nothing after it can be used"
            raise RunError(msg)
        requests = {(r.id, r.repeat): r for batch in batches for r in batch}
        return Float32(paired=Paired(requests=requests, bound=bound, **arms))

    def _open(self) -> Any:
        if self._session is None:
            with self._progress.stage("load the model in float32"):
                self._session = self._served.in_float32()
        return self._session

    def _plan_batches(self) -> Batches:
        """Return the batches, fixed once: smaller than the run's where memory asks for it."""
        known = self._store.read(f"{FOLDER}/plan.json", StoredPlan)
        if known:
            return known.batches
        stored = self._store.read("plan.json", StoredPlan)
        if stored is None:
            msg = "plan.json is missing in the run's folder; run again"
            raise RunError(msg)
        run = self._plan.project.config.run
        batches = choose_share(stored.batches, run.float32_share)
        size = self._open().fit_batch(
            [r for batch in batches for r in batch],
            max(step_rows(spec) for spec in self._plan.specs.values()),
            max(len(batch) for batch in batches),
            run.memory_gib,
        )
        split = tuple(b[at : at + size] for b in batches for at in range(0, len(b), size))
        fixed = msgspec.structs.replace(stored, batches=split, timing=())
        self._store.write(f"{FOLDER}/plan.json", fixed)
        return split

    def _measure_bound(self, batches: Batches) -> NoiseBound:
        known = self._store.read(f"{FOLDER}/noise.json", NoiseBound)
        if known:
            return known
        requests = [r for batch in batches for r in batch if r.task != CONFORMANCE]
        chosen = requests[:: max(1, len(requests) // CALIBRATION_REQUESTS)][:CALIBRATION_REQUESTS]
        rows = step_rows(self._plan.specs["candidate"])
        bound: NoiseBound = self._open().measure_noise(chosen, rows)
        self._store.write(f"{FOLDER}/noise.json", bound)
        return bound

    def _collect_arm(self, name: str, batches: Batches) -> Arm:
        decoder: Any = None
        results: list[BatchResult] = []
        total = sum(len(batch) for batch in batches)
        with self._progress.bar(f"{name}: logic in float32", total) as advance:
            for n, batch in enumerate(batches):
                label = f"batch-{n:04d}"
                result = self._store.read_batch(f"{FOLDER}/{name}", label)
                if result is None:
                    decoder = decoder or self._open().open_arm(self._plan.specs[name])
                    result = self._session.run_batch(decoder, batch, tap=False)
                    self._store.write_batch(f"{FOLDER}/{name}", label, result)
                results.append(result)
                advance(len(batch))
        return make_arm(self._plan.specs[name], results)


def choose_share(batches: Sequence[Sequence[Request]], share: float) -> Batches:
    """Return batches of this share of every request class, spread evenly; conformance is whole."""
    by_class: dict[str, list[str]] = {}
    for request in (r for batch in batches for r in batch):
        ids = by_class.setdefault(request.request_class, [])
        if request.id not in ids[-1:]:
            ids.append(request.id)
    kept = {
        one
        for name, ids in by_class.items()
        for one in (ids if name == CONFORMANCE else _spread(list(dict.fromkeys(ids)), share))
    }
    chosen = (tuple(r for r in batch if r.id in kept) for batch in batches)
    return tuple(batch for batch in chosen if batch)


def _spread(ids: Sequence[str], share: float) -> list[str]:
    n = math.ceil(share * len(ids))
    return [ids[i * len(ids) // n] for i in range(n)]

"""A few requests sent again to both arms: in other company, and at another width."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from gate.collect import Collected
from gate.conformance import TASK as CONFORMANCE
from gate.errors import RunError
from gate.measures.paired import Arm, make_arm
from gate.measures.repeats import Repeats
from gate.plan import ARMS, Plan
from gate.progress import Progress
from gate.records import Request
from gate.store import BatchResult, RunStore, StoredPlan

FOLDER = "repeats"
NARROWER = 3
"""The other width is this part of the run's."""


def add_repeats(
    plan: Plan, store: RunStore, session: Any, collected: Collected, progress: Progress
) -> Collected:
    """Return what was collected, with ``run.repeat_requests`` of it decoded twice more."""
    chosen = choose_requests(plan, collected.requests)
    widths = choose_widths(store)
    sender = _Sender(plan, store, session)
    passes: dict[str, list[Arm]] = {}
    with progress.bar("send again", len(ARMS) * len(widths) * len(chosen)) as advance:
        for name in ARMS if chosen else ():
            passes[name] = [sender.send(name, chosen, size, advance) for size in widths]
    if not session.is_unchanged:
        msg = "a decoder changed the model's weights when requests came again"
        raise RunError(msg)
    keys = tuple((r.id, r.repeat) for r in chosen)
    return dataclasses.replace(collected, repeats=Repeats(keys=keys, widths=widths, passes=passes))


def choose_widths(store: RunStore) -> tuple[int, int]:
    """Return the run's width and another one."""
    stored = store.read("plan.json", StoredPlan)
    width = max((len(batch) for batch in stored.batches), default=1) if stored else 1
    return width, max(1, width // NARROWER)


class _Sender:
    """Sends requests to an arm; what was stored before is read back."""

    def __init__(self, plan: Plan, store: RunStore, session: Any) -> None:
        self._plan = plan
        self._store = store
        self._session = session
        self._decoders: dict[str, Any] = {}
        self._is_begun = False

    def send(
        self, name: str, requests: Sequence[Request], size: int, advance: Callable[[int], None]
    ) -> Arm:
        """Return an arm's outputs, ``size`` requests at a time; a server begins a new life."""
        self._is_begun = False
        results = []
        for at in range(0, len(requests), size):
            batch = requests[at : at + size]
            results.append(self._read_or_run(name, f"width-{size}-{at:04d}", batch))
            advance(len(batch))
        return make_arm(self._plan.specs[name], results)

    def _read_or_run(self, name: str, label: str, batch: Sequence[Request]) -> BatchResult:
        known = self._store.read_batch(f"{FOLDER}/{name}", label)
        if known is None:
            if name not in self._decoders:
                self._decoders[name] = self._session.open_arm(self._plan.specs[name], name)
            if not self._is_begun:
                self._session.begin_life(self._decoders[name])
                self._is_begun = True
            known = self._session.run_batch(self._decoders[name], batch, tap=False)
            self._store.write_batch(f"{FOLDER}/{name}", label, known)
        return known


def choose_requests(plan: Plan, requests: Sequence[Request]) -> list[Request]:
    """Return requests whose output must come again, spread over the run."""
    if any(spec.kind == "replay" for spec in plan.specs.values()):
        return []  # nothing decodes, and a stored output would only repeat itself
    is_keyed = all(spec.noise == "position_keyed" for spec in plan.specs.values())
    usable = [
        r
        for r in requests
        if r.task != CONFORMANCE and r.repeat == 0 and (is_keyed or not r.sampling.temperature)
    ]
    n = min(plan.project.config.run.repeat_requests, len(usable))
    return [usable[i * len(usable) // n] for i in range(n)]

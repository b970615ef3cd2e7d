"""The gate's own path from outputs to decision, with the baseline decoded once per world.

A world is a model and an evalset. Plan, collect, pair, measure and judge are the gate's; only
the folder of a run is kept in memory.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gate.collect import Collected, collect, pair
from gate.config import Config, Project
from gate.decision import describe_arms, judge, open_decision
from gate.decoders.lookahead import LookaheadDecoder
from gate.decoders.options import LookaheadOptions
from gate.decoders.session import Session
from gate.faults import make
from gate.faults.drafts import RecordedDrafts, record_drafts
from gate.float32 import FOLDER as FLOAT32
from gate.float32 import add_float32
from gate.measures.paired import Paired
from gate.pipeline import measure, score_arms
from gate.plan import Plan, make_plan
from gate.progress import Progress
from gate.records import Decision, Generation, Request
from gate.repeats import FOLDER as REPEATS
from gate.repeats import add_repeats
from gate.store import BatchResult, RunStore, StoredPlan
from gate.surface import describe_surface

QUIET = Progress(is_quiet=True)
SHARED = ("baseline/", "noise.json", "plan.json")
BASELINE_PARTS = (*SHARED, f"{REPEATS}/baseline/", *(f"{FLOAT32}/{name}" for name in SHARED))
"""What every run against the same baseline shares."""


class MemoryStore(RunStore):
    """A run's folder that never reaches the disk."""

    def __init__(self, known: Mapping[str, Any], folder: Path = Path("benchmark")) -> None:
        """``known``: what is there from the start. ``folder``: for what others write beside it."""
        super().__init__(folder)
        self.entries = dict(known)

    def write(self, name: str, value: object) -> None:
        """Keep a value."""
        self.entries[name] = value

    def read(self, name: str, kind: Any) -> Any:  # noqa: ARG002 - values keep their type
        """Return a kept value; None where there is none."""
        return self.entries.get(name)

    def write_batch(self, arm: str, name: str, result: BatchResult) -> None:
        """Keep a batch."""
        self.entries[f"{arm}/{name}"] = result

    def read_batch(self, arm: str, name: str) -> BatchResult | None:
        """Return a kept batch; None where there is none."""
        found: BatchResult | None = self.entries.get(f"{arm}/{name}")
        return found


@dataclass(kw_only=True)
class World:
    """A model, an evalset, and what the baseline gave on it (filled by the first run)."""

    folder: Path
    config: Config
    session: Session | None = None
    known: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Everything both arms gave, ready to be judged as often as one likes."""

    plan: Plan
    session: Session
    store: MemoryStore
    stored: StoredPlan
    collected: Collected
    paired: Paired


def collect_outputs(
    world: World,
    candidate: dict[str, object],
    *,
    baseline: dict[str, object] | None = None,
    **changes: Any,
) -> Outputs:
    """Run a candidate in a world; the world's baseline is decoded the first time only.

    baseline: another one than the world's, decoded for this run. changes: to the configuration.
    """
    arms = {"candidate": candidate} | ({"baseline": baseline} if baseline else {})
    config = msgspec.structs.replace(world.config, **arms, **changes)
    plan = make_plan(_make_project(world.folder, config), QUIET)
    session = world.session = world.session or Session(plan.resolved, config.model, world.folder)
    store = MemoryStore({} if baseline else world.known)
    stored = store.entries.get("plan.json") or _open_plan(plan)
    collected = collect(plan, store, stored, session, QUIET)
    collected = add_repeats(plan, store, session, collected, QUIET)
    collected = add_float32(plan, store, session, collected, QUIET)
    if not baseline:
        world.known = {k: v for k, v in store.entries.items() if k.startswith(BASELINE_PARTS)}
    return Outputs(
        plan=plan,
        session=session,
        store=store,
        stored=store.entries["plan.json"],
        collected=collected,
        paired=pair(collected),
    )


def _make_project(folder: Path, config: Config) -> Project:
    return Project(config=config, path=folder / "gate.toml", folder=folder, root=folder)


def _open_plan(plan: Plan) -> StoredPlan:
    created = dt.datetime.now(dt.UTC).isoformat()
    return StoredPlan(fingerprint=plan.fingerprint, created_at=created, batches=())


def judge_outputs(outputs: Outputs) -> Decision:
    """Measure and judge, as a run does."""
    plan, collected = outputs.plan, outputs.collected
    opening = msgspec.structs.replace(
        open_decision(plan, outputs.store, outputs.stored, describe_surface(plan)),
        provenance=describe_arms(plan, outputs.session, collected),
    )
    comparisons = measure(plan, outputs.paired, collected, score_arms(plan, outputs.paired))
    return judge(plan, opening, comparisons, collected)


def fault_table(fault: str, **options: object) -> dict[str, object]:
    """Return the table of an arm out of the fault catalogue."""
    return {"kind": "python", "target": "gate.faults:make", "fault": fault, **options}


def narrow_table(fault: str, width: int, **options: object) -> dict[str, object]:
    """Return the table of an arm that decodes at most ``width`` requests at a time."""
    table = fault_table(fault, width=width, **options)
    return table | {"target": "benchmarks.arms:make_narrow"}


def make_narrow(model: Any, fault: str, width: int, **options: Any) -> Any:
    """Make a decoder of the catalogue and hold it to a width of its own."""
    decoder = make(model, fault, **options)
    decoder.max_batch = width
    return decoder


class SelfDrafting(LookaheadDecoder):
    """Verifies the baseline's own outputs, with likely wrong tokens between them."""

    noise = "position_keyed"

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Record drafts for these requests first, unless they come from outside."""
        is_own = self.drafts is None
        if is_own:
            self.drafts = RecordedDrafts(record_drafts(self._model, [requests]))
        try:
            yield from super().generate(requests)
        finally:
            self.drafts = None if is_own else self.drafts


def make_self_drafting(model: Any) -> SelfDrafting:
    """Make the self-drafting control."""
    return SelfDrafting(model, LookaheadOptions())

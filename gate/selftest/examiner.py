"""One fault or control after the other, each through the measures of a run."""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gate.collect import Collected, pair
from gate.conformance import TASK as CONFORMANCE
from gate.decoders.base import load_object
from gate.float32 import FOLDER as FLOAT32
from gate.measures.acceptance_drop import count_work
from gate.measures.float32 import Float32
from gate.measures.paired import Arm
from gate.progress import Advance, Progress
from gate.records import AcceptanceReference, DecoderSpec, Outcome
from gate.selftest.bench import MAKE, SAMPLED, Batches, Bench, open_bench
from gate.selftest.judging import judge_collected, raised_measures, worst_outcome
from gate.selftest.rows import ControlRow, FaultRow, SelfTest
from gate.selftest.sending import QUICK_TOKENS, Options, choose_requests
from gate.selftest.sliding import open_sliding_bench
from gate.store import RunStore

REFERENCE = "self-draft"
"""The control whose acceptance stands for that of the approved candidate."""
NEEDS_MANY = ("error_rate",)
"""Measures that the few requests of a short control cannot decide."""
SIGNALS = {"not-exercised": Outcome.INCONCLUSIVE, "baseline": Outcome.ERROR}
"""What detects a fault of a kind, where it is not a FAIL."""


class Examiner:
    """Tests faults and controls one after the other; what was tested before is read back."""

    def __init__(self, bench: Bench, options: Options) -> None:
        """``bench``: with the baseline side done."""
        self._bench = bench
        self._options = options
        self._sliding: Bench | None = None
        self._float32: Bench | None = None
        self._faults = load_object("gate.faults:CATALOGUE")
        self._controls = load_object("gate.faults:CONTROLS")
        self._reference: AcceptanceReference | None = None

    def has_row(self, name: str) -> bool:
        """Whether a fault or a control was tested before."""
        return self._read_row(name) is not None

    def watch(self, names: Sequence[str], advance: Advance) -> Callable[[], None]:
        """Return a function that advances a bar by the rows that have come in."""
        waited = list(names)

        def look() -> None:
            found = [name for name in waited if self.has_row(name)]
            advance(len(found))
            waited[:] = [name for name in waited if name not in found]

        return look

    def _read_row(self, name: str) -> FaultRow | ControlRow | None:
        kind: type[Any] = ControlRow if name in self._controls else FaultRow
        row: FaultRow | ControlRow | None = self._bench.store.read(row_file(name), kind)
        return row

    def test(self, name: str) -> FaultRow | ControlRow:
        """Return the row of a fault or a control."""
        row = self._read_row(name)
        if row is None:
            began = time.perf_counter()
            made = self._test_control(name) if name in self._controls else self._test_fault(name)
            row = msgspec.structs.replace(made, seconds=round(time.perf_counter() - began, 2))
            self._bench.store.write(row_file(name), row)
        return row

    def report(self, names: Sequence[str], now: dt.datetime) -> SelfTest:
        """Return all rows."""
        plan, rows = self._bench.plan, [self.test(name) for name in names]
        return SelfTest(
            faults=tuple(row for row in rows if isinstance(row, FaultRow)),
            controls=tuple(row for row in rows if isinstance(row, ControlRow)),
            model=plan.resolved.name,
            dtype=plan.project.config.model.dtype,
            evalset_sha256=plan.evalset.sha256,
            date=now.date().isoformat(),
            quick=self._options.quick,
        )

    # -------------------------------------------------------------- faults

    def _test_fault(self, name: str) -> FaultRow:
        fault = self._faults[name]
        bench = self._open_sliding() if fault.needs == "sliding" else self._bench
        chosen = choose_requests(bench, fault, self._options)
        collected = self._add_float32(self._collect(bench, fault, chosen), fault)
        reference = self._read_reference() if fault.kind == "performance" else None
        verdicts = judge_collected(bench.plan, collected, "lossless", reference, has_quality=False)
        raised = raised_measures(verdicts, SIGNALS.get(fault.kind, Outcome.FAIL))
        by = tuple(measure for measure in raised if measure in fault.expected)
        return FaultRow(
            id=name,
            kind=fault.kind,
            strength=fault.strength,
            model=bench.plan.resolved.name,
            dtype=bench.plan.project.config.model.dtype,
            detected=bool(by),
            unseen=fault.unseen,
            by=by,
            others=tuple(measure for measure in raised if measure not in by),
            outcome=worst_outcome(verdicts),
            **count_tokens(collected),
        )

    def _collect(self, bench: Bench, fault: Any, chosen: Mapping[str, Batches]) -> Collected:
        spec = spec_of(fault.id)
        baseline = bench.baseline_arm(chosen)
        arm, decoder = bench.run(spec, chosen, tap=fault.kind == "cache")
        if fault.arm == "baseline":
            return bench.collected(chosen, arm, baseline)
        band = None
        if fault.kind == "greedy-verification":
            outputs = greedy_outputs(chosen, baseline)
            band = bench.session.probe_band(decoder, outputs, bench.bound, 8)
        return bench.collected(chosen, baseline, arm, band=band)

    def _add_float32(self, collected: Collected, fault: Any) -> Collected:
        """Run a fault in float32 too, where a run of the gate would."""
        bench = self._open_float32()
        if bench is None or fault.needs == "sliding":
            return collected
        paired = pair(self._collect(bench, fault, choose_requests(bench, fault, self._options)))
        return dataclasses.replace(collected, float32=Float32(paired=paired))

    def _open_float32(self) -> Bench | None:
        if self._float32 is None and self._bench.plan.project.config.judges_in_float32:
            store = RunStore(self._bench.store.folder / FLOAT32)
            session = self._bench.session.in_float32()
            self._float32 = open_bench(self._bench.plan, session, store, Progress(is_quiet=True))
        return self._float32

    def _open_sliding(self) -> Bench:
        if self._sliding is None:
            self._sliding = open_sliding_bench(self._bench)
        return self._sliding

    def _read_reference(self) -> AcceptanceReference:
        if self._reference is None:
            bench = self._bench
            chosen = bench.choose(("tasks",), None)
            arm, _ = bench.run(spec_of(REFERENCE), chosen)
            collected = bench.collected(chosen, bench.baseline_arm(chosen), arm)
            self._reference = AcceptanceReference(
                evalset_sha256=bench.plan.evalset.sha256,
                model=bench.plan.resolved.name,
                dtype=bench.plan.project.config.model.dtype,
                work=count_work(pair(collected)),
            )
        return self._reference

    # ------------------------------------------------------------ controls

    def _test_control(self, name: str) -> ControlRow:
        control = self._controls[name]
        if control.needs == "sliding":
            return self._judge_control(control, self._open_sliding(), ("tasks",))
        groups = (CONFORMANCE, "tasks", *([SAMPLED] if control.needs == SAMPLED else []))
        return self._judge_control(control, self._bench, groups)

    def _judge_control(self, control: Any, bench: Bench, groups: Sequence[str]) -> ControlRow:
        is_short = self._options.quick and not control.needs
        chosen = bench.choose(groups, QUICK_TOKENS if is_short else None)
        baseline = bench.baseline_arm(chosen)
        tap = not is_short or control.claim == "lossless"
        arm, _ = bench.run(spec_of(control.id), chosen, tap=tap, size=control.batch)
        collected = bench.collected(chosen, baseline, arm)
        exact = self._open_float32()
        if exact and control.needs != "sliding":
            again = exact.choose(groups, None)
            arm, _ = exact.run(spec_of(control.id), again, size=control.batch)
            paired = pair(exact.collected(again, exact.baseline_arm(again), arm))
            collected = dataclasses.replace(collected, float32=Float32(paired=paired))
        verdicts = judge_collected(
            bench.plan,
            collected,
            control.claim,
            has_quality=not is_short and not control.needs,
            without=NEEDS_MANY if is_short else (),
        )
        outcome = worst_outcome(verdicts)
        reasons = [
            f"{v.criterion}: {v.outcome}: {v.reason}"
            for v in verdicts
            if v.blocking and v.outcome not in (Outcome.PASS, Outcome.NOT_JUDGED)
        ]
        return ControlRow(
            id=control.id,
            model=bench.plan.resolved.name,
            dtype=bench.plan.project.config.model.dtype,
            false_fails=int(outcome is Outcome.FAIL),
            false_inconclusives=int(outcome is Outcome.INCONCLUSIVE),
            false_errors=int(outcome is Outcome.ERROR),
            reasons=tuple(reasons),
            n_tokens=count_tokens(collected)["n_tokens"],
        )


def row_file(name: str) -> str:
    """Return where the store keeps a row."""
    return f"results/{name}.json"


def spec_of(name: str) -> DecoderSpec:
    """Return the specification of a catalogue entry, as gate.toml would give it."""
    return DecoderSpec(kind="python", target=MAKE, options={"fault": name}, noise="own")


def greedy_outputs(chosen: Mapping[str, Batches], baseline: Arm) -> list[tuple[Any, Any]]:
    """Return requests with the baseline's scores."""
    requests = {(r.id, r.repeat): r for group in chosen.values() for b in group for r in b}
    return [(requests[key], scores) for key, scores in baseline.scores.items()]


def count_tokens(collected: Collected) -> dict[str, int]:
    """Return how much a test saw of the candidate."""
    generations = collected.arms["candidate"].generations.values()
    return {
        "n_tokens": sum(len(g.token_ids or ()) for g in generations),
        "n_requests": len(generations),
    }

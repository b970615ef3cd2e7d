"""``gate selftest``: the fault catalogue and the lossless controls through the pipeline.

Resumable: one result file per fault and control. Which criterion caught what, at which
strength, and how often a control was flagged: the gate's own error rates.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gate.collect import Collected, pair
from gate.config import Project
from gate.conformance import TASK as CONFORMANCE
from gate.decoders.base import load_object
from gate.errors import UsageError
from gate.float32 import FOLDER as FLOAT32
from gate.measures.acceptance_drop import count_work
from gate.measures.float32 import Float32
from gate.measures.paired import Arm
from gate.plan import SESSION, make_plan
from gate.progress import Advance, Progress
from gate.records import (
    AcceptanceReference,
    DecoderSpec,
    Outcome,
    Record,
    Request,
    processes_logits,
)
from gate.selftest.bench import MAKE, SAMPLED, Batches, Bench, Keep, open_bench
from gate.selftest.jobs import run_shares, share_arguments
from gate.selftest.judging import judge_collected, raised_measures, worst_outcome
from gate.selftest.rows import ControlRow, FaultRow, SelfTest, describe, write_json
from gate.selftest.sliding import open_sliding_bench
from gate.store import RunStore

__all__ = ["Options", "SelfTest", "describe", "describe_catalogue", "run_selftest", "write_json"]
REFERENCE = "self-draft"
"""The control whose acceptance stands for that of the approved candidate."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "greedy-verification": ("tasks",),
    "sampling": (CONFORMANCE,),
    "stopping": (CONFORMANCE,),
    "processors": (CONFORMANCE,),
    "cache": (CONFORMANCE, "tasks"),
    "not-exercised": ("tasks",),
    "performance": ("tasks",),
    "baseline": ("tasks",),
}
"""The requests of a kind. A full run adds the others of the first two groups."""
QUICK_CONFORMANCE: Mapping[str, Keep] = {
    "sampling": lambda r: r.sampling.temperature > 0.0,
    "processors": lambda r: processes_logits(r) or r.n_logprobs is not None,
    "stopping": lambda r: ends_early(r) or r.sampling.temperature == 0.0,
    "cache": lambda r: not processes_logits(r),
}
"""The conformance requests that a quick run sends to a fault of a kind; a full run sends all."""
QUICK_TOKENS = 300
"""Task tokens, at least, of a control in a quick run; of a fault each says its own."""
NEEDS_MANY = ("error_rate",)
"""Measures that the few requests of a short control cannot decide."""
SIGNALS = {"not-exercised": Outcome.INCONCLUSIVE, "baseline": Outcome.ERROR}
"""What detects a fault of a kind, where it is not a FAIL."""
Now = Callable[[], dt.datetime]


class Options(Record, frozen=True, kw_only=True):
    """quick: each on the requests of its kind. only: these ids; empty: all. jobs: processes."""

    quick: bool = False
    only: tuple[str, ...] = ()
    jobs: int = 1


def run_selftest(
    project: Project, out: Path, progress: Progress, now: Now, options: Options
) -> SelfTest:
    """Run what has no result yet. Raises UsageError for ids that are not in the catalogue."""
    catalogue, controls = load_object("gate.faults:CATALOGUE"), load_object("gate.faults:CONTROLS")
    unknown = sorted({*options.only} - {*catalogue} - {*controls})
    if unknown:
        msg = f"--only names {', '.join(unknown)}, which the catalogue does not hold"
        raise UsageError(msg)
    plan = make_plan(project, progress)
    mark = plan.fingerprint.removeprefix("sha256:")[:12]
    store = RunStore(out / f"selftest-{'quick' if options.quick else 'full'}-{mark}")
    session = load_object(f"{SESSION}:Session")(plan.resolved, project.config.model, project.folder)
    examiner = Examiner(open_bench(plan, session, store, progress), options)
    wanted = [i for i in (*controls, *catalogue) if not options.only or i in options.only]
    with progress.bar("self-test", len(wanted)) as advance:
        missing = [name for name in wanted if not examiner.has_row(name)]
        advance(len(wanted) - len(missing))
        if options.jobs > 1 and len(missing) > 1:
            session.model.model.forget()  # the shares remember for themselves
            arguments = share_arguments(project.path, out, quick=options.quick)
            run_shares(arguments, missing, options.jobs, examiner.watch(missing, advance))
        else:
            for name in missing:
                examiner.test(name)
                advance(1)
    return examiner.report(wanted, now())


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
        chosen = self._choose(bench, fault)
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

    def _choose(self, bench: Bench, fault: Any) -> dict[str, Batches]:
        if fault.needs == "sliding":
            return bench.choose(("tasks",), None)
        keep = QUICK_CONFORMANCE.get(fault.kind) if self._options.quick else None
        if fault.needs == SAMPLED:
            limit = fault.n_tokens if self._options.quick else None
            return bench.choose((CONFORMANCE, SAMPLED), limit, keep)
        if not self._options.quick:
            return bench.choose((CONFORMANCE, "tasks"), None)
        names_class = isinstance(fault.strength, str) or fault.kind == "performance"
        return bench.choose(GROUPS[fault.kind], None if names_class else fault.n_tokens, keep)

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
        paired = pair(self._collect(bench, fault, self._choose(bench, fault)))
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


def describe_catalogue() -> list[str]:
    """Return every fault and control with its sentence."""
    entries = {**load_object("gate.faults:CATALOGUE"), **load_object("gate.faults:CONTROLS")}
    return [f"{name:24} {entry.what}" for name, entry in entries.items()]


def spec_of(name: str) -> DecoderSpec:
    """Return the specification of a catalogue entry, as gate.toml would give it."""
    return DecoderSpec(kind="python", target=MAKE, options={"fault": name}, noise="own")


def ends_early(request: Request) -> bool:
    """Whether the request asks for an end, or for what happens at ends."""
    return bool(request.stop or request.min_tokens or request.stream or len(request.eos_ids) > 1)


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

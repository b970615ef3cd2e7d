"""Our gate and four common practices on the same faulty and lossless outputs.

    python -m benchmarks.detection --json FILE [--model toy] [--only ID ...]

``--model toy``: tiny random models, float32, one of them in bfloat16 for the controls whose
forks are ties. ``--model embedded:...``: the evalset of gate.toml on that model (long).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks.catalogue import Case, open_catalogue_bench, run_catalogue, wants_sampled
from benchmarks.practices import PRACTICES, gather_evidence
from benchmarks.tiny import Part, Shape, write_evalset, write_model
from gate.collect import pair
from gate.config import Config, ModelConfig, Project, RunConfig, load_project
from gate.conformance import TASK as CONFORMANCE
from gate.faults import CATALOGUE, CONTROLS
from gate.records import Criterion, Outcome, Record, Verdict
from gate.selftest.examiner import SIGNALS
from gate.selftest.judging import judge_collected, raised_measures, worst_outcome

GATE = "gate"
CONTROL = "control"
TOY = "toy"
NOT_PASSED = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE)
TOY_PARTS = (
    Part(name="greedy", n_documents=32, max_tokens=48),
    Part(name="more", n_documents=32, max_tokens=48),
)
TOY_SHAPE = Shape()
ROUNDED_SHAPE = Shape(hidden=64, layers=3, seed=1)
ROUNDED_CONTROLS = ("baseline", "width", "lookahead", "lookahead-wide", "random-pool", "tie-last")
TASK_MARGIN = Criterion(
    name="task accuracy",
    measure="task_delta",
    rule="non_inferior",
    margin=0.10,
    rationale="a tenth of the answers, as in gate.toml: the evalset is small",
)


class CaseRow(Record, frozen=True, kw_only=True):
    """One arm. flagged: who flagged it. by: the gate's measures that did.

    n_forks: outputs whose text differs from the baseline's.
    """

    id: str
    kind: str
    dtype: str
    outcome: str
    by: tuple[str, ...]
    flagged: tuple[str, ...]
    n_forks: int
    n_outputs: int
    seconds: float


def judge_case(case: Case) -> CaseRow:
    """Let the gate and every practice judge one arm's outputs."""
    began, plan = time.perf_counter(), case.bench.plan
    verdicts = judge_with_gate(case)
    by = list_raised(verdicts, case.kind)
    evidence = gather_evidence(pair(case.collected), plan.evalset)
    flagged = [name for name, flags in PRACTICES.items() if flags(evidence)]
    return CaseRow(
        id=case.id,
        kind=case.kind or CONTROL,
        dtype=plan.project.config.model.dtype,
        outcome=worst_outcome(verdicts).value,
        by=tuple(by),
        flagged=(*([GATE] if by else []), *flagged),
        n_forks=sum(before != after for before, after in evidence.pairs),
        n_outputs=len(evidence.pairs),
        seconds=round(case.seconds + time.perf_counter() - began, 2),
    )


def judge_with_gate(case: Case) -> list[Verdict]:
    """Return the gate's verdicts; on a model that the conformance set is not run on, without it."""
    verdicts = judge_collected(
        case.bench.plan, case.collected, case.claim, case.reference, has_quality=True
    )
    if any(request.task == CONFORMANCE for request in case.collected.requests):
        return verdicts
    return [v for v in verdicts if v.comparison and not v.comparison.measure.endswith(CONFORMANCE)]


def list_raised(verdicts: Sequence[Verdict], kind: str) -> list[str]:
    """Return the measures that flag an arm. A control is flagged by whatever does not pass."""
    if kind:
        return raised_measures(verdicts, SIGNALS.get(kind, Outcome.FAIL))
    return [measure for o in NOT_PASSED for measure in raised_measures(verdicts, o)]


def tabulate(rows: Sequence[CaseRow]) -> list[dict[str, object]]:
    """Return a row per practice: what it detected, and which lossless arms it flagged."""
    faults = [row for row in rows if row.kind != CONTROL]
    controls = [row for row in rows if row.kind == CONTROL]
    table: list[dict[str, object]] = []
    for practice in (GATE, *PRACTICES):
        missed = [row.id for row in faults if practice not in row.flagged]
        alarms = [f"{row.id}, {row.dtype}" for row in controls if practice in row.flagged]
        table.append(
            {
                "practice": practice,
                "detected": len(faults) - len(missed),
                "faults": len(faults),
                "false_alarms": len(alarms),
                "controls": len(controls),
                "missed": missed,
                "flagged_controls": alarms,
            }
        )
    return table


def make_toy_project(folder: Path, shape: Shape, dtype: str) -> Project:
    """Write a tiny model and evalset; returns the project on them."""
    write_model(folder / "model", shape)
    write_evalset(folder / "evalset", TOY_PARTS)
    config = Config(
        schema=1,
        evalset="evalset",
        model=ModelConfig(id="model", dtype=dtype),
        baseline={"kind": "autoregressive"},
        candidate={"kind": "lookahead"},
        run=RunConfig(timing_per_class=1),
        criteria=(TASK_MARGIN,),
    )
    return Project(config=config, path=folder / "gate.toml", folder=folder, root=folder)


def list_worlds(model: str, folder: Path) -> Iterator[tuple[Project, tuple[str, ...]]]:
    """Yield projects and the arms to run in each; none named: the whole catalogue."""
    if model != TOY:
        project = load_project(Path("gate.toml"))
        changed = msgspec.structs.replace(project.config.model, id=model)
        yield replace(project, config=msgspec.structs.replace(project.config, model=changed)), ()
        return
    yield make_toy_project(folder / "float32", TOY_SHAPE, "float32"), ()
    yield make_toy_project(folder / "bfloat16", ROUNDED_SHAPE, "bfloat16"), ROUNDED_CONTROLS


def run_all(model: str, only: Sequence[str], folder: Path) -> Iterator[CaseRow]:
    """Yield a row per arm."""
    for project, names in list_worlds(model, folder):
        wanted = [n for n in names or (*CONTROLS, *CATALOGUE) if not only or n in only]
        if wanted:
            has_sampled = any(wants_sampled(name) for name in wanted)
            store = folder / project.config.model.dtype / "store"
            bench = open_catalogue_bench(project, store, has_sampled=has_sampled)
            yield from (judge_case(case) for case in run_catalogue(bench, wanted))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--model", default=TOY)
    parser.add_argument("--only", nargs="*", default=[], metavar="ID")
    arguments = parser.parse_args(argv)
    began, rows = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as name:
        for row in run_all(arguments.model, arguments.only, Path(name)):
            rows.append(row)
            print(
                f"{row.id:24} {row.kind:20} {row.outcome:13} {', '.join(row.flagged)}", flush=True
            )
    table = tabulate(rows)
    for line in table:
        print("  ".join(f"{key}={value}" for key, value in line.items()))
    if arguments.json:
        written = {
            "model": arguments.model,
            "seconds": round(time.perf_counter() - began),
            "cpu_seconds": round(time.process_time()),
            "rows": table,
            "arms": msgspec.to_builtins(rows),
        }
        arguments.json.write_text(json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

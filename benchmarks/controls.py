"""How often lossless decoders do not pass: hundreds of control runs on tiny random models.

    python -m benchmarks.controls --json FILE --runs 200 [--seed 0]
    python -m benchmarks.controls --json FILE --model embedded:smollm2-135m-instruct
    python -m benchmarks.controls --json FILE --join FILE ...

Each run draws a model, a dtype, an evalset and a control, decodes both arms, and is judged on the
path of a real run with the default criteria (task accuracy within a tenth, as in gate.toml).
With ``--model``: kinds of controls, once each, on that model and the evalset of gate.toml; the
baseline is decoded once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.arms import (
    Outputs,
    World,
    collect_outputs,
    fault_table,
    judge_outputs,
    narrow_table,
)
from benchmarks.control_rows import NOT_PASSED, RunRow, describe, read_rows, summarise
from benchmarks.detection import TASK_MARGIN
from benchmarks.tiny import Part, Shape, write_evalset, write_model
from gate.config import Config, ModelConfig, RunConfig, load_project
from gate.decoders.session import Session
from gate.measures.paired import Paired
from gate.records import Claim, Decision, Record

SHAPES = (
    Shape(),
    Shape(seed=1, sharpness=0.4),
    Shape(seed=2, hidden=48, heads=4, kv_heads=1, layers=1),
    Shape(seed=3, hidden=64, layers=3),
    Shape(seed=4, hidden=64, heads=8, kv_heads=8, sharpness=0.9),
    Shape(seed=5, family="qwen2", hidden=64),
    Shape(seed=6, family="qwen2", hidden=32, layers=3, sharpness=0.4),
    Shape(seed=7, hidden=128, heads=4, kv_heads=4),
    Shape(seed=8, hidden=96, layers=4),
)
NOISY_SHAPES = (3, 4, 5, 7, 8)
"""Large enough for bfloat16 to round differently at another width."""
BATCHES = (16, 32, 48)
KINDS = (
    "baseline",
    "width",
    "lookahead",
    "lookahead, prompt n-grams",
    "self-draft",
    "empty pool",
    "random pool",
    "adversarial pool",
    "tie-last",
)
IDLE = ("baseline", "width", "empty pool", "random pool", "adversarial pool")
"""Controls that accept nothing by design."""
ROUNDED_SHARE = 0.35
SPECULATIVE = "speculative sampling"
SPECULATIVE_EVERY = 20
"""One run in so many draws with noise of its own, on thousands of sampled tokens."""
CONFORMANCE_EVERY = 3
SKIPPED = "benchmark: every third run and all in bfloat16 send it"


TRAINED: dict[str, dict[str, object]] = {
    "lookahead": {"kind": "lookahead"},
    "lookahead, prompt n-grams": {"kind": "lookahead", "prompt_ngrams": True},
    "width": narrow_table("baseline", 3, noise="position_keyed"),
    "tie-last": fault_table("tie-last", noise="position_keyed"),
    "baseline": fault_table("baseline", noise="position_keyed"),
    "random pool": fault_table("random-pool", noise="position_keyed"),
}
"""Runs on a trained model."""


class Drawn(Record, frozen=True, kw_only=True):
    """What one run is. seed: of its evalset and its sampling."""

    n: int
    kind: str
    shape: int
    dtype: str
    claim: Claim
    table: dict[str, object]
    parts: tuple[Part, ...]
    seed: int
    batch: int
    has_conformance: bool


def draw_run(n: int, seed: int) -> Drawn:
    """Return the n-th run of a seed."""
    rng = np.random.default_rng([seed, n])
    kind = SPECULATIVE if n % SPECULATIVE_EVERY == 0 else KINDS[n % len(KINDS)]
    dtype = "bfloat16" if rng.random() < ROUNDED_SHARE else "float32"
    shapes = NOISY_SHAPES if dtype == "bfloat16" else range(len(SHAPES))
    return Drawn(
        n=n,
        kind=kind,
        shape=int(rng.choice(shapes)),
        dtype=dtype,
        claim="control" if kind in IDLE else "lossless",
        table=draw_table(kind, rng),
        parts=draw_parts(kind, rng),
        seed=int(rng.integers(2**31)),
        batch=int(rng.choice(BATCHES)),
        has_conformance=dtype != "float32" or n % CONFORMANCE_EVERY == 0,
    )


def draw_table(kind: str, rng: np.random.Generator) -> dict[str, object]:
    """Return a control's table."""
    if kind == "width":
        return narrow_table("baseline", int(rng.choice([1, 2, 3, 5])), noise="position_keyed")
    if kind.startswith("lookahead"):
        window, ngram, guesses = (int(i) for i in rng.integers([2, 2, 2], [9, 6, 9]))
        shape = {"window": window, "ngram": ngram, "guesses": guesses}
        return {"kind": "lookahead", "prompt_ngrams": "prompt" in kind, **shape}
    if kind == "self-draft":
        return {"kind": "python", "target": "benchmarks.arms:make_self_drafting"}
    name = kind.replace(" ", "-")
    return fault_table(name, **({} if kind == SPECULATIVE else {"noise": "position_keyed"}))


def draw_parts(kind: str, rng: np.random.Generator) -> tuple[Part, ...]:
    """Return two greedy tasks and a sampled one, large where it alone carries the evidence."""
    n_tokens = [int(i) for i in rng.integers(20, 33, 2)]
    repeats, length = (60, 30) if kind == SPECULATIVE else (3, 16)
    return (
        Part(name="greedy", n_documents=36, max_tokens=n_tokens[0]),
        Part(name="more", n_documents=36, max_tokens=n_tokens[1]),
        Part(name="drawn", n_documents=4, max_tokens=length, repeats=repeats, is_sampled=True),
    )


def run_all(runs: Iterable[int], seed: int, folder: Path) -> Iterator[RunRow]:
    """Yield a row per run."""
    sessions: dict[tuple[int, str], Session] = {}
    for k, shape in enumerate(SHAPES):
        write_model(folder / f"model-{k}", shape)
    for n in runs:
        yield run_one(draw_run(n, seed), folder, sessions)


def run_one(drawn: Drawn, folder: Path, sessions: dict[tuple[int, str], Session]) -> RunRow:
    """Decode both arms of one run and judge them."""
    began = time.perf_counter()
    write_evalset(folder / f"evalset-{drawn.n}", drawn.parts, drawn.seed)
    key = (drawn.shape, drawn.dtype)
    world = World(folder=folder, config=make_config(drawn), session=sessions.get(key))
    outputs = collect_outputs(world, drawn.table)
    sessions[key] = outputs.session
    decision = judge_outputs(outputs)
    return describe_run(outputs, decision, began, n=drawn.n, kind=drawn.kind, shape=drawn.shape)


def run_trained(model: str) -> Iterator[RunRow]:
    """Yield a row per kind of control on a trained model, with the project's own gate.toml."""
    project = load_project(Path("gate.toml"))
    chosen = msgspec.structs.replace(project.config.model, id=model)
    config = msgspec.structs.replace(project.config, model=chosen)
    world = World(folder=project.folder, config=config)
    for n, (kind, table) in enumerate(TRAINED.items()):
        began = time.perf_counter()
        claim: Claim = "control" if kind in IDLE else "lossless"
        outputs = collect_outputs(world, table, claim=claim)
        decision = judge_outputs(outputs)
        yield describe_run(outputs, decision, began, n=n, kind=kind, shape=-1)


def describe_run(
    outputs: Outputs, decision: Decision, began: float, *, n: int, kind: str, shape: int
) -> RunRow:
    """Return a judged run as a row. began: on the clock of time.perf_counter."""
    return RunRow(
        n=n,
        kind=kind,
        shape=shape,
        dtype=outputs.plan.project.config.model.dtype,
        outcome=decision.outcome.value,
        n_forks=count_forks(outputs.paired),
        n_ties=count_ties(outputs.paired),
        bound_nat=outputs.paired.bound.bound,
        reasons=list_reasons(decision),
        seconds=round(time.perf_counter() - began, 2),
    )


def make_config(drawn: Drawn) -> Config:
    """Return a run's configuration."""
    return Config(
        schema=1,
        evalset=f"evalset-{drawn.n}",
        model=ModelConfig(id=f"model-{drawn.shape}", dtype=drawn.dtype),
        baseline={"kind": "autoregressive"},
        candidate=drawn.table,
        claim=drawn.claim,
        seed=drawn.seed,
        run=RunConfig(
            batch=drawn.batch,
            timing_per_class=1,
            skip_conformance="" if drawn.has_conformance else SKIPPED,
        ),
        criteria=(TASK_MARGIN,),
    )


def count_forks(paired: Paired) -> int:
    """Count the outputs whose tokens differ between the arms."""
    return sum(
        paired.baseline.generations[k].token_ids != paired.candidate.generations[k].token_ids
        for k in paired.keys
    )


def count_ties(paired: Paired) -> int:
    """Count the candidate's greedy decisions that are not the referee's own choice."""
    return sum(
        regret > 0.0
        for key, scores in paired.candidate.scores.items()
        if not paired.requests[key].sampling.temperature
        for regret in scores.regret
    )


def list_reasons(decision: Decision) -> tuple[str, ...]:
    """Return why a run did not pass."""
    reasons = [
        f"{v.criterion} ({v.group}): {v.outcome.value}: {v.reason}"
        for v in decision.verdicts
        if v.blocking and v.outcome in NOT_PASSED
    ]
    return tuple(reasons) or ((decision.reason,) if decision.outcome in NOT_PASSED else ())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 where a lossless control failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.controls", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="", help="only the runs of this one")
    parser.add_argument("--model", help="a trained model, instead of tiny random ones")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="earlier results, as one")
    arguments = parser.parse_args(argv)
    rows = []
    for row in read_rows(arguments.join) if arguments.join else run_chosen(arguments):
        rows.append(row)
        print(describe(row), flush=True)
        if arguments.json:
            write_results(arguments.json, rows, arguments.seed)
    summary = summarise(rows)
    for group, shares in summary["groups"].items():
        print(group, *(f"{key}={value}" for key, value in shares.items()))
    return int(summary["groups"]["all"]["false_fail"] > 0)


def write_results(path: Path, rows: Sequence[RunRow], seed: int) -> None:
    """Write what is known so far: a benchmark that is stopped loses one run."""
    seconds = round(sum(row.seconds for row in rows))
    written = {"seed": seed, "seconds": seconds, **summarise(rows)}
    written["list"] = msgspec.to_builtins(rows)
    path.write_text(json.dumps(written, indent=1) + "\n")


def run_chosen(arguments: argparse.Namespace) -> Iterator[RunRow]:
    """Yield the rows that the command line asks for."""
    if arguments.model:
        yield from run_trained(arguments.model)
        return
    last = arguments.first + arguments.runs
    numbers = [
        n
        for n in range(arguments.first, last)
        if arguments.dtype in ("", draw_run(n, arguments.seed).dtype)
    ]
    with tempfile.TemporaryDirectory() as name:
        yield from run_all(numbers, arguments.seed, Path(name))


if __name__ == "__main__":
    sys.exit(main())

"""At which length a rare fault becomes visible: once in 500 and once in 2,000 tokens.

    python -m benchmarks.rare --json FILE [--documents 600]

A tiny random model decodes many requests with the faults of the catalogue; the referee scores
them. Runs of n tokens are then drawn from these requests, and detection is a DEFECT in one: the
certificate fails on the first. expected: 1 - (1 - 1/k)^n for a fault once in k tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arms import QUIET
from benchmarks.detection import TOY_SHAPE
from benchmarks.tiny import Part, write_evalset, write_model
from gate.config import Config, ModelConfig, Project, RunConfig
from gate.decoders.session import Session
from gate.measures.tokens import classify
from gate.plan import make_plan
from gate.selftest.examiner import spec_of

FAULTS = {"rare-500": 500, "rare-2000": 2000}
LENGTHS = (0.5, 1.0, 3.0)
"""Tokens of a run, in k."""
BATCH = 64
BOUND = 1e-3  # nat: the noise bound of float32
N_RUNS = 4000
SEED = 0


def count_defects(session: Any, requests: Sequence[Any], fault: str) -> np.ndarray:
    """Return (n_requests, 2): tokens and defects of each output."""
    decoder = session.open_arm(spec_of(fault))
    rows = []
    for at in range(0, len(requests), BATCH):
        batch = [session.tokenise(request) for request in requests[at : at + BATCH]]
        for scores in session.run_batch(decoder, batch, tap=False).scores:
            kinds = [classify(regret, BOUND) for regret in scores.regret]
            rows.append((len(kinds), kinds.count("defect")))
    return np.array(rows)


def measure_detection(counts: np.ndarray, n_tokens: int, rng: np.random.Generator) -> float:
    """Return the share of runs of ``n_tokens`` tokens, drawn by request, that hold a defect."""
    n_drawn = int(np.ceil(n_tokens / counts[:, 0].min()))
    hits = 0
    for _ in range(N_RUNS):
        drawn = counts[rng.integers(len(counts), size=n_drawn)]
        n_kept = int(np.searchsorted(drawn[:, 0].cumsum(), n_tokens)) + 1
        hits += bool(drawn[:n_kept, 1].any())
    return hits / N_RUNS


def list_rows(session: Any, requests: Sequence[Any]) -> Iterator[dict[str, object]]:
    """Yield a row per fault and length."""
    rng = np.random.default_rng(SEED)
    for fault, k in FAULTS.items():
        counts = count_defects(session, requests, fault)
        n_tokens, n_defects = (int(n) for n in counts.sum(axis=0))
        for times in LENGTHS:
            n = int(times * k)
            yield {
                "fault": fault,
                "n_tokens": n,
                "detected": round(measure_detection(counts, n, rng), 4),
                "expected": round(1 - (1 - 1 / k) ** n, 4),
                "decoded": n_tokens,
                "defects": n_defects,
            }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rare", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--documents", type=int, default=600)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model", TOY_SHAPE)
        part = Part(name="greedy", n_documents=arguments.documents, max_tokens=48)
        write_evalset(folder / "evalset", (part,))
        config = Config(
            schema=1,
            evalset="evalset",
            model=ModelConfig(id="model"),
            baseline={"kind": "autoregressive"},
            candidate={"kind": "lookahead"},
            run=RunConfig(timing_per_class=1),
        )
        project = Project(config=config, path=folder / "gate.toml", folder=folder, root=folder)
        plan = make_plan(project, QUIET)
        rows = list(list_rows(Session(plan.resolved, config.model, folder), plan.requests))
    for row in rows:
        print("  ".join(f"{key}={value}" for key, value in row.items()))
    if arguments.json:
        written = {"documents": arguments.documents, "seed": SEED, "rows": rows}
        arguments.json.write_text(json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

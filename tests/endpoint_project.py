"""A whole project around servers: gate.toml with two endpoint arms, and a small evalset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gate.cli import main
from tests.toy_project import write_evalset

GATE_TOML = """\
schema = 1
evalset = "evalset"
claim = "{claim}"

[run]
timing_per_class = {timing}
resamples = 20000
{run}

[baseline]
kind = "endpoint"
{baseline}

[candidate]
kind = "endpoint"
{candidate}

[[criteria]]
name = "task accuracy"
measure = "task_delta"
rule = "non_inferior"
margin = 0.10
rationale = "toy"
"""
SKIP = 'skip_conformance = "not the subject of this test"'
QUICK = "retries = 1\nbackoff_s = 0.01"


def write_project(folder: Path, n_documents: int = 8, max_tokens: int = 8) -> Path:
    """Write an evalset; returns the folder."""
    (folder / "pyproject.toml").write_text("")
    write_evalset(folder / "evalset", n_documents, max_tokens)
    return folder


def run(
    folder: Path,
    baseline: str,
    candidate: str,
    *,
    claim: str = "lossless",
    run: str = SKIP,
    timing: int = 1,
) -> tuple[int, dict[str, Any]]:
    """Run the gate; returns exit code and decision. The arms: lines of their tables."""
    config = folder / "gate.toml"
    config.write_text(
        GATE_TOML.format(
            baseline=baseline, candidate=candidate, claim=claim, run=run, timing=timing
        )
    )
    code = main(["run", "--config", str(config), "--quiet"])
    return code, json.loads((folder / "reports/latest/decision.json").read_text())


def verdict(decision: dict[str, Any], criterion: str) -> dict[str, Any]:
    """Return the verdict of a criterion on its first group."""
    return next(v for v in decision["verdicts"] if v["criterion"] == criterion)

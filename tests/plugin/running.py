"""Inner pytest runs on a decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from gate.records import Decision
from gate.store import encode_record, seal


def write_decision(folder: Path, decision: Decision) -> Path:
    """Write decision.json with its digest; returns its path."""
    path = folder / "decision.json"
    path.write_bytes(encode_record(seal(decision)))
    return path


def run_on(pytester: pytest.Pytester, decision: Decision, *arguments: str) -> pytest.RunResult:
    """Run pytest with --gate-decision."""
    path = write_decision(pytester.path, decision)
    return pytester.runpytest("--gate-decision", str(path), *arguments)

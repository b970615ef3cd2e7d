"""Inner pytest runs on a decision."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gate.records import Decision


def write_decision(folder: Path, decision: Decision) -> Path:
    """Write decision.json; returns its path."""
    path = folder / "decision.json"
    path.write_bytes(msgspec.json.encode(decision))
    return path


def run_on(pytester: pytest.Pytester, decision: Decision, *arguments: str) -> pytest.RunResult:
    """Run pytest with --gate-decision."""
    path = write_decision(pytester.path, decision)
    return pytester.runpytest("--gate-decision", str(path), *arguments)

"""Logic in float32 beside a run in bfloat16: what rounding would hide is caught there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gate.cli import main
from gate.float32 import choose_share
from gate.records import Request
from tests import toy_project
from tests.toy_project import LOOKAHEAD, faulty, write_gate

CRITERION = "token certificate, float32 logic"
FAULT = 'kind = "python"\ntarget = "gate.faults:make"\nfault = "{}"\nnoise = "position_keyed"'


@pytest.fixture(scope="module")
def project(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A toy project; its faulty decoders are forgotten afterwards."""
    yield toy_project.write_project(tmp_path_factory.mktemp("float32"), toy)
    toy_project.forget_modules()


def write_rounded(folder: Path, **options: Any) -> Path:
    """Write gate.toml of a run in bfloat16."""
    config = write_gate(folder, **options)
    config.write_text(config.read_text().replace("[model]\n", '[model]\ndtype = "bfloat16"\n', 1))
    return config


def run(folder: Path, **options: Any) -> tuple[int, dict[str, Any]]:
    """Run the gate in bfloat16; returns exit code and decision."""
    code = main(["run", "--config", str(write_rounded(folder, **options)), "--quiet"])
    return code, json.loads((folder / "reports/latest/decision.json").read_text())


def find(decision: dict[str, Any], criterion: str) -> dict[str, Any]:
    """Return the verdict of a criterion."""
    return next(v for v in decision["verdicts"] if v["criterion"] == criterion)


def test_a_run_in_bfloat16_is_judged_in_float32_too_with_its_narrow_band(project: Path) -> None:
    code, decision = run(project, candidate=LOOKAHEAD)
    found = find(decision, CRITERION)
    assert (code, found["outcome"], found["blocking"]) == (0, "PASS", True)
    assert found["comparison"]["detail"]["bound_nat"] == 0.001
    served = find(decision, "token certificate")["comparison"]["detail"]
    assert served["bound_nat"] > 0.001
    assert any("in float32 too" in note for note in decision["notes"])
    assert "same requests in float32" in (project / "reports/latest/report.html").read_text()


def test_relaxed_acceptance_inside_the_band_of_bfloat16_fails_in_float32(project: Path) -> None:
    relaxed = FAULT.format("relaxed-top-k") + "\nstrength = 0.9"
    code, decision = run(project, candidate=relaxed)
    assert (code, find(decision, CRITERION)["outcome"]) == (3, "FAIL")


def test_shifted_logprobs_fail_the_conformance_set_in_float32(project: Path) -> None:
    code, decision = run(project, candidate=FAULT.format("logprob-shift"), skip_conformance="")
    assert (code, find(decision, "conformance, float32 logic")["outcome"]) == (3, "FAIL")


@pytest.mark.parametrize("fault", ["refuses-float32", "fails-in-float32"])
def test_a_decoder_that_cannot_run_in_float32_is_inconclusive(project: Path, fault: str) -> None:
    code, decision = run(project, candidate=faulty(fault))
    found = find(decision, CRITERION)
    assert (code, found["outcome"]) == (4, "INCONCLUSIVE")
    assert "bfloat16 only" in found["reason"]
    assert find(decision, "baseline certificate, float32 logic")["outcome"] != "ERROR"


def test_leaving_it_out_takes_a_reason_that_is_shown(project: Path) -> None:
    code, decision = run(project, run='skip_float32 = "no room"')
    assert code == 0
    assert CRITERION not in {v["criterion"] for v in decision["verdicts"]}
    assert any("no room" in note for note in decision["notes"])


@pytest.mark.parametrize(
    "key", ["float32_share = 0.0", "float32_share = 1.5", 'skip_float32 = " "']
)
def test_a_share_or_a_reason_that_is_none_is_refused(project: Path, key: str) -> None:
    assert main(["run", "--config", str(write_rounded(project, run=key)), "--quiet"]) == 2


def test_a_share_is_of_every_class_and_the_conformance_set_is_whole() -> None:
    def make(name: str, request_class: str) -> Request:
        return Request(id=name, task="t", request_class=request_class, prompt="p", max_tokens=1)

    batch = [make(f"{c}{n}", c) for n in range(10) for c in ("a", "b")]
    conformance = [make(f"c{n}", "conformance") for n in range(3)]
    kept = [r.id for one in choose_share([batch, conformance], 0.25) for r in one]
    assert kept == ["a0", "b0", "a3", "b3", "a6", "b6", "c0", "c1", "c2"]


def test_a_killed_run_reads_its_float32_batches_back(project: Path) -> None:
    run(project, candidate=LOOKAHEAD, run="memory_gib = 1.0")
    folder = (project / "reports/latest").resolve()
    kept = folder / "float32/baseline/batch-0000.json"
    before = kept.stat().st_mtime_ns
    (folder / "float32/candidate/batch-0001.json").unlink()
    (folder / "finished").unlink()
    code, decision = run(project, candidate=LOOKAHEAD, run="memory_gib = 1.0")
    assert (code, decision["run_id"]) == (0, folder.name)
    assert kept.stat().st_mtime_ns == before

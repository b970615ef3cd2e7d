"""Each benchmark in a size that takes seconds: what it writes is what its readers expect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import calibration, controls, detection, gpu
from benchmarks.example import hide_paths
from benchmarks.fresh_prompts import FRESH
from benchmarks.practices import (
    PRACTICES,
    Evidence,
    flags_accuracy,
    flags_any_changed_text,
    flags_many_changed_texts,
    flags_mmd,
)
from benchmarks.prompts import PROMPTS


def read(path: Path) -> dict[str, Any]:
    """What a benchmark wrote."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_gate_detects_relaxed_acceptance_and_lets_an_empty_pool_pass(tmp_path: Path) -> None:
    file = tmp_path / "detection.json"
    assert detection.main(["--only", "empty-pool", "relaxed-top-k", "--json", str(file)]) == 0
    rows = {row["practice"]: row for row in read(file)["rows"]}
    assert list(rows) == ["gate", *PRACTICES]
    keys = ("detected", "faults", "false_alarms", "controls")
    assert [rows["gate"][key] for key in keys] == [1, 1, 0, 1]


def test_a_control_run_passes_and_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "controls.json"
    assert controls.main(["--runs", "1", "--first", "9", "--json", str(file)]) == 0
    found = read(file)
    assert found["groups"]["all"] | {"runs": 1, "false_fail": 0} == found["groups"]["all"]
    assert [row["outcome"] for row in found["list"]] == ["PASS"]


def test_no_two_control_runs_are_alike() -> None:
    drawn = [controls.draw_run(n, 0) for n in range(40)]
    assert len({(run.kind, run.shape, run.seed) for run in drawn}) == 40
    assert controls.draw_run(7, 0) == controls.draw_run(7, 0)


def test_calibration_writes_coverage_power_and_the_run_level_rate(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    calibration.main(["--simulations", "5", "--json", str(file)])
    found = read(file)
    assert {row["interval"] for row in found["coverage"]} >= {"paired flips", "clustered mean"}
    assert {row["criterion"] for row in found["power"]} >= {"token certificate", "flip rate"}
    assert {row["alpha"] for row in found["run_level"]} == {0.05, 0.001}


def make_evidence(pairs: list[tuple[str, str]], scores: tuple[float, float]) -> Evidence:
    """Prompts of one task, sent once each."""
    texts = {str(n): [pair] for n, pair in enumerate(pairs)}
    return Evidence(texts=texts, groups=dict.fromkeys(texts, "task"), accuracy=scores)


def test_the_practices_hold_their_thresholds() -> None:
    two_of_three = make_evidence([("a", "a"), ("b", "b"), ("c", "d")], (0.5, 0.46))
    one_of_three = make_evidence([("a", "a"), ("b", "c"), ("c", "d")], (0.5, 0.45))
    assert not flags_many_changed_texts(two_of_three)
    assert flags_many_changed_texts(one_of_three)
    assert flags_any_changed_text(two_of_three)
    assert not flags_accuracy(two_of_three)
    assert flags_accuracy(one_of_three)


def test_mmd_flags_other_texts_and_not_the_same_ones() -> None:
    same = make_evidence([(f"{n}" * 8, f"{n}" * 8) for n in range(8)], (0.0, 0.0))
    other = make_evidence([("a" * 8, "b" * 8) for _ in range(8)], (0.0, 0.0))
    assert not flags_mmd(same)
    assert flags_mmd(other)


def test_the_gpu_benchmark_runs_on_a_cpu_and_projects_the_speed_up(tmp_path: Path) -> None:
    figures, file = tmp_path / "lookahead.json", tmp_path / "gpu.json"
    budgets = [{"setting": "B8", "kind": "story", "tokens_per_forward": 2.0}]
    figures.write_text(json.dumps({"budgets": budgets}))
    words = ["--json", str(file), "--device", "cpu", "--tiny", "--figures", str(figures)]
    assert gpu.main(words) == 0
    found = read(file)
    assert [step["rows"] for step in found["steps"]] == [1, 2, 8]
    assert found["steps"][0]["kernels"]
    assert found["steps"][-1]["kernels"]
    assert {(row["arm"], row["batch"]) for row in found["arms"]} == {
        (arm, batch) for arm in ("plain", "B8", "generate") for batch in (1, 2)
    }
    [one] = found["projected"]
    ratio = found["steps"][0]["step_ms"] / found["steps"][-1]["step_ms"]
    assert one["speed_up"] == pytest.approx(2.0 * ratio, abs=1e-3)


def test_a_static_step_gives_the_tokens_of_a_plain_forward() -> None:
    model = gpu.make_random_model(gpu.TINY, torch.float32, torch.device("cpu"))
    with torch.inference_mode():
        step = gpu.StaticStep(model, 2, 3, 0)
        expected = model(torch.full((2, 3), 7)).logits.argmax(-1)
        assert torch.equal(step.run(), expected)


def test_fresh_prompts_are_thirty_and_new() -> None:
    texts = [text for part in FRESH.values() for text in part]
    assert len(set(texts)) == 30
    assert not set(texts) & {text for part in PROMPTS.values() for text in part}
    assert list(FRESH) == list(PROMPTS)


def test_a_record_shows_no_path_of_the_machine_that_made_it() -> None:
    log = "https://x.io/a: /home/me/lib/a.py:254: Warning | POST /v1/chat/completions"
    shown = "https://x.io/a: (path) Warning | POST /v1/chat/completions"
    assert hide_paths({"why": [log, 3]}) == {"why": [shown, 3]}

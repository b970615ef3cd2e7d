"""Whole runs on what should never come: an ERROR or a named limitation, never silence."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gate.cli import main
from tests import toy_project
from tests.conftest import build_toy_model
from tests.toy_project import LOOKAHEAD, PLAIN, faulty, write_gate, write_rows


@pytest.fixture(scope="module")
def project(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A toy project; its faulty decoders are forgotten afterwards."""
    yield toy_project.write_project(tmp_path_factory.mktemp("bad"), toy)
    toy_project.forget_modules()


def run(folder: Path, **options: Any) -> dict[str, Any]:
    """Run the gate on a model folder of this name; returns the decision."""
    model = options.pop("model", "model")
    config = write_gate(folder, **options)
    config.write_text(config.read_text().replace('id = "model"', f'id = "{model}"'))
    code = main(["run", "--config", str(config), "--quiet"])
    found: dict[str, Any] = json.loads((folder / "reports/latest/decision.json").read_text())
    assert code == {"PASS": 0, "FAIL": 3, "INCONCLUSIVE": 4, "ERROR": 5}[found["outcome"]]
    return found


def find(decision: dict[str, Any], criterion: str, group: str = "all") -> dict[str, Any]:
    """Return the verdict of a criterion on a group."""
    named = [v for v in decision["verdicts"] if v["criterion"] == criterion]
    return next(v for v in named if v["group"] == group)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_whose_logits_are_no_numbers_is_an_error(
    project: Path, toy: Any, value: float
) -> None:
    broken = copy.deepcopy(toy.model)
    with torch.no_grad():
        broken.lm_head.weight[5] = value
    broken.save_pretrained(project / "broken")
    toy.tokenizer.save_pretrained(project / "broken")
    decision = run(project, model="broken", candidate=LOOKAHEAD)
    assert decision["outcome"] == "ERROR"
    assert "finite" in decision["reason"]


def test_a_tokenizer_with_more_tokens_than_the_model_is_an_error(project: Path, toy: Any) -> None:
    model = build_toy_model(100)
    model.generation_config.eos_token_id = 1
    model.save_pretrained(project / "small")
    toy.tokenizer.save_pretrained(project / "small")
    decision = run(project, model="small", candidate=LOOKAHEAD)
    assert decision["outcome"] == "ERROR"
    assert "tokenizer and model disagree" in decision["reason"]


def test_an_arm_with_another_vocabulary_fails_by_name(project: Path) -> None:
    decision = run(project, candidate=faulty("other-vocabulary"))
    assert decision["outcome"] == "FAIL"
    assert "outside the vocabulary" in find(decision, "error rate")["reason"]


def test_a_baseline_with_another_vocabulary_is_an_error(project: Path) -> None:
    decision = run(project, baseline=faulty("other-vocabulary"), candidate=PLAIN)
    assert decision["outcome"] == "ERROR"


def test_an_arm_with_another_tokenizer_fails_by_name(project: Path) -> None:
    decision = run(project, candidate=faulty("other-text"))
    assert decision["outcome"] == "FAIL"
    assert "text mismatch" in find(decision, "termination")["reason"]


def test_logprobs_that_are_no_numbers_are_failed_requests(project: Path) -> None:
    decision = run(project, candidate=faulty("nan-logprobs"))
    assert decision["outcome"] == "FAIL"
    assert "finite" in find(decision, "error rate")["reason"]


def test_an_arm_without_logprobs_fails_the_requests_that_ask_for_them(project: Path) -> None:
    decision = run(project, candidate=faulty("none"), skip_conformance="")
    failures = find(decision, "conformance")["comparison"]["detail"]["failures"]
    assert any(f["what"] == "logprobs" and f["came"] == "0" for f in failures)
    assert decision["outcome"] == "FAIL"


def test_a_task_of_one_item_is_judged_as_far_as_one_item_goes(project: Path) -> None:
    row = {"id": "only", "prompt": "maths 0: one two three", "target": "x"}
    file = project / "evalset/toy_maths.jsonl"
    before = file.read_text()
    write_rows(file, [row])
    decision = run(project, candidate=LOOKAHEAD)
    file.write_text(before)
    alarm = find(decision, "task alarm", "toy_maths")
    assert alarm["outcome"] == "NOT_JUDGED"
    assert alarm["reason"]
    assert any("toy_maths" in note for note in decision["notes"])

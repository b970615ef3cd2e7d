"""Requests sent again: whose output may change with its company, and what that means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gate.cli import main
from gate.measures.paired import Arm
from gate.measures.repeats import Repeats, compare_repeats
from gate.records import Comparison, DecoderSpec, Generation, NoiseBound, TokenScores
from tests import toy_project
from tests.toy_project import LOOKAHEAD, PLAIN, faulty, write_gate

BOUND = NoiseBound(
    bound=0.01,
    dtype="float32",
    n_positions=0,
    n_rows=1,
    q999_one_row=0.0,
    q999_wide=0.0,
    source="floor of the dtype",
)
KEY = ("r", 0)


@pytest.fixture(scope="module")
def project(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A toy project; its faulty decoders are forgotten afterwards."""
    yield toy_project.write_project(tmp_path_factory.mktemp("repeats"), toy)
    toy_project.forget_modules()


def run(folder: Path, **options: Any) -> tuple[int, dict[str, Any]]:
    """Run the gate; returns exit code and decision."""
    code = main(["run", "--config", str(write_gate(folder, **options)), "--quiet"])
    return code, json.loads((folder / "reports/latest/decision.json").read_text())


def find(decision: dict[str, Any], criterion: str) -> dict[str, Any]:
    """Return the verdict of a criterion."""
    return next(v for v in decision["verdicts"] if v["criterion"] == criterion)


def make_arm(ids: tuple[int, ...], regret: tuple[float, ...]) -> Arm:
    """An arm with one output."""
    zeros = (0.0,) * len(ids)
    scores = TokenScores(
        request_id="r",
        token_ids=ids,
        regret=regret,
        gap=zeros,
        entropy=zeros,
        best_id=ids,
        rank=(0,) * len(ids),
        logprob=zeros,
    )
    generation = Generation(request_id="r", token_ids=ids, text="x", finish="length")
    return Arm(
        spec=DecoderSpec(kind="autoregressive"),
        generations={KEY: generation},
        scores={KEY: scores},
    )


def compare(first: Arm, again: Arm) -> dict[str, Comparison]:
    """What the candidate's second output says; the baseline gives its own again."""
    found = Repeats(keys=(KEY,), widths=(8,), passes={"baseline": [first], "candidate": [again]})
    arms = {"baseline": first, "candidate": first}
    return {c.measure: c for c in compare_repeats(found, arms, BOUND)}


FIRST = make_arm((1, 2, 3), (0.0, 0.0, 0.0))
CHANGES = (
    (FIRST, 0, 0.0),
    (make_arm((1, 9, 9), (0.0, 0.02, 5.0)), 0, 1.0),  # a tie, and what follows it
    (make_arm((1, 9, 9), (0.0, 0.04, 0.0)), 1, 1.0),
    (make_arm((1, 2), (0.0, 0.0)), 1, 1.0),
)


@pytest.mark.parametrize(("again", "beyond", "rate"), CHANGES)
def test_only_a_first_difference_beyond_the_noise_is_a_change(
    again: Arm, beyond: int, rate: float
) -> None:
    found = compare(FIRST, again)
    assert found["baseline_repeats"].baseline == 0
    assert found["repeats"].candidate == beyond
    assert found["repeat_rate"].candidate == rate


def test_our_own_decoders_give_the_same_output_in_other_company(project: Path) -> None:
    code, decision = run(project, candidate=LOOKAHEAD)
    assert code == 0
    for name in ("baseline repeats", "repeats"):
        found = find(decision, name)
        assert (found["outcome"], found["blocking"]) == ("PASS", True)
        assert found["comparison"]["detail"]["widths"] == [8, 2]
    assert find(decision, "repeat rate")["blocking"] is False


def test_a_baseline_that_depends_on_its_company_is_an_error(project: Path) -> None:
    code, decision = run(project, baseline=faulty("moody"), candidate=PLAIN, claim="control")
    assert (code, find(decision, "baseline repeats")["outcome"]) == (5, "ERROR")
    assert "sent again" in decision["reason"]


def test_a_decoder_of_ones_own_is_shown_beside_the_baseline(project: Path) -> None:
    _, decision = run(project, candidate=faulty("moody"))
    found = find(decision, "repeats")
    assert (found["outcome"], found["blocking"]) == ("FAIL", False)
    assert find(decision, "repeat rate")["comparison"]["candidate"] > 0


def test_no_repeats_at_all_are_refused(project: Path) -> None:
    config = write_gate(project, run="repeat_requests = 0")
    assert main(["run", "--config", str(config), "--quiet"]) == 2

"""gate cost, and the routing that a run writes for the next one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.fleet import KINDS, simulate
from gate.cli import main
from gate.config import load_project
from gate.errors import UsageError
from gate.gain_config import EconomicsConfig
from gate.gain_words import explain_curve, explain_steps, note_gain
from gate.measures.economics import compare_economics
from gate.measures.routing import choose_classes
from gate.measures.strata import Moments
from gate.reasons import summarise
from gate.records import Comparison, Decision, Outcome, Verdict
from gate.routing_file import write_routing
from gate.store import encode_record, seal

LONG, SHORT = (kind.name for kind in KINDS)
BY_HAND = ["--class", "code=0.7,1.9,1.1", "--class", "chat=0.3,0.8,0.95"]


@pytest.fixture(scope="module")
def comparisons() -> list[Comparison]:
    """A simulated fleet, half of each class."""
    blocks = simulate(20, np.random.default_rng(1))
    return compare_economics(blocks, {LONG: 0.5, SHORT: 0.5}, EconomicsConfig(), "steps")


@pytest.fixture
def decision_file(tmp_path: Path, comparisons: list[Comparison]) -> Path:
    """Its decision."""
    decision = Decision(
        outcome=Outcome.FAIL,
        content=Outcome.PASS,
        gain=Outcome.FAIL,
        claim="lossless",
        purpose="release",
        reason="",
        comparisons=tuple(comparisons),
        created_at="2026-01-01T00:00:00+00:00",
        expires_at="2026-02-01T00:00:00+00:00",
    )
    path = tmp_path / "decision.json"
    path.write_bytes(encode_record(seal(decision)))
    return path


def cost(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    file = tmp_path / "cost.json"
    code = main(["cost", "--price", "3.6", "--json", str(file), *arguments])
    return code, json.loads(file.read_text()) if file.exists() else {}


def test_by_hand_the_cost_is_seconds_times_price_and_has_no_interval(tmp_path: Path) -> None:
    code, found = cost(tmp_path, *BY_HAND, "--volume", "1000", "--monthly-cost", "0.1")
    before, after = 0.7 * 1.9 + 0.3 * 0.8, 0.7 * 1.1 + 0.3 * 0.95
    assert code == 0
    assert found["ratio"]["statistic"] == pytest.approx(after / before)
    assert found["ratio"]["interval"] == [None, None]
    assert found["money"][0]["candidate"] == pytest.approx(after * 0.001)
    assert found["month"]["saving_usd"][0] == pytest.approx(before - after - 0.1)
    assert (found["losing"], found["routed"]) == (["chat"], ["code"])


def test_a_change_that_costs_more_is_not_said_to_save(capsys: pytest.CaptureFixture[str]) -> None:
    worse = ["--class", "code=1,1,2", "--volume", "1000", "--monthly-cost", "9"]
    assert main(["cost", "--price", "3.6", *worse]) == 0
    told = capsys.readouterr().out
    assert "costs 10 USD more a month (no interval)" in told
    assert "saves" not in told


@pytest.mark.parametrize("option", ["--config", "--out"])
def test_options_that_it_would_not_use_are_refused(option: str) -> None:
    with pytest.raises(SystemExit):
        main(["cost", "--price", "1", *BY_HAND, option, "x"])


def test_a_decision_is_priced_again_under_other_traffic(
    tmp_path: Path, decision_file: Path
) -> None:
    shares = f"{LONG}=0.01,{SHORT}=0.99"
    code, found = cost(tmp_path, str(decision_file), "--traffic", shares)
    assert code == 0
    assert found["ratio"]["interval"][0] > 1.0
    assert (found["losing"], found["routed"]) == ([SHORT], [LONG])
    assert found["routed_ratio"]["interval"][1] < 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--price", "0", *BY_HAND], "above 0"),
        (["--price", "nan", *BY_HAND], "above 0"),
        (["--price", "1"], "one of the two"),
        (["--price", "1", "--class", "code=1,2"], "SHARE,BEFORE,AFTER"),
        (["--price", "1", "--class", "code=1,x,2"], "no number"),
        (["--price", "1", "--class", "code=0.5,1,2"], "sum to 0.5"),
        (["--price", "1", "--class", "code=1,-1,2"], "above 0"),
        (["--price", "1", "--class", "all=1,1,2"], "name the class otherwise"),
        (["--price", "1", *BY_HAND, "--traffic", "code=1"], "give each of"),
        (["--price", "1", *BY_HAND, "--traffic", "code=1,code=1"], "comes twice"),
        (["--price", "1", *BY_HAND, "--volume", "0"], "requests_per_month"),
        (["--price", "1", "/nowhere"], "no readable decision"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("value", [math.inf, -1.0])
def test_an_edited_decision_is_refused(
    tmp_path: Path, decision_file: Path, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(decision_file.read_text())
    for one in data["comparisons"]:
        if "moments" in one["detail"]:
            one["detail"]["moments"]["candidate"] = 1e999 if math.isinf(value) else value
    decision_file.write_text(json.dumps(data).replace("Infinity", "1e400"))
    assert main(["cost", "--price", "1", str(decision_file)]) == 2
    assert capsys.readouterr().err.startswith("gate: ")
    assert tmp_path.exists()


# ------------------------------------------------------------- routed.toml

GATE = """\
schema = 1
evalset = "evalset"
[model]
id = "model"
[run]
allow_differences = [{ field = "a", reason = "b \\"quoted\\"" }]
[baseline]
kind = "autoregressive"
[candidate]
kind = "lookahead"
window = 7
"""


def write_project(folder: Path, text: str = GATE) -> Path:
    (folder / "pyproject.toml").write_text("")
    (folder / "gate.toml").write_text(text)
    (folder / "reports" / "run").mkdir(parents=True)
    return folder / "reports" / "run"


def test_the_routed_file_is_the_same_gate_with_only_the_paying_classes_routed(
    tmp_path: Path, comparisons: list[Comparison]
) -> None:
    run = write_project(tmp_path)
    said = write_routing(load_project(tmp_path / "gate.toml"), comparisons, run)
    assert "routed.toml" in said
    path = run / "routed.toml"
    routed, own = load_project(path), load_project(tmp_path / "gate.toml")
    assert routed.folder == own.folder == tmp_path.resolve()
    assert routed.config.candidate == {
        "kind": "routed",
        "routes": {
            LONG: {"kind": "lookahead", "window": 7},
            "default": {"kind": "autoregressive"},
        },
    }
    same = {"candidate": own.config.candidate, "folder": own.config.folder}
    assert msgspec.structs.replace(routed.config, **same) == own.config


def test_nothing_is_written_where_nothing_or_everything_pays(
    tmp_path: Path, comparisons: list[Comparison]
) -> None:
    run = write_project(tmp_path)
    project = load_project(tmp_path / "gate.toml")
    routing = next(one for one in comparisons if one.measure == "routing")
    for detail in ({"chosen": [], "kept": {"a": "x"}}, {"chosen": ["a"], "kept": {}}):
        said = write_routing(project, [msgspec.structs.replace(routing, detail=detail)], run)
        assert said == ""
    assert not (run / "routed.toml").exists()


@pytest.mark.parametrize(
    ("kind", "instead"), [("endpoint", "in front of servers"), ("replay", "stored run")]
)
def test_where_no_route_can_lead_the_run_says_why_and_what_to_do(
    tmp_path: Path, comparisons: list[Comparison], kind: str, instead: str
) -> None:
    run = write_project(tmp_path, GATE.replace('kind = "autoregressive"', f'kind = "{kind}"'))
    said = write_routing(load_project(tmp_path / "gate.toml"), comparisons, run)
    assert said.startswith("no routed.toml was written: ")
    assert instead in said
    assert not (run / "routed.toml").exists()


def test_a_folder_outside_the_project_is_refused(tmp_path: Path) -> None:
    write_project(tmp_path, 'folder = "../.."\n' + GATE)
    with pytest.raises(UsageError, match="folder"):
        load_project(tmp_path / "gate.toml")


def test_the_first_screen_says_what_is_hidden_and_what_to_route(
    comparisons: list[Comparison],
) -> None:
    notes = note_gain(comparisons)
    assert any("hides a loss" in note and SHORT in note for note in notes)
    assert any(f"route {LONG}" in note for note in notes)


def test_why_a_step_costs_what_it_does_names_the_acceptance_that_would_pay() -> None:
    detail: dict[str, object] = {
        "tokens_per_step": 1.5,
        "step_cost_ratio": [2.6, 2.5, 2.7],
        "rows_per_step": 31.0,
        "accepted_per_draft": 0.03,
        "break_even": {"tokens_per_step": 2.6, "accepted_per_draft": 0.11},
    }
    assert explain_steps(detail) == (
        "a step of 31 rows costs 2.60 plain steps and brings 1.50 tokens; it would break even at "
        "2.60 tokens per step, with 11.0% of its drafts accepted (3.0% were)"
    )
    detail["break_even"] = {"tokens_per_step": 2.6, "accepted_per_draft": None}
    assert "more than with all of its drafts accepted" in explain_steps(detail)


def test_rows_are_called_free_or_not_by_the_curve_that_was_measured() -> None:
    def curve(*costs: float) -> Comparison:
        points = [[1, 2**k, 0.1, cost, 0.1, 0.1] for k, cost in enumerate(costs)]
        return Comparison(measure="profile", detail={"curve": points})

    told = explain_curve(curve(1.0, 1.2, 1.9))
    assert told == "rows are not free here: steps of 2 and 4 rows cost 1.20 and 1.90 plain steps"
    assert explain_curve(curve(1.0, 1.01, 1.05)) == ""
    assert explain_curve(Comparison(measure="profile")) == ""


def test_a_class_that_is_kept_says_what_it_costs_there() -> None:
    few = [Moments(name="a", share=1.0, n=2, baseline=1.0, candidate=1.5, var_baseline=0.3,
                   var_candidate=0.3, cov=0.1)]  # fmt: skip
    kept = choose_classes(few).kept
    assert kept == {
        "a": "2 pairs do not tell, all classes judged at once (1.50 times as much there)"
    }


def test_a_gain_that_fails_gives_speed_and_cost_of_the_whole_traffic_as_its_reason() -> None:
    def fail(criterion: str, group: str) -> Verdict:
        return Verdict(criterion=criterion, group=group, outcome=Outcome.FAIL, blocking=True,
                       half="gain", reason=f"{criterion} of {group}")  # fmt: skip

    verdicts = [fail(name, group) for name in ("speed", "cost") for group in ("all", "code")]
    told = summarise(Outcome.FAIL, verdicts, gain_note="")
    assert told == "speed: speed of all; cost: cost of all; and 2 more."

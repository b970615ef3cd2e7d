"""The view: rounding that cannot mislead, geometry that stays inside, plain words."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.records import Criterion, Loosened, Outcome, Waiver
from gate.report import render_html
from gate.report.arms import keep_used
from gate.report.judged import find_limits
from gate.report.numbers import format_apart, format_difference, format_number, format_speedup
from gate.report.plots import EDGE, WIDTH, Span, choose_axis, draw_strip
from gate.report.view import make_page
from gate.report.wording import write_headline
from tests.report.builders import make_baseline_defect, make_decision, make_fail, make_pass
from tests.report.parts import (
    make_estimate,
    make_exercised,
    make_fork,
    make_ratio,
    make_task,
    make_verdict,
)

FLOATS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0008, "share", "0.08%"),
        (0.99999, "share", "99.999%"),
        (1.0, "share", "100%"),
        (-0.02, "points", "−2 points"),
        (1.5, "ratio", "1.50×"),
        (0.0123, "s", "12.3 ms"),
        (2.1e-6, "nats", "2.1×10⁻⁶ nats"),
        (3812, "", "3,812"),
        (None, "share", "not measured"),
        (True, "share", "not measured"),
        (math.nan, "", "not measured"),
        (math.inf, "nats", "unbounded"),
    ],
)
def test_numbers_read_as_a_release_manager_writes_them(value: object, unit: str, text: str) -> None:
    assert format_number(value, unit) == text


def test_differences_carry_their_sign_and_shares_become_points() -> None:
    assert format_difference(0.013, "share") == "+1.3 points"
    assert format_difference(-0.013, "share") == "−1.3 points"
    assert format_difference(1.2, "ratio") == "1.20×"


def test_rounding_never_hides_on_which_side_of_the_margin_an_estimate_is() -> None:
    assert format_apart(0.0200004, 0.02, "share", signed=True) != "+2 points"
    assert format_apart(0.02, 0.02, "share", signed=True) == "+2 points"


@given(st.floats(min_value=1e-12, max_value=1 - 1e-12))
def test_a_share_inside_0_and_1_is_never_written_as_either(share: float) -> None:
    assert format_number(share, "share") not in {"0%", "100%"}


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.5, "2.00× as fast"),
        (1.0, "equally fast"),
        (2.0, "0.50× as fast (slower)"),
        (0.0, "not measured"),
        (None, "not measured"),
        (math.nan, "not measured"),
    ],
)
def test_a_time_ratio_reads_as_a_speedup(ratio: object, text: str) -> None:
    assert format_speedup(ratio) == text


@given(FLOATS, st.none() | FLOATS, st.none() | FLOATS, FLOATS)
def test_every_drawing_stays_inside_its_frame(
    point: float, low: float | None, high: float | None, margin: float
) -> None:
    span = Span(point=point, low=low, high=high)
    strip = draw_strip(span, choose_axis([span], [margin, 0.0]), (None, margin), [(margin, "m")])
    places = (strip.low, strip.high, strip.point, *(mark.x for mark in strip.margins))
    assert all(EDGE <= place <= WIDTH - EDGE for place in places)


def test_an_estimate_beyond_its_margin_is_drawn_beyond_it() -> None:
    span = Span(point=0.03, low=0.021, high=None)
    strip = draw_strip(span, choose_axis([span], [0.02]), (None, 0.02), [(0.02, "m")])
    assert strip.point > strip.low > strip.margins[0].x
    assert strip.high_open
    assert not strip.low_open


@pytest.mark.parametrize(
    ("rule", "limits"),
    [
        ("at_most", (None, 0.02)),
        ("at_least", (0.02, None)),
        ("equivalent", (-0.02, 0.02)),
        ("non_inferior", (-0.02, None)),
        ("alarm", (-0.05, 0.05)),
    ],
)
def test_the_shaded_part_follows_the_rule(
    rule: str, limits: tuple[float | None, float | None]
) -> None:
    criterion = Criterion(name="x", measure="task_delta", margin=0.02, floor=0.05)
    criterion = msgspec.structs.replace(criterion, rule=rule)
    assert find_limits(criterion, make_task("all", 0.0, 0.1, 10)) == limits


def test_a_ratio_is_judged_around_one() -> None:
    criterion = Criterion(name="x", measure="time_ratio", rule="non_inferior", margin=0.05)
    assert find_limits(criterion, make_ratio("all", 0.9)) == (None, 1.05)


def test_a_content_pass_never_reads_as_permission_to_ship() -> None:
    assert "sign" not in write_headline(Outcome.PASS, "content", "lossless").lower()
    assert "sign" in write_headline(Outcome.PASS, "release", "lossless").lower()


def test_the_gain_that_was_not_judged_says_why() -> None:
    gain = make_page(make_decision()).halves[1]
    assert gain.badge.outcome == "NOT_JUDGED"
    assert gain.summary.startswith("Not judged: this run judges content only.")


def test_a_class_without_acceptance_is_named_on_the_first_screen_and_beside_its_speed() -> None:
    page = make_page(make_decision())
    assert any("short_answer" in note for note in page.notes)
    warned = [row.name for row in page.speed if row.warning]
    assert warned == ["short_answer"]


def test_a_class_already_named_by_a_note_is_not_named_twice() -> None:
    note = "Nothing was accepted in short_answer."
    assert make_page(make_decision(notes=(note,))).notes == (note,)


def test_unknown_acceptance_is_said() -> None:
    exercised = make_exercised(5)
    exercised = msgspec.structs.replace(exercised, detail={**exercised.detail, "unknown": 12})
    verdict = make_verdict("exercised", exercised, Outcome.PASS, "ok")
    page = make_page(make_decision(verdicts=(verdict,), comparisons=()))
    assert any("12 requests" in note for note in page.notes)


def test_only_a_difference_outside_the_decoder_is_alarming() -> None:
    decision = make_decision()
    candidate = {**decision.provenance["candidate"], "n_requests": 59}
    provenance = {**decision.provenance, "candidate": candidate}
    rows = {row.name: row for row in make_page(make_decision(provenance=provenance)).provenance}
    assert rows["n_requests"].alarming
    assert rows["decoder.kind"].mark == "the change under test"
    assert not rows["decoder.kind"].alarming
    assert not rows["model.id"].mark


def test_the_evidence_of_a_fork_says_whose_token_is_wrong() -> None:
    fork = make_fork("defect")
    turned = msgspec.structs.replace(fork, regret_baseline=2.0, regret_candidate=0.0)
    unscored = msgspec.structs.replace(fork, kind="unscored", regret_candidate=None)
    cards = make_page(make_decision(forks=(fork, turned, unscored))).forks
    assert cards[0].evidence.startswith("The candidate's token misses the model's choice by 2.31")
    assert cards[1].evidence.startswith("The baseline's token misses the model's choice by 2 nats")
    assert "nobody can say" in cards[2].evidence


def test_defects_come_first_and_only_the_first_forks_are_open() -> None:
    cards = make_page(make_fail()).forks
    assert [card.kind for card in cards] == ["defect"] * 7 + ["tie"]
    assert sum(card.opened for card in cards) == 3


def test_a_token_shows_its_spaces_and_a_missing_one_says_so() -> None:
    fork = msgspec.structs.replace(make_fork(), token_candidate=None)
    card = make_page(make_decision(forks=(fork,))).forks[0]
    assert (card.token_baseline, card.token_candidate[:9]) == ("␣twelve", "(no token")


def test_what_was_compared_is_said_in_one_sentence_of_the_banner() -> None:
    assert make_page(make_decision()).compared == (
        "autoregressive against lookahead (window 5, ngram 4, guesses 5): "
        "embedded:smollm2-135m-instruct, float32, cpu, smoke, 60 requests"
    )
    assert not make_page(make_decision(provenance={})).compared


def test_options_that_the_chosen_way_of_guessing_does_not_have_are_left_out() -> None:
    pool = {"window": 5, "ngram": 4, "guesses": 5, "prompt_ngrams": False}
    tree = {"rows": 40, "sources": ["window"], "shared_rows": False, "step_cost": []}
    both = {**pool, **tree, "context": None}
    assert keep_used(both) == {**tree, "context": None}
    assert keep_used({**both, "rows": None}) == {**pool, "context": None}
    assert keep_used({"context": None}) == {"context": None}


def test_a_criterion_that_nobody_judged_says_so() -> None:
    rows = make_page(make_decision(verdicts=())).criteria
    assert {row.came_to for row in rows} == {"no verdict"}


def test_a_loosened_criterion_says_what_it_was_when_the_baseline_was_approved() -> None:
    loosened = (Loosened(criterion="task accuracy", key="margin", approved="0.02", now="0.1"),)
    decision = make_decision(loosened=loosened)
    page = make_page(decision)
    said = {row.criterion: row.loosened for row in (*page.others, *page.unjudged)}
    assert said["task accuracy"] == ("margin was 0.02, is 0.1",)
    assert said["exercised"] == ()
    assert {row.name: row.loosened for row in page.criteria}["task accuracy"]
    assert render_html(decision).count("margin was 0.02, is 0.1") == 2


def test_a_waived_verdict_is_marked_and_says_who_waived_it() -> None:
    old = make_fail()
    waiver = Waiver(criterion="guard flips", group="format", reason="known", who="release team",
                    until="2999-01-01")  # fmt: skip
    verdicts = tuple(
        msgspec.structs.replace(one, waiver=waiver) if one.criterion == "guard flips" else one
        for one in old.verdicts
    )
    page = make_page(msgspec.structs.replace(old, verdicts=verdicts, waivers=(waiver,)))
    assert [row.criterion for row in page.stopping] == ["token certificate"]
    waived = next(row for row in page.others if row.criterion == "guard flips")
    assert (waived.waived, waived.badge.outcome) == (True, "FAIL")
    assert "release team" in waived.remarks[0]
    assert any("release team" in alert for alert in page.alerts)


def test_a_pass_that_rests_on_waivers_says_so_in_its_headline() -> None:
    old = make_pass()
    waiver = Waiver(criterion="divergence", reason="r", who="w", until="2999-01-01")
    verdicts = tuple(
        msgspec.structs.replace(one, outcome=Outcome.FAIL, waiver=waiver)
        if one.criterion == "divergence" else one
        for one in old.verdicts
    )  # fmt: skip
    page = make_page(msgspec.structs.replace(old, verdicts=verdicts, purpose="release"))
    assert page.headline.startswith("Passed with 1 waiver:")


def test_a_verdict_without_a_comparison_has_no_drawing() -> None:
    verdict = msgspec.structs.replace(make_decision().verdicts[0], comparison=None)
    row = make_page(make_decision(verdicts=(verdict,))).others[0]
    assert row.strip is None
    assert row.estimate == "not measured"


def test_an_unbounded_side_is_drawn_open() -> None:
    task = msgspec.structs.replace(
        make_task("all", 0.0, 0.1, 10), difference=make_estimate(0.0, -0.02, None)
    )
    verdict = make_verdict("task accuracy", task, Outcome.PASS, "ok")
    row = make_page(make_decision(verdicts=(verdict,))).others[0]
    assert row.interval == "at least −2 points (95% confidence)"
    assert row.strip is not None
    assert row.strip.high_open


def test_earlier_runs_and_waivers_are_read_first() -> None:
    alerts = make_page(make_fail()).alerts
    assert any("task alarm" in alert for alert in alerts)
    assert any("2 times" in alert for alert in alerts)
    assert make_page(make_baseline_defect()).alerts[0].startswith("The baseline failed")


def test_a_certificate_that_counts_shows_counts_for_the_arms_and_a_rate_for_the_estimate() -> None:
    row = make_page(make_fail()).stopping[0]
    assert row.arms == "baseline 0, candidate 7"
    assert row.estimate == "7 of 3,812"
    assert row.interval == "a rate of up to 0.264% (95% confidence)"
    assert row.rule == "must stay at or below 0"
    assert row.caption.startswith("The count is judged.")


def test_a_judged_count_is_drawn_as_a_count_and_not_as_a_bar_across_the_margin() -> None:
    row = make_page(make_pass()).others[0]
    assert row.criterion == "token certificate"
    assert row.strip is not None
    assert row.strip.counted
    assert row.strip.point == row.strip.low == row.strip.margins[0].x < row.strip.high


def test_a_count_that_fails_is_drawn_outside_its_margin() -> None:
    strip = make_page(make_fail()).stopping[0].strip
    assert strip is not None
    assert strip.allowed is not None
    assert strip.point > strip.margins[0].x == strip.allowed.x + strip.allowed.width


def test_an_interval_that_is_judged_is_no_count() -> None:
    row = next(one for one in make_page(make_pass()).others if one.criterion == "task accuracy")
    assert row.strip is not None
    assert not row.strip.counted


def test_what_the_certificate_knows_about_its_defects_is_shown() -> None:
    defect = {"request_id": "r1", "request_class": "code", "position": 40, "regret": 2.0, "rank": 3}
    detail = {"bound_nat": 0.001, "bound_source": "measured", "n_unscored": 2,
              "diagnosis": "a relaxed acceptance rule", "request_rate_upper": 0.05,
              "defects": [defect, "x"]}  # fmt: skip
    certificate = msgspec.structs.replace(make_decision().comparisons[0], detail=detail)
    verdict = make_verdict("token certificate", certificate, Outcome.FAIL, "no")
    page = make_page(make_decision(verdicts=(verdict,), comparisons=(certificate,)))
    remarks = " ".join(page.stopping[0].remarks)
    for words in ("0.001 nats", "a relaxed acceptance rule", "below 5%", "2 outputs"):
        assert words in remarks
    assert page.defects.rows == (("candidate", "r1", "code", "40", "2 nats", "3"),)


def test_a_decoder_that_does_not_say_what_it_accepted_is_not_called_idle() -> None:
    exercised = make_exercised(0)
    exercised = msgspec.structs.replace(exercised, detail={**exercised.detail, "unknown": True})
    page = make_page(make_decision(verdicts=(), comparisons=(exercised,)))
    assert any("For all requests the decoder does not say" in note for note in page.notes)
    assert not any("short_answer" in note for note in page.notes)

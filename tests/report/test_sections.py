"""The evidence below the first screen: what was measured, and what was not."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from gate.records import Comparison, Decision, Estimate
from gate.report import render_html
from gate.report.numbers import format_number
from gate.report.page import Table
from gate.report.view import make_page
from tests.report.builders import FACTORIES, make_decision, make_error, make_fail, make_full
from tests.report.parts import make_estimate, make_fork, make_ratio, make_task


def show(*comparisons: Comparison) -> Decision:
    return make_decision(verdicts=(), comparisons=comparisons)


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_decision_read_back_from_its_json_makes_the_same_page(factory: object) -> None:
    decision = factory()  # type: ignore[operator]
    again = msgspec.json.decode(msgspec.json.encode(decision), type=Decision)
    assert render_html(again) == render_html(decision)


def test_every_section_of_an_empty_decision_says_not_measured() -> None:
    page = make_page(make_error())
    tables = (page.divergence, page.serving, page.failures, page.sensitivity, page.defects)
    assert {table.remark for table in tables} == {"not measured"}
    assert page.speed_remark == "not measured"


def test_the_self_test_is_shown_under_its_own_column_names() -> None:
    rows = ({"fault": "relaxed acceptance", "caught_by": "token certificate"}, {"fault": "seed"})
    table = make_page(make_decision(sensitivity=rows)).sensitivity
    assert table.head == ("fault", "caught by")
    assert table.rows[1] == ("seed", "not measured")


def test_throughput_and_latency_show_both_arms_in_their_units() -> None:
    rate = Comparison(
        measure="tokens_per_second",
        unit="ratio",
        baseline=410.0,
        candidate=650.0,
        difference=make_estimate(1.59, 1.5, 1.7),
    )
    wait = Comparison(measure="ttft", unit="s", baseline=0.021, candidate=0.025)
    rows = make_page(show(rate, wait)).serving.rows
    assert rows[0][2:4] == ("410 tokens/s", "650 tokens/s")
    assert rows[0][4] == "1.59×; between 1.50× and 1.70× (95% confidence)"
    assert rows[1][2:] == ("21 ms", "25 ms", "not measured")


def test_divergence_shows_the_percentiles_there_are_and_what_it_cannot_see() -> None:
    table = make_page(make_decision()).divergence
    assert table.head[2:] == ("p50", "p90", "p99", "max", "Same first choice")
    assert table.rows[0][-1] == "99.97%"
    assert "cannot see a decoder that accepts guesses it should reject" in table.remark


def test_lost_pairs_are_shown_with_their_reasons_wherever_they_were_lost() -> None:
    lost = msgspec.structs.replace(
        make_task("gsm8k", 0.0, 0.1, 10), n_dropped=3, drop_reasons={"candidate failed": 3}
    )
    rows = make_page(show(lost)).failures.rows
    assert rows[0][4:] == ("3", "candidate failed 3")


def test_the_labels_that_changed_are_shown_with_both_texts() -> None:
    guards = {row.name: row for row in make_page(make_fail()).guards}
    assert [flip.candidate_label for flip in guards["format"].flips] == ["invalid"] * 3
    assert guards["format"].flips[0].baseline_text == '{"city": "Paris"}'
    assert guards["refusal"].flips == ()


def test_hundreds_of_changed_labels_are_cut_and_counted() -> None:
    detail: dict[str, object] = {"flipped": [{"request_id": str(i)} for i in range(70)]}
    guard = Comparison(measure="guard_flips", group="refusal", detail=detail)
    row = make_page(show(guard)).guards[0]
    assert len(row.flips) == 50
    assert row.flips_remark == "20 more in decision.json"
    assert row.flips[0].candidate_label == "not recorded"


def test_the_whole_mix_leads_the_speeds_and_a_missing_acceptance_says_so() -> None:
    rows = make_page(show(make_ratio("code", 0.5), make_ratio("all", 0.8))).speed
    assert [row.name for row in rows] == ["whole mix", "code"]
    assert rows[0].accepted == rows[0].share == "not measured"
    assert rows[1].times == "2.4 s → 1.2 s"


def make_cost(measure: str, group: str, unit: str) -> Comparison:
    return Comparison(measure=measure, group=group, unit=unit, baseline=0.004, candidate=0.003,
                      difference=make_estimate(-0.001, -0.002, -0.0005))  # fmt: skip


def test_the_cost_per_class_stands_beside_its_speed_and_in_the_gain() -> None:
    costs = (
        make_cost("cost_per_request", "all", "USD"),
        make_cost("device_seconds", "all", "ratio"),
    )
    page = make_page(show(make_ratio("all", 0.8), make_ratio("code", 0.5), *costs))
    cost = "4 USD → 3 USD per 1,000 requests"
    assert [row.cost for row in page.speed] == [cost, "not measured"]
    assert page.halves[1].summary.endswith(f"Cost: {cost}.")


def test_without_a_price_the_cost_is_in_device_seconds() -> None:
    page = make_page(show(make_ratio("all", 0.8), make_cost("device_seconds", "all", "s")))
    assert page.speed[0].cost == "4 ms → 3 ms of the device per request"


def make_seconds(**detail: object) -> Comparison:
    return Comparison(measure="device_seconds", unit="ratio", baseline=1.0, candidate=1.5,
                      difference=make_estimate(1.5, 1.4, 1.6), detail=detail)  # fmt: skip


def find_table(decision: Decision, caption: str) -> Table:
    return next(one for one in make_page(decision).earnings if one.caption == caption)


def test_what_a_class_needs_to_break_even_stands_beside_what_it_has() -> None:
    points = {"tokens_per_step": 2.6, "accepted_per_draft": 0.2, "length": None, "lengths": "never"}
    month = {"fixed_usd": 100.0, "volume_to_break_even": None}
    measured = make_seconds(
        tokens_per_step=1.5,
        accepted_per_draft=0.06,
        break_even=points,
        monthly=month,
        step_cost_ratio=[2.6, 2.5, 2.7],
    )
    table = find_table(show(measured), "Where it breaks even")
    assert table.rows == (
        ("all requests", "2.6 plain steps", "1.5", "2.6", "6%", "20%", "at no length"),
    )
    assert "for all classes cost more" in table.remark
    assert "a request saves nothing" in table.remark


def test_an_acceptance_beyond_every_draft_and_a_length_are_said_in_words() -> None:
    points = {"tokens_per_step": 9.0, "accepted_per_draft": None, "length": 40.0, "lengths": "from"}
    measured = make_seconds(tokens_per_step=1.5, accepted_per_draft=0.06, break_even=points)
    row = find_table(show(measured), "Where it breaks even").rows[0]
    assert row[-2:] == ("more than all", "from 40 tokens")


def test_a_month_that_loses_is_not_said_to_save() -> None:
    money = make_cost("cost_per_request", "all", "USD")
    month = {"saving_usd": [-50.0, -60.0, -40.0], "requests_per_month": 1000.0, "fixed_usd": 0.0}
    table = find_table(show(make_seconds(monthly=month), money), "Money per 1,000 requests")
    assert "the change costs 50 USD more (between 40 USD and 60 USD)" in table.remark
    assert "saves" not in table.remark


def test_percentiles_are_shown_where_n_carries_them_and_named_where_not() -> None:
    detail = {"percentiles": {"baseline": {"p50": [1.0, 0.9, 1.2]}, "candidate": {}}}
    ratio = make_ratio("all", 0.8)
    shown = make_page(show(msgspec.structs.replace(ratio, detail=detail))).percentiles
    assert shown.rows[0][2:] == ("p50", "1 s; between 900 ms and 1.2 s", "not measured")
    assert "no bound for any percentile" in make_page(show(ratio)).percentiles.remark


def test_a_routing_of_nothing_is_not_shown_as_a_ratio() -> None:
    routing = Comparison(measure="routing", unit="ratio", difference=make_estimate(1.0, 1.0, 1.0),
                         detail={"chosen": [], "kept": {"code": "it costs more"}})  # fmt: skip
    assert find_table(show(routing), "Where to route").remark.startswith("Nothing is routed")


@pytest.mark.parametrize(
    ("value", "text"),
    [(256, "256 bytes"), (557_408_256, "557 MB"), (1.1e13, "11 TB"), (0, "0 bytes")],
)
def test_bytes_are_written_as_people_say_them(value: float, text: str) -> None:
    assert format_number(value, "bytes") == text


def test_integers_that_no_float_holds_break_no_page() -> None:
    def blow(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: blow(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [blow(one) for one in value]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return 10**400 if is_number else value

    full = make_full()
    odd = [msgspec.structs.replace(one, detail=blow(one.detail)) for one in full.comparisons]
    assert render_html(msgspec.structs.replace(full, comparisons=tuple(odd)))


def test_a_share_that_no_float_holds_as_per_cent_is_unbounded() -> None:
    assert format_number(1e308, "share") == "unbounded"


@pytest.mark.parametrize("statistic", [0.0, -1.0, math.nan, math.inf])
def test_a_ratio_that_is_no_speed_is_not_drawn(statistic: float) -> None:
    odd = msgspec.structs.replace(make_ratio("all", 1.0), difference=make_estimate(statistic))
    page = make_page(show(odd))
    assert page.speed[0].strip is None
    assert render_html(show(odd))


def test_a_task_that_gives_no_estimate_is_listed_without_a_drawing() -> None:
    odd = msgspec.structs.replace(make_task("x", 0.0, 0.1, 10), difference=None, detail={})
    row = make_page(show(odd)).tasks[0]
    assert (row.delta, row.strip) == ("not measured", None)
    assert row.counts.startswith("not measured documents")


def test_a_fork_of_a_kind_nobody_described_keeps_its_name_and_comes_first() -> None:
    cards = make_page(make_decision(forks=(make_fork("tie"), make_fork("new_kind")))).forks
    assert cards[0].kind_meaning == "new_kind"


def test_a_measure_nobody_described_is_shown_under_its_own_name() -> None:
    row = make_page(show(Comparison(measure="beam_width", note="why"))).comparisons.rows[0]
    assert (row[0], row[4], row[-1]) == ("beam width", "why", "why")


def test_a_count_is_written_without_an_interval() -> None:
    count = Estimate(
        statistic=520.0, interval=(520.0, 520.0), confidence_level=1.0, n=60, method="count"
    )
    table = make_page(show(Comparison(measure="exercised", unit="count", difference=count)))
    assert table.comparisons.rows[0][4] == "520; counted"

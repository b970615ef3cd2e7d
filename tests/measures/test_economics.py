"""Economics on synthetic traces: nothing is lost, nothing hidden, closed forms are met."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.fleet import COST, KINDS, MIXES, STEP_S, judge_fleet, simulate
from gate.gain_config import EconomicsConfig, ServingConfig
from gate.measures import breakeven
from gate.measures.attribution import attribute
from gate.measures.breakeven import StepCosts
from gate.measures.economics import ServedBlock, compare_economics, compare_whole
from gate.measures.routing import blend, choose_classes
from gate.measures.strata import (
    Moments,
    estimate_ratio,
    read_moments,
    stratified_ratio,
    weigh,
    weighted_means,
)
from gate.records import Comparison, Generation, Outcome, Request, Step, Trace

LONG, SHORT = (kind.name for kind in KINDS)
HALVES = {LONG: 0.5, SHORT: 0.5}


def make_request(name: str, request_class: str = "a") -> Request:
    return Request(id=name, task="t", request_class=request_class, prompt="p", max_tokens=9)


def serve(name: str, walls: list[float], sent_s: float = 0.0, **more: float) -> Generation:
    steps = tuple(Step(wall_s=wall) for wall in walls)
    trace = Trace(sent_s=sent_s, total_s=more.get("total_s", sum(walls)), steps=steps)
    return Generation(request_id=name, finish="eos", token_ids=(1, 2), trace=trace)


def find(found: list[Comparison]) -> Mapping[tuple[str, str], Comparison]:
    return {(one.measure, one.group): one for one in found}


def compare(
    shares: Mapping[str, float] = HALVES, **config: object
) -> Mapping[tuple[str, str], Comparison]:
    economics = msgspec.convert(config, EconomicsConfig)
    blocks = simulate(20, np.random.default_rng(1))
    return find(compare_economics(blocks, shares, economics, "steps"))


# ------------------------------------------------------------- conservation


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0.01, 5)), min_size=1, max_size=8),
    st.floats(0.1, 30),
)
def test_seconds_in_flight_and_idle_ones_add_up_to_the_block(
    flights: list[tuple[float, float]], wall: float
) -> None:
    requests = [make_request(str(n)) for n in range(len(flights))]
    generations = [
        serve(str(n), [], sent, total_s=total) for n, (sent, total) in enumerate(flights)
    ]
    parts = attribute(requests, generations, wall, "in_flight")
    assert math.isclose(parts.served_s + parts.failed_s + parts.unattributed_s, wall)
    assert parts.unattributed_s >= 0.0


def test_steps_idle_and_failed_requests_add_up_to_the_block() -> None:
    failed = msgspec.structs.replace(serve("b", [0.1, 0.3]), finish="error", error="x")
    requests = [make_request("a"), make_request("b")]
    parts = attribute(requests, [serve("a", [0.2, 0.4]), failed], 1.5, "steps")
    assert [parts.served_s, parts.failed_s] == pytest.approx([0.6, 0.4])
    assert parts.unattributed_s == pytest.approx(0.5)


def test_an_instant_is_shared_by_those_in_flight_and_waiting_is_not_flight() -> None:
    waiting = serve("b", [], 1.0, total_s=3.0)
    queued = msgspec.structs.replace(waiting.trace or Trace(), queued_s=1.0)
    both = [serve("a", [], 0.0, total_s=3.0), msgspec.structs.replace(waiting, trace=queued)]
    parts = attribute([make_request("a"), make_request("b")], both, 5.0, "in_flight")
    assert [one.device_s for one in parts.used] == [pytest.approx(2.5), pytest.approx(1.5)]
    assert parts.unattributed_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("generation", "reason"),
    [
        (serve("a", [0.1, -0.2]), "negative"),
        (serve("a", [0.1, math.nan]), "not finite"),
        (serve("a", [0.0, 0.0]), "missing"),
        (serve("a", []), "no steps"),
        (serve("a", [9.0, 9.0]), "exceed"),
        (Generation(request_id="a", finish="eos", token_ids=(1,)), "no steps"),
    ],
)
def test_a_trace_that_cannot_be_true_is_named_and_its_time_stays_unattributed(
    generation: Generation, reason: str
) -> None:
    parts = attribute([make_request("a")], [generation], 1.0, "steps")
    assert reason in parts.problems["a"]
    assert parts.unattributed_s == pytest.approx(1.0)


@pytest.mark.parametrize("total", [None, -1.0, math.inf, 0.0])
def test_a_server_without_usable_times_is_named(total: float | None) -> None:
    trace = Trace(total_s=total)
    generation = Generation(request_id="a", finish="eos", token_ids=(1,), trace=trace)
    assert "time" in attribute([make_request("a")], [generation], 1.0, "in_flight").problems["a"]


def test_a_block_without_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        attribute([make_request("a")], [], 0.0, "steps")


def test_the_report_s_parts_add_up_to_the_run() -> None:
    parts = compare()["device_seconds", "all"].detail["conservation"]
    assert isinstance(parts, dict)
    for arm in parts.values():
        total = arm["served_s"] + arm["failed_s"] + arm["unattributed_s"]
        assert math.isclose(total, arm["run_s"])


# ---------------------------------------------------------------- the fleet


@pytest.mark.parametrize("share", MIXES)
def test_a_class_that_loses_fails_the_gate_whatever_the_blend_and_is_routed_away(
    share: float,
) -> None:
    found, verdicts, gain = judge_fleet(share, 20, np.random.default_rng(2))
    by_class = {(v.criterion, v.group): v.outcome for v in verdicts}
    assert gain is Outcome.FAIL
    assert by_class["cost by class", SHORT] is Outcome.FAIL
    assert by_class["cost by class", LONG] is Outcome.PASS
    routing = find(found)["routing", "all"]
    assert routing.detail["chosen"] == [LONG]
    assert routing.difference is not None
    assert routing.difference.interval[1] is not None
    assert routing.difference.interval[1] < 1.0


def test_the_report_names_the_loss_that_a_winning_blend_hides() -> None:
    whole = compare({LONG: 0.1, SHORT: 0.9})["device_seconds", "all"]
    assert whole.difference is not None
    assert whole.difference.statistic < 1.0
    assert whole.detail["hidden_by_blend"] == [SHORT]


def test_a_win_on_a_tenth_of_equal_requests_and_a_loss_on_the_rest_is_a_loss() -> None:
    kinds = (KINDS[0]._replace(n_tokens=60, tokens_per_step=1.6), KINDS[1]._replace(n_tokens=60))
    blocks = simulate(20, np.random.default_rng(3), kinds)
    shares = {LONG: 0.1, SHORT: 0.9}
    whole = find(compare_economics(blocks, shares, EconomicsConfig(), "steps"))
    estimate = whole["device_seconds", "all"].difference
    assert estimate is not None
    assert estimate.interval[0] is not None
    assert estimate.interval[0] > 1.0
    assert whole["device_seconds", LONG].difference.interval[1] < 1.0  # type: ignore[union-attr,operator]


def test_costs_margins_and_the_month_follow_from_seconds_and_price() -> None:
    found = compare(
        device_hour_usd=3600.0,
        n_devices=2,
        revenue_usd={"default": 50.0},
        requests_per_month=1000.0,
        monthly_cost_usd=5.0,
    )
    seconds, cost = found["device_seconds", "all"], found["cost_per_request", "all"]
    assert cost.candidate == pytest.approx(2.0 * (seconds.candidate or 0.0))
    margin = found["margin_per_request", "all"]
    assert margin.candidate == pytest.approx(50.0 - (cost.candidate or 0.0))
    month = seconds.detail["monthly"]
    assert isinstance(month, dict)
    saved = (cost.baseline or 0.0) - (cost.candidate or 0.0)
    assert month["saving_usd"][0] == pytest.approx(1000.0 * saved - 5.0)
    assert month["volume_to_break_even"] == pytest.approx(5.0 / saved)


def test_without_a_price_no_cost_is_shown_and_the_key_is_named() -> None:
    cost = compare()["cost_per_request", "all"]
    assert (cost.difference, "device_hour_usd" in (cost.note or "")) == (None, True)


def test_a_class_with_one_request_has_no_interval_and_is_named() -> None:
    block = simulate(20, np.random.default_rng(4))[0]
    only = [r for r in block.requests if r.request_class == LONG or r.id == f"{SHORT}/0/0"]
    found = find(
        compare_economics([block._replace(requests=only)], HALVES, EconomicsConfig(), "steps")
    )
    whole = found["device_seconds", "all"]
    assert whole.difference is not None
    assert whole.difference.interval == (None, None)
    assert SHORT in (whole.note or "")


def test_a_class_with_traffic_that_nobody_timed_leaves_the_whole_unmeasured() -> None:
    whole = compare({LONG: 0.4, SHORT: 0.4, "other": 0.2})
    assert whole["device_seconds", "all"].difference is None
    assert "other" in (whole["device_seconds", "all"].note or "")
    assert "other" in (whole["routing", "all"].note or "")


def test_mixed_blocks_count_every_request_once() -> None:
    blocks = simulate(20, np.random.default_rng(5))
    whole = compare_whole(blocks, "steps")[0]
    assert whole.group == "mixed"
    assert whole.difference is not None
    assert whole.difference.n == 40
    assert compare_whole([], "steps") == []


# -------------------------------------------------------------- closed forms


def test_a_trace_of_known_acceptance_breaks_even_where_the_closed_form_says() -> None:
    detail = compare()["device_seconds", SHORT].detail
    assert detail["step_cost_ratio"][0] == pytest.approx(COST, rel=0.03)  # type: ignore[index]
    assert detail["tokens_per_step"] == pytest.approx(KINDS[1].tokens_per_step, rel=0.03)
    even = detail["break_even"]
    assert isinstance(even, dict)
    assert even["tokens_per_step"] == pytest.approx(COST, rel=0.03)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.001, 1), st.floats(1.01, 4), st.floats(1.01, 8), st.floats(0, 2))
def test_at_the_break_even_length_both_arms_cost_the_same(
    step: float, cost: float, tokens: float, extra: float
) -> None:
    costs = StepCosts(
        step_s=step, candidate_step_s=step * cost, tokens_per_step=tokens, extra_s=extra
    )
    length = breakeven.find_length(costs)
    if length is not None:
        both = length * step, extra + length / tokens * step * cost
        assert both[0] == pytest.approx(both[1])


@settings(max_examples=50, deadline=None)
@given(st.floats(0.001, 1), st.floats(1.01, 4), st.floats(0, 0.5), st.floats(10, 500))
def test_at_the_break_even_acceptance_both_arms_cost_the_same(
    step: float, cost: float, extra: float, length: float
) -> None:
    costs = StepCosts(step_s=step, candidate_step_s=step * cost, tokens_per_step=1.0, extra_s=extra)
    tokens = breakeven.find_tokens_per_step(costs, length)
    if tokens is not None:
        assert length * step == pytest.approx(extra + length / tokens * step * cost)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.0, 1.0), st.integers(1, 12))
def test_acceptance_and_tokens_per_step_of_a_chain_are_each_other_s_inverse(
    acceptance: float, n_drafted: int
) -> None:
    tokens = breakeven.expected_tokens(acceptance, n_drafted)
    found = breakeven.find_acceptance(tokens, n_drafted)
    assert found is not None
    assert breakeven.expected_tokens(found, n_drafted) == pytest.approx(tokens)


def test_a_chain_of_draws_has_the_expected_tokens_against_simulation() -> None:
    rng = np.random.default_rng(0)
    runs = (rng.random((20_000, 4)) < 0.7).cumprod(axis=1).sum(axis=1) + 1
    assert breakeven.expected_tokens(0.7, 4) == pytest.approx(runs.mean(), abs=0.03)


def test_the_length_pays_on_the_side_that_is_named() -> None:
    def name(cost: float, extra: float) -> str:
        costs = StepCosts(step_s=1.0, candidate_step_s=cost, tokens_per_step=2.0, extra_s=extra)
        length = breakeven.find_length(costs)
        side = breakeven.name_lengths(costs)
        if length is not None:
            longer = 2 * length
            saves = longer * 1.0 > extra + longer * cost / 2
            assert saves == (side == "from")
        return side

    assert [name(1.0, 5.0), name(4.0, -5.0)] == ["from", "up to"]
    assert [name(1.0, 0.0), name(1.0, -5.0), name(4.0, 0.0), name(4.0, 5.0)] == [
        "always",
        "always",
        "never",
        "never",
    ]


def test_the_share_of_drafts_that_breaks_even_brings_the_tokens_that_are_needed() -> None:
    assert breakeven.find_draft_share(2.5, 15.0) == pytest.approx(0.1)
    assert breakeven.find_draft_share(0.9, 15.0) == 0.0
    assert breakeven.find_draft_share(4.0, 2.0) is None
    assert breakeven.find_draft_share(4.0, 0.0) is None


def test_the_noise_of_two_prefills_makes_no_break_even_length() -> None:
    detail = compare()["device_seconds", LONG].detail
    even, costs = detail["break_even"], detail["costs"]
    assert isinstance(even, dict)
    assert isinstance(costs, dict)
    assert (costs["extra_s"], even["length"], even["lengths"]) == (0.0, None, "always")


def test_at_the_break_even_mix_the_blend_saves_nothing() -> None:
    share = breakeven.find_mix(3.0, -0.5)
    assert share is not None
    assert share * 3.0 + (1 - share) * -0.5 == pytest.approx(0.0)
    assert breakeven.find_mix(-1.0, -0.5) is None
    assert breakeven.find_volume(100.0, 0.0) is None


# ------------------------------------------------------------------ strata


def draw_strata(rng: np.random.Generator, sizes: tuple[int, ...], ratio: float) -> list[Moments]:
    found = []
    for k, n in enumerate(sizes):
        x = rng.lognormal(k, 0.3, n)
        y = ratio * x * rng.lognormal(0.0, 0.1, n) / math.exp(0.005)
        found.append(read_moments(str(k), 1.0 / len(sizes), x, y))
    return found


def test_the_stratified_ratio_holds_its_level_in_simulation() -> None:
    rng = np.random.default_rng(7)
    inside, n = 0, 600
    for _ in range(n):
        low, high = stratified_ratio(draw_strata(rng, (4, 6, 10), 0.9)).interval
        inside += low is not None and high is not None and low <= 0.9 <= high
    assert inside >= 0.93 * n


def test_one_stratum_is_fieller_s_interval() -> None:
    from gate.measures.means import ratio_of_means  # noqa: PLC0415

    x, y = np.array([1.0, 2.0, 4.0, 3.0]), np.array([1.1, 1.8, 4.4, 3.1])
    ours = stratified_ratio([read_moments("a", 1.0, x, y)])
    assert ours.interval == pytest.approx(ratio_of_means(x, y).interval)


@pytest.mark.parametrize("shares", [(0.0, 0.0), (-0.5, 1.5)])
def test_shares_without_traffic_are_refused(shares: tuple[float, float]) -> None:
    two = [Moments(name=str(s), share=s, n=3, baseline=1.0, candidate=1.0) for s in shares]
    with pytest.raises(ValueError, match="shares"):
        weigh(two)


# ----------------------------------------------------------------- routing


def test_routing_everything_is_the_candidate_and_nothing_is_the_baseline() -> None:
    moments = draw_strata(np.random.default_rng(0), (8, 8, 8), 0.8)
    before, after = weighted_means(moments)
    assert blend(moments, ["0", "1", "2"]).statistic == pytest.approx(after / before)
    nothing = blend(moments, [])
    assert (nothing.statistic, nothing.interval) == (1.0, (1.0, 1.0))


def test_classes_are_chosen_by_chance_no_more_often_than_the_level_says() -> None:
    rng = np.random.default_rng(11)
    wrong = sum(bool(choose_classes(draw_strata(rng, (6,) * 8, 1.0)).chosen) for _ in range(300))
    assert wrong <= 300 * 0.05 + 3 * math.sqrt(300 * 0.05)


def test_the_routed_bound_covers_the_truth_although_the_classes_were_chosen() -> None:
    rng = np.random.default_rng(13)
    missed = 0
    for _ in range(200):
        moments = draw_strata(rng, (6, 6, 6), 0.95)
        chosen = choose_classes(moments).chosen
        truth = 1.0 - 0.05 * _cost_share(moments, chosen)
        high = blend(moments, chosen).interval[1]
        missed += high is not None and high < truth - 1e-9
    assert missed <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05)


def _cost_share(moments: list[Moments], chosen: tuple[str, ...]) -> float:
    costs = {one.name: one.share * one.baseline for one in moments}
    return sum(costs[name] for name in chosen) / sum(costs.values())


def test_a_class_that_does_not_tell_stays_with_the_baseline_and_says_so() -> None:
    one = Moments(name="a", share=1.0, n=1, baseline=1.0, candidate=0.1)
    routing = choose_classes([one])
    assert routing.chosen == ()
    assert "do not tell" in routing.kept["a"]
    assert estimate_ratio([one], 0.95).interval == (None, None)


# ------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device_hour_usd", 0.0),
        ("device_hour_usd", -1.0),
        ("device_hour_usd", math.nan),
        ("n_devices", 0),
        ("traffic", {"a": 0.5, "b": 0.4}),
        ("traffic", {"a": 1.5, "b": -0.5}),
        ("revenue_usd", {"a": -1.0}),
        ("requests_per_month", 0.0),
        ("monthly_cost_usd", -1.0),
    ],
)
def test_an_impossible_price_share_or_volume_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=key):
        msgspec.convert({key: value}, EconomicsConfig)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("concurrency", 0),
        ("arrival_rate_per_s", 0.0),
        ("mixed_requests", -1),
        ("timeout_s", 0.0),
        ("production_batch", -1),
        ("sweep_waves", 1),
        ("sweep_tokens", 0),
    ],
)
def test_an_impossible_load_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=key):
        msgspec.convert({key: value}, ServingConfig)


def test_the_step_of_the_fleet_costs_what_it_was_given() -> None:
    detail = compare()["device_seconds", LONG].detail
    assert detail["costs"]["step_s"] == pytest.approx(STEP_S, rel=0.03)  # type: ignore[index]
    assert ServedBlock([], {}, {}).requests == []

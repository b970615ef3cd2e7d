"""Times from traces: paired ratios, no figure without times, nothing hidden by one order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from gate.measures.means import ratio_of_means
from gate.measures.serving import TimingBlock, compare_serving, list_percentiles
from gate.records import Comparison, Estimate, Generation, Request, Trace, Usage

MEASURES = (
    "time_ratio",
    "latency",
    "ttft",
    "tpot",
    "chunk_gap",
    "worst_gap",
    "tokens_per_second",
)
Times = Sequence[float | None]


def generate(
    request_id: str, total_s: float | None, ttft_s: float | None = None, n_tokens: int | None = 10
) -> Generation:
    return Generation(
        request_id=request_id,
        finish="eos",
        token_ids=None if n_tokens is None else tuple(range(n_tokens)),
        trace=Trace(total_s=total_s, ttft_s=ttft_s),
    )


def block(name: str, request_class: str, baseline: Times, candidate: Times) -> TimingBlock:
    requests = [
        Request(
            id=f"{name}/{i}",
            task="timing",
            request_class=request_class,
            prompt="prompt",
            max_tokens=8,
        )
        for i in range(len(baseline))
    ]
    by_arm = {
        arm: [generate(one.id, time) for one, time in zip(requests, times, strict=True)]
        for arm, times in (("baseline", baseline), ("candidate", candidate))
    }
    return by_arm, requests


def join(*blocks: TimingBlock) -> TimingBlock:
    return (
        {
            arm: [g for by_arm, _ in blocks for g in by_arm[arm]]
            for arm in ("baseline", "candidate")
        },
        [request for _, requests in blocks for request in requests],
    )


def compare(
    blocks: Sequence[TimingBlock], shares: dict[str, float] | None = None
) -> dict[tuple[str, str], Comparison]:
    return {(one.measure, one.group): one for one in compare_serving(blocks, shares)}


def estimate(comparison: Comparison) -> Estimate:
    assert comparison.difference is not None
    return comparison.difference


# ---------------------------------------------------------------- no evidence


def test_no_blocks_are_no_evidence() -> None:
    found = compare([])
    assert set(found) == {(measure, "all") for measure in MEASURES}
    for one in found.values():
        assert (one.difference, one.baseline, one.candidate) == (None, None, None)
        assert one.note == "no pair was timed in both arms"


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (None, "no time in the candidate"),
        (0.0, "a time that is not above 0 in the candidate"),
        (-1.0, "a time that is not above 0 in the candidate"),
        (float("nan"), "a time that is not above 0 in the candidate"),
        (float("inf"), "a time that is not above 0 in the candidate"),
    ],
)
def test_times_that_are_none_drop_their_pairs(time: float | None, reason: str) -> None:
    one = compare([block("a", "code", [1.0, 1.0], [time, time])])["time_ratio", "all"]
    assert one.difference is None
    assert one.drop_reasons == {reason: 2}
    assert one.n_dropped == 2


def test_a_failed_arm_drops_the_pair_whatever_its_time() -> None:
    by_arm, requests = block("a", "code", [1.0, 2.0, 3.0], [0.5, 1.0, 1.5])
    failed = Generation(
        request_id="a/0", finish="error", error="timeout", trace=Trace(total_s=0.001)
    )
    candidate = [failed, by_arm["candidate"][1]]
    one = compare([({"baseline": by_arm["baseline"], "candidate": candidate}, requests)])
    ratio = one["time_ratio", "code"]
    assert ratio.detail["n"] == 1
    assert ratio.drop_reasons == {
        "a failed request in the candidate": 1,
        "no generation in the candidate": 1,
    }


def test_a_generation_without_a_trace_has_no_time() -> None:
    by_arm, requests = block("a", "code", [1.0], [1.0])
    bare = [Generation(request_id="a/0", finish="eos")]
    one = compare([({"baseline": bare, "candidate": by_arm["candidate"]}, requests)])
    assert one["time_ratio", "all"].drop_reasons == {"no time in the baseline": 1}


def test_one_pair_bounds_nothing() -> None:
    one = compare([block("a", "code", [2.0], [1.0])])["time_ratio", "code"]
    assert estimate(one).statistic == 0.5
    assert estimate(one).interval == (None, None)


# --------------------------------------------------------------------- ratios


def test_the_time_ratio_against_fieller_with_a_bound_on_each_side() -> None:
    rng = np.random.default_rng(3)
    baseline = rng.uniform(1.0, 3.0, 24)
    candidate = baseline * rng.uniform(0.5, 0.7, 24)
    halves = [
        block("a", "code", list(baseline[:12]), list(candidate[:12])),
        block("b", "code", list(baseline[12:]), list(candidate[12:])),
    ]
    one = compare(halves)["time_ratio", "all"]
    expected = ratio_of_means(baseline, candidate, 0.90)
    assert estimate(one).interval == pytest.approx(expected.interval)
    assert estimate(one).statistic == pytest.approx(candidate.sum() / baseline.sum())
    assert estimate(one).confidence_level == 0.95
    assert "one-sided bound" in estimate(one).method
    assert one.baseline == pytest.approx(baseline.mean())
    assert (one.unit, one.note) == ("ratio", None)


def test_each_class_has_its_own_ratio() -> None:
    mixed = join(
        block("a", "code", [1.0, 2.0], [0.5, 1.0]), block("b", "chat", [1.0, 1.0], [3.0, 3.5])
    )
    found = compare([mixed])
    assert estimate(found["time_ratio", "code"]).statistic == pytest.approx(0.5)
    assert estimate(found["time_ratio", "chat"]).statistic == pytest.approx(3.25)


def test_all_weighs_classes_by_their_traffic() -> None:
    code = block("a", "code", [1.0] * 6, [0.5] * 6)
    chat = block("b", "chat", [1.0, 1.0], [2.0, 2.0])
    one = compare([join(code, chat)], {"code": 0.25, "chat": 0.75})["time_ratio", "all"]
    assert estimate(one).statistic == pytest.approx(0.25 * 0.5 + 0.75 * 2.0)
    assert one.baseline == pytest.approx(1.0)
    assert one.detail["weighted_by_traffic"] is True


def test_a_class_that_was_not_timed_is_named() -> None:
    one = compare([block("a", "code", [1.0, 2.0], [1.0, 1.0])], {"code": 0.5, "chat": 0.5})
    assert "no pair was timed in chat" in (one["time_ratio", "all"].note or "")
    assert "chat" not in (one["time_ratio", "code"].note or "")


def test_orders_are_shown_apart_and_one_order_is_named() -> None:
    first = block("a", "code", [1.0, 2.0], [0.5, 1.0])
    second = block("b", "code", [1.0, 2.0], [2.0, 4.0])
    one = compare([first, second])["time_ratio", "all"]
    assert one.detail["by_order"] == {
        "baseline_first": pytest.approx(0.5),
        "candidate_first": pytest.approx(2.0),
    }
    assert one.note is None
    assert "one order only" in (compare([first])["time_ratio", "all"].note or "")


def test_latency_is_the_geometric_mean_of_ratios() -> None:
    one = compare([block("a", "code", [1.0, 1.0, 1.0], [0.5, 0.5, 4.0])])["latency", "all"]
    assert estimate(one).statistic == pytest.approx(1.0)
    assert one.candidate == pytest.approx(1.0)


def test_a_first_token_after_the_last_is_no_time() -> None:
    _, requests = block("a", "code", [1.0], [1.0])
    arms = {
        "baseline": [generate("a/0", 1.0, 0.2)],
        "candidate": [generate("a/0", 1.0, 1.5)],
    }
    one = compare([(arms, requests)])["ttft", "all"]
    assert one.drop_reasons == {"a first token after the last one in the candidate": 1}


def test_ttft_and_time_per_output_token_follow_their_formulas() -> None:
    _, requests = block("a", "code", [1.0, 1.0], [1.0, 1.0])
    arms = {
        "baseline": [generate("a/0", 1.0, 0.1), generate("a/1", 2.0, 0.2)],
        "candidate": [generate("a/0", 1.0, 0.2), generate("a/1", 2.0, 0.2, n_tokens=1)],
    }
    found = compare([(arms, requests)])
    assert estimate(found["ttft", "all"]).statistic == pytest.approx(0.4 / 0.3)
    tpot = found["tpot", "all"]
    assert tpot.baseline == pytest.approx(0.9 / 9)
    assert tpot.drop_reasons == {"fewer than two tokens counted in the candidate": 1}


def test_tokens_are_counted_from_ids_then_as_reported() -> None:
    _, requests = block("a", "code", [1.0, 1.0], [1.0, 1.0])
    reported = Generation(
        request_id="a/1",
        finish="eos",
        usage=Usage(n_prompt=3, n_output=20),
        trace=Trace(total_s=2.0),
    )
    arms = {
        "baseline": [generate("a/0", 2.0), reported],
        "candidate": [generate("a/0", 1.0), generate("a/1", 1.0, n_tokens=None)],
    }
    one = compare([(arms, requests)])["tokens_per_second", "all"]
    assert (one.baseline, one.candidate) == (5.0, 10.0)
    assert one.drop_reasons == {"no token counted in the candidate": 1}
    assert one.direction == "higher_is_better"


# ---------------------------------------------------------------- percentiles


def test_a_percentile_is_shown_only_where_its_bounds_exist() -> None:
    for n, names in (
        (4, set()),
        (5, {"p50"}),
        (59, {"p50", "p90", "p95"}),
        (298, {"p50", "p90", "p95"}),
    ):
        assert set(list_percentiles(np.arange(1.0, n + 1), 0.95)) == names
    assert set(list_percentiles(np.arange(1.0, 300.0), 0.95)) == {"p50", "p90", "p95", "p99"}


def test_percentiles_of_both_arms_come_with_the_time_ratio() -> None:
    times = [float(i) for i in range(1, 10)]
    one = compare([block("a", "code", times, times)])["time_ratio", "all"]
    percentiles = one.detail["percentiles"]
    assert isinstance(percentiles, dict)
    value, low, high = percentiles["baseline"]["p50"]
    assert low <= value == 5.0 <= high
    assert percentiles["baseline"] == percentiles["candidate"]


def test_comparisons_are_plain_json() -> None:
    found = compare([block("a", "code", [1.0, 2.0, None], [1.0, 1.5, 2.0])], {"code": 1.0})
    assert b"NaN" not in msgspec.json.encode(list(found.values()))

"""Paired means and ratios: held to scipy, to theory, and to a simulation of their coverage."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as dist

from gate.measures import means
from gate.measures.stats import Side, clopper_pearson

if TYPE_CHECKING:
    from collections.abc import Callable

    from gate.records import Estimate

SIDES: tuple[Side, ...] = get_args(Side)
N_REPLICATES = 5000


def contains(estimate: Estimate, truth: float) -> bool:
    low, high = estimate.interval
    return (low is None or low <= truth) and (high is None or truth <= high)


def simulate_coverage(estimate: Callable[[], Estimate], truth: float) -> float:
    return sum(contains(estimate(), truth) for _ in range(N_REPLICATES)) / N_REPLICATES


def limit(estimate: Estimate, index: int) -> float:
    found = estimate.interval[index]
    assert found is not None
    return found


# --------------------------------------------------------------- paired means


@pytest.mark.parametrize("side", SIDES)
def test_paired_mean_against_scipy(side: Side) -> None:
    diffs = np.random.default_rng(1).normal(0.2, 1, 37)
    alternative = {"two-sided": "two-sided", "upper": "less", "lower": "greater"}[side]
    expected = dist.ttest_1samp(diffs, 0.0, alternative=alternative).confidence_interval(0.95)
    for ours, theirs in zip(
        means.paired_mean_difference(diffs, 0.95, side).interval, expected, strict=True
    ):
        assert (ours is None) == (not math.isfinite(theirs))
        assert ours is None or ours == pytest.approx(theirs)
    pvalue = means.paired_mean_difference(diffs, 0.95, side).pvalue
    assert pvalue == pytest.approx(dist.ttest_1samp(diffs, 0.0).pvalue)


def test_all_zero_differences_are_bounded_by_the_share_that_could_differ() -> None:
    estimate = means.paired_mean_difference(np.zeros(200), 0.95, "upper", score_range=1.0)
    assert estimate.interval[0] is None
    assert estimate.interval[1] == pytest.approx(0.01487, abs=5e-6)
    assert estimate.pvalue == 1.0
    assert means.paired_mean_difference(np.zeros(200)).interval == (None, None)


def test_equal_differences_get_no_interval_of_width_zero() -> None:
    estimate = means.paired_mean_difference(np.full(20, 0.5), score_range=1.0)
    share = limit(clopper_pearson(0, 20), 1)
    assert estimate.interval == pytest.approx((0.5 - share * 1.5, 0.5 + share * 0.5))
    assert estimate.pvalue == pytest.approx(2 * 0.5**20)
    assert means.paired_mean_difference(np.full(3, 0.1)).interval == (None, None)


def test_one_pair_is_unbounded() -> None:
    estimate = means.paired_mean_difference([0.3], score_range=1.0)
    assert (estimate.statistic, estimate.interval, estimate.pvalue) == (0.3, (None, None), None)


def test_differences_beyond_the_score_range_are_refused() -> None:
    with pytest.raises(ValueError, match="exceeds score_range"):
        means.paired_mean_difference([0.0, 2.0], score_range=1.0)
    with pytest.raises(ValueError, match="non-empty"):
        means.paired_mean_difference([])


def test_paired_t_covers_by_simulation() -> None:
    rng = np.random.default_rng(2)
    coverage = simulate_coverage(lambda: means.paired_mean_difference(rng.normal(0.3, 1, 8)), 0.3)
    assert 0.94 <= coverage <= 0.97


@pytest.mark.parametrize("rate", [0.01, 0.03])
def test_rare_differences_are_covered_by_simulation(rate: float) -> None:
    rng = np.random.default_rng(3)

    def draw() -> Estimate:
        diffs = (rng.random(100) < rate) * rng.uniform(0.2, 1.0, 100)
        return means.paired_mean_difference(diffs, 0.95, "upper", score_range=1.0)

    assert simulate_coverage(draw, 0.6 * rate) >= 0.945


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=40), st.sampled_from(SIDES), st.integers(1, 12)
)
def test_mean_intervals_contain_the_mean_and_no_nan(
    diffs: list[float], side: Side, n_clusters: int
) -> None:
    clusters = np.arange(len(diffs)) % n_clusters
    for estimate in (
        means.paired_mean_difference(diffs, 0.95, side, score_range=1.0),
        means.clustered_mean_difference(diffs, clusters, 0.95, side, score_range=1.0),
    ):
        assert contains(estimate, estimate.statistic)
        assert not any(x is not None and math.isnan(x) for x in estimate.interval)
        assert estimate.pvalue is None or 0.0 <= estimate.pvalue <= 1.0


# ------------------------------------------------------------------- clusters


def test_clusters_of_one_give_the_paired_interval() -> None:
    diffs = np.random.default_rng(4).normal(size=25)
    plain = means.paired_mean_difference(diffs)
    clustered = means.clustered_mean_difference(diffs, np.arange(25))
    assert clustered.interval == pytest.approx(plain.interval)
    assert clustered.pvalue == pytest.approx(plain.pvalue)


def test_even_clusters_against_t_on_cluster_means() -> None:
    diffs, clusters = np.random.default_rng(5).normal(size=60), np.repeat(np.arange(12), 5)
    expected = dist.ttest_1samp(diffs.reshape(12, 5).mean(axis=1), 0.0).confidence_interval(0.95)
    estimate = means.clustered_mean_difference(diffs, clusters)
    assert estimate.interval == pytest.approx((expected.low, expected.high))
    assert estimate.method == "CR1 over 12 clusters with t(11), two-sided interval"


def test_fewer_than_8_clusters_are_unbounded_and_say_so() -> None:
    estimate = means.clustered_mean_difference(np.arange(14.0), np.arange(14) % 7)
    assert estimate.interval == (None, None)
    assert "needs 8 clusters, has 7" in estimate.method


def test_equal_clusters_are_bounded_over_clusters_not_items() -> None:
    diffs, clusters = np.zeros(100), np.repeat(np.arange(10), 10)
    estimate = means.clustered_mean_difference(diffs, clusters, 0.95, "upper", score_range=1.0)
    assert estimate.interval[1] == clopper_pearson(0, 10, 0.95, "upper").interval[1]


def test_cluster_keys_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="one key for each of 3"):
        means.clustered_mean_difference([1.0, 2.0, 3.0], [0, 1])


@pytest.mark.parametrize(("n_clusters", "even"), [(8, True), (20, True), (50, True), (8, False)])
def test_clustered_interval_covers_by_simulation(n_clusters: int, even: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(n_clusters)

    def draw() -> Estimate:
        sizes = np.full(n_clusters, 6) if even else rng.integers(1, 20, n_clusters)
        clusters = np.repeat(np.arange(n_clusters), sizes)
        shared = rng.normal(0.0, math.sqrt(0.7), n_clusters)[clusters]
        return means.clustered_mean_difference(
            shared + rng.normal(0.0, math.sqrt(0.3), clusters.size), clusters
        )

    assert 0.94 <= simulate_coverage(draw, 0.0) <= 0.97


# --------------------------------------------------------------------- ratios


def draw_timings(rng: np.random.Generator, n: int, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Lognormal times that share the request's size and differ by noise of 10 and 30%."""
    size = rng.lognormal(0.0, 0.5, n)
    noise = rng.lognormal(-(0.3**2) / 2, 0.3, n)
    return size * rng.lognormal(0.0, 0.1, n), ratio * size * noise * rng.lognormal(0.0, 0.1, n)


@pytest.mark.parametrize("n", [8, 20, 60])
def test_ratio_of_means_covers_by_simulation(n: int) -> None:
    rng = np.random.default_rng(n)
    coverage = simulate_coverage(lambda: means.ratio_of_means(*draw_timings(rng, n, 0.8)), 0.8)
    assert 0.94 <= coverage <= 0.97


def test_fieller_limits_are_where_the_t_test_turns() -> None:
    baseline, candidate = draw_timings(np.random.default_rng(6), 15, 0.7)
    for bound in means.ratio_of_means(baseline, candidate).interval:
        assert bound is not None
        assert dist.ttest_1samp(candidate - bound * baseline, 0.0).pvalue == pytest.approx(0.05)


def test_swapping_the_arms_inverts_the_ratio() -> None:
    baseline, candidate = draw_timings(np.random.default_rng(7), 15, 0.7)
    forward = means.ratio_of_means(baseline, candidate)
    back = means.ratio_of_means(candidate, baseline)
    assert back.statistic == pytest.approx(1 / forward.statistic)
    inverted = (1 / limit(forward, 1), 1 / limit(forward, 0))
    assert back.interval == pytest.approx(inverted)
    assert back.pvalue == pytest.approx(forward.pvalue)


def test_ratio_without_spread_or_with_a_baseline_near_zero_is_unbounded() -> None:
    assert means.ratio_of_means([2.0], [1.0]).interval == (None, None)
    constant = means.ratio_of_means([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    assert (constant.statistic, constant.interval) == (2.0, (None, None))
    same = means.ratio_of_means([1.0, 2.0], [1.0, 2.0])
    assert (same.statistic, same.interval, same.pvalue) == (1.0, (None, None), None)
    assert means.ratio_of_means([0.0, 0.0, 9.0], [1.0, 2.0, 1.0]).interval == (None, None)


def test_geometric_mean_ratio_against_scipy() -> None:
    baseline, candidate = draw_timings(np.random.default_rng(8), 15, 0.7)
    logs = np.log(candidate / baseline)
    expected = dist.ttest_1samp(logs, 0.0).confidence_interval(0.95)
    estimate = means.geometric_mean_ratio(baseline, candidate)
    assert estimate.statistic == pytest.approx(dist.gmean(candidate / baseline))
    assert estimate.interval == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert means.geometric_mean_ratio(baseline, candidate, 0.95, "upper").interval[0] is None


def test_ratios_refuse_values_they_cannot_take() -> None:
    for baseline, candidate in (([-1.0], [1.0]), ([0.0], [1.0])):
        with pytest.raises(ValueError, match="ratio"):
            means.ratio_of_means(baseline, candidate)
        with pytest.raises(ValueError, match="positive"):
            means.geometric_mean_ratio(baseline, candidate)


@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=1, max_size=20),
    st.sampled_from(SIDES),
)
def test_ratio_intervals_contain_the_ratio(pairs: list[tuple[float, float]], side: Side) -> None:
    baseline, candidate = np.array(pairs).T
    estimate = means.ratio_of_means(baseline, candidate, 0.95, side)
    assert contains(estimate, estimate.statistic)
    assert not any(x is not None and math.isnan(x) for x in estimate.interval)

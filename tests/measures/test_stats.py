"""Proportions, paired flips, percentiles, Holm: held to scipy, to published figures, to theory."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as dist
from scipy.optimize import brentq

from gate.measures import stats
from gate.measures.stats import Alternative, Side

SIDES: tuple[Side, ...] = get_args(Side)
ALTERNATIVES: tuple[Alternative, ...] = get_args(Alternative)


def flips(n_gained: int, n_lost: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Binary scores of both arms with so many flips."""
    baseline, candidate = np.zeros(n), np.zeros(n)
    candidate[:n_gained] = 1
    baseline[n_gained : n_gained + n_lost] = 1
    return baseline, candidate


# --------------------------------------------------------------- proportions


@pytest.mark.parametrize(("k", "n"), [(0, 1), (0, 200), (3, 7), (7, 7), (41, 300)])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.9999])
def test_clopper_pearson_against_scipy(k: int, n: int, level: float) -> None:
    for side, alternative in zip(SIDES, ("two-sided", "less", "greater"), strict=True):
        expected = dist.binomtest(k, n, alternative=alternative).proportion_ci(level, "exact")
        estimate = stats.clopper_pearson(k, n, level, side)
        assert estimate.interval == pytest.approx((expected.low, expected.high), abs=1e-9)
        assert estimate.statistic == k / n


def test_clopper_pearson_names_the_bounded_side() -> None:
    assert stats.clopper_pearson(0, 3812, 0.95, "upper").method == "Clopper-Pearson, upper bound"
    assert stats.clopper_pearson(0, 3812, 0.95, "upper").interval[1] == pytest.approx(
        8e-4, rel=0.02
    )


@pytest.mark.parametrize("n", [6, 20, 75, 200])
@pytest.mark.parametrize("side", SIDES)
def test_clopper_pearson_covers_at_least_nominal_by_enumeration(n: int, side: Side) -> None:
    limits = [stats.clopper_pearson(k, n, 0.95, side).interval for k in range(n + 1)]
    for p in np.linspace(0.0, 1.0, 101):
        inside = [low <= p <= high for low, high in limits]
        assert float(dist.binom.pmf(np.arange(n + 1), n, p) @ inside) >= 0.95 - 1e-9


def test_rule_of_three_is_close_to_the_exact_bound() -> None:
    for n in (30, 300, 3000):
        exact = stats.clopper_pearson(0, n, 0.95, "upper").interval[1]
        assert stats.rule_of_three(n).interval[1] == pytest.approx(exact, rel=0.06)
    assert stats.rule_of_three(2).interval == (0.0, 1.0)


@pytest.mark.parametrize(("k", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_no_proportion_is_refused(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="is no proportion"):
        stats.clopper_pearson(k, n)


def test_unknown_sides_and_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="choose one of"):
        stats.clopper_pearson(1, 2, 0.95, "both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="between 0 and 1"):
        stats.clopper_pearson(1, 2, 95)


@pytest.mark.parametrize(
    ("k", "n", "p0"), [(0, 10, 0.5), (10, 10, 0.5), (61, 100, 0.5), (3, 9, 0.1)]
)
def test_binomial_excess_against_scipy(k: int, n: int, p0: float) -> None:
    expected = dist.binomtest(k, n, p0, alternative="greater")
    estimate = stats.binomial_excess(k, n, p0)
    assert estimate.pvalue == pytest.approx(expected.pvalue, rel=1e-9)
    assert estimate.interval[0] == pytest.approx(expected.proportion_ci(0.95).low, abs=1e-9)


def test_binomial_excess_refuses_what_is_no_probability() -> None:
    with pytest.raises(ValueError, match="p0"):
        stats.binomial_excess(1, 2, 1.5)


# --------------------------------------------------------------- paired flips


def test_mcnemar_against_published_example() -> None:
    # Fagerland, Lydersen and Laake (2014): airway hyper-responsiveness, 1 against 7 of 21.
    assert stats.mcnemar_pvalue(1, 7) == pytest.approx(0.0703, abs=5e-5)


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_mcnemar_against_scipy(alternative: Alternative) -> None:
    for gained, lost in [(0, 5), (4, 4), (9, 2)]:
        expected = dist.binomtest(gained, gained + lost, alternative=alternative).pvalue
        assert stats.mcnemar_pvalue(gained, lost, alternative) == pytest.approx(expected)
    assert stats.mcnemar_pvalue(0, 0, alternative) == 1.0


def test_no_flip_in_200_bounds_the_loss_at_one_and_a_half_points() -> None:
    baseline = np.r_[np.ones(120), np.zeros(80)]
    upper = stats.paired_binary_difference(baseline, baseline, 0.95, "upper")
    assert upper.interval[0] is None
    assert upper.interval[1] == pytest.approx(0.01487, abs=5e-6)
    lower = stats.paired_binary_difference(baseline, baseline, 0.95, "lower")
    assert lower.interval[0] == pytest.approx(-0.01487, abs=5e-6)
    assert lower.interval[1] is None
    assert upper.pvalue == 1.0


def find_tango_limit(b: int, c: int, n: int, z: float) -> float:
    """Solve Tango's (1998) score equation for the limit at z (upper: negative z)."""

    def score(d: float) -> float:
        linear = -b - c + (2 * n - b + c) * d
        root = math.sqrt(linear**2 + 8 * n * c * d * (1 - d))
        p_lost = (root - linear) / (4 * n)
        return (b - c - n * d) / math.sqrt(n * (2 * p_lost + d * (1 - d))) - z

    return float(brentq(score, -1 + 1e-9, 1 - 1e-9))


def test_tango_limits_against_published_example() -> None:
    # Fagerland, Lydersen and Laake (2014), 1 against 7 of 21: Tango -0.517 to -0.026.
    found = [find_tango_limit(1, 7, 21, z) for z in (1.95996, -1.95996)]
    assert found == pytest.approx([-0.517, -0.026], abs=6e-4)


@pytest.mark.parametrize(("b", "c", "n"), [(3, 9, 200), (1, 2, 60), (0, 4, 100), (30, 45, 1000)])
def test_flip_interval_holds_tangos_and_is_little_wider(b: int, c: int, n: int) -> None:
    low, high = stats.paired_binary_difference(*flips(b, c, n)).interval
    tango = [find_tango_limit(b, c, n, z) for z in (1.95996, -1.95996)]
    assert low is not None
    assert high is not None
    assert low < tango[0] + 0.002
    assert high > tango[1] - 0.002
    assert high - low < 1.3 * (tango[1] - tango[0])


def test_flip_interval_against_normal_theory_in_large_samples() -> None:
    low, high = stats.paired_binary_difference(*flips(600, 400, 20_000)).interval
    std_error = math.sqrt(0.05 - 0.01**2) / math.sqrt(20_000)
    assert low is not None
    assert high is not None
    half_width = (high - low) / 2
    assert 1.0 <= half_width / (1.95996 * std_error) < 1.2


@pytest.mark.parametrize("n", [6, 9, 20, 45, 80])
@pytest.mark.parametrize("tail", [0.05, 0.025])
def test_flip_interval_covers_at_least_nominal_by_enumeration(n: int, tail: float) -> None:
    table = [(b, c, n - b - c) for b in range(n + 1) for c in range(n + 1 - b)]
    highs = np.array([stats.flip_limits(b, c, n, tail)[1] for b, c, _ in table])
    counts, log_ways = np.array(table), [math.lgamma(n + 1)] * len(table)
    log_ways -= np.vectorize(math.lgamma)(counts + 1.0).sum(axis=1)
    rates = [0.0, 0.3 / n, 1 / n, 2 / n, 4 / n, 0.02, 0.1, 0.3, 0.5, 0.8]
    for gain, loss in [(g, ls) for g in rates for ls in rates if g + ls <= 1.0]:
        chances = np.maximum([gain, loss, 1.0 - gain - loss], 1e-300)
        weights = np.exp(log_ways + counts @ np.log(chances))
        assert weights[highs >= gain - loss - 1e-12].sum() >= 1.0 - tail - 1e-9


def test_swapping_the_arms_mirrors_the_flip_interval() -> None:
    low, high = stats.paired_binary_difference(*flips(2, 5, 40)).interval
    mirrored = stats.paired_binary_difference(*flips(5, 2, 40)).interval
    assert low is not None
    assert high is not None
    assert mirrored == pytest.approx((-high, -low))


@given(
    n=st.integers(1, 40),
    gained=st.integers(0, 40),
    lost=st.integers(0, 40),
    side=st.sampled_from(SIDES),
)
def test_flip_interval_contains_the_difference(n: int, gained: int, lost: int, side: Side) -> None:
    gained, lost = min(gained, n), min(lost, n - min(gained, n))
    estimate = stats.paired_binary_difference(*flips(gained, lost, n), 0.95, side)
    low, high = estimate.interval
    assert (low is None) == (side == "upper")
    assert (high is None) == (side == "lower")
    assert -1.0 <= (-1.0 if low is None else low) <= estimate.statistic
    assert estimate.statistic <= (1.0 if high is None else high) <= 1.0


def test_scores_that_are_not_binary_are_refused() -> None:
    with pytest.raises(ValueError, match="0 or 1"):
        stats.paired_binary_difference([0.5], [1])
    with pytest.raises(ValueError, match="pairs 1 baseline with 2"):
        stats.paired_binary_difference([1], [1, 0])
    with pytest.raises(ValueError, match="non-empty"):
        stats.paired_binary_difference([], [])
    with pytest.raises(ValueError, match="finite"):
        stats.paired_binary_difference([math.nan], [1])


# ---------------------------------------------------------------- percentiles


def test_p99_has_an_upper_bound_from_299_values_on() -> None:
    assert stats.percentile_with_interval(np.arange(298), 0.99, 0.95, "upper").interval[1] is None
    assert stats.percentile_with_interval(np.arange(299), 0.99, 0.95, "upper").interval[1] == 298
    assert stats.percentile_with_interval(np.arange(367), 0.99).interval[1] is None
    assert stats.percentile_with_interval(np.arange(368), 0.99).interval[1] == 367


def test_median_interval_against_published_ranks() -> None:
    # Conover, Practical Nonparametric Statistics, table for the median: n = 20, ranks 6 and 15.
    estimate = stats.percentile_with_interval(np.arange(1, 21), 0.5)
    assert estimate.interval == (6.0, 15.0)
    assert estimate.statistic == 10.0


@pytest.mark.parametrize("side", SIDES)
def test_percentile_interval_against_scipy(side: Side) -> None:
    values = np.random.default_rng(0).exponential(size=400)
    alternative = {"two-sided": "two-sided", "upper": "less", "lower": "greater"}[side]
    for q in (0.1, 0.5, 0.9, 0.99):
        test = dist.quantile_test(values, p=q, alternative=alternative)
        expected = test.confidence_interval(0.95)
        found = stats.percentile_with_interval(values, q, 0.95, side).interval
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours is None) == (not np.isfinite(theirs))
            assert ours is None or ours == theirs


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60),
    st.floats(0.01, 0.99),
    st.floats(0.01, 0.999),
    st.sampled_from(SIDES),
)
def test_percentile_lies_in_its_interval(
    values: list[float], q: float, level: float, side: Side
) -> None:
    estimate = stats.percentile_with_interval(values, q, level, side)
    low, high = estimate.interval
    assert estimate.statistic in values
    assert low is None or low <= estimate.statistic
    assert high is None or high >= estimate.statistic


def test_percentile_of_nothing_and_beyond_the_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="non-empty"):
        stats.percentile_with_interval([], 0.5)
    with pytest.raises(ValueError, match="q is 1"):
        stats.percentile_with_interval([1.0], 1.0)


# ------------------------------------------------------- many tests at once


def test_holm_against_published_example() -> None:
    # p.adjust(c(0.01, 0.02, 0.03, 0.04), "holm") in R: 0.04 0.06 0.06 0.06
    assert stats.holm_adjusted([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert stats.holm([0.04, 0.01, 0.03, 0.02], 0.05) == [False, True, False, False]


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.001, 0.2))
def test_holm_against_its_step_down_definition(pvalues: list[float], alpha: float) -> None:
    remaining = sorted(range(len(pvalues)), key=lambda i: pvalues[i])
    expected = [False] * len(pvalues)
    for step, i in enumerate(remaining):
        if pvalues[i] * (len(pvalues) - step) > alpha:
            break
        expected[i] = True
    assert stats.holm(pvalues, alpha) == expected


def test_holm_refuses_what_is_no_pvalue() -> None:
    for bad in (math.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match="p-value"):
            stats.holm_adjusted([bad])

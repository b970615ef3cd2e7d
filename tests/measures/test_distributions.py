"""PIT distance and MMD: held to scipy, to a plain loop, and to simulation."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as dist

from gate.measures.distributions import (
    frequency_excess,
    lag_correlation,
    mmd_permutation,
    pit_distance,
)

if TYPE_CHECKING:
    from gate.records import Estimate


def draw_pit(
    rng: np.random.Generator, n_clusters: int, within: float, shift: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return 50 PIT values a request, correlated and shifted on the normal scale."""
    clusters = np.repeat(np.arange(n_clusters), 50)
    shared = rng.normal(0, np.sqrt(within), n_clusters)[clusters]
    return dist.norm.cdf(shared + rng.normal(shift, np.sqrt(1 - within), clusters.size)), clusters


# ------------------------------------------------------------------------ PIT


def test_pit_distance_against_scipy() -> None:
    pit = np.random.default_rng(1).beta(1.2, 1, 500)
    estimate = pit_distance(pit, np.arange(500))
    assert estimate.statistic == pytest.approx(dist.kstest(pit, "uniform").statistic)


def test_band_of_independent_values_is_near_theory() -> None:
    pit, clusters = draw_pit(np.random.default_rng(2), 400, 0.0)
    estimate = pit_distance(pit, clusters)
    assert estimate.interval[1] is not None
    band = estimate.interval[1] - estimate.statistic
    assert 1.0 <= band / np.sqrt(np.log(2 / 0.05) / (2 * pit.size)) < 1.2


def test_4000_independent_tokens_pass_a_margin_of_five_points() -> None:
    uppers = [
        pit_distance(*draw_pit(np.random.default_rng(seed), 80, 0.0)).interval[1]
        for seed in range(100)
    ]
    assert max(u for u in uppers if u is not None) < 0.05
    assert None not in uppers


@pytest.mark.parametrize(
    ("n_clusters", "within", "shift"), [(8, 0.0, 0.1), (20, 0.3, 0.2), (20, 0.8, 0.4)]
)
def test_pit_bound_covers_by_simulation(n_clusters: int, within: float, shift: float) -> None:
    truth = 2 * dist.norm.cdf(shift / 2) - 1  # largest gap between N(shift, 1) and N(0, 1)
    rng, covered = np.random.default_rng(3), []
    for _ in range(400):
        high = pit_distance(*draw_pit(rng, n_clusters, within, shift)).interval[1]
        covered.append(high is not None and high >= truth)
    assert np.mean(covered) >= 0.95


def test_pit_of_few_requests_is_unbounded_and_out_of_range_is_refused() -> None:
    assert pit_distance([0.1, 0.9], [0, 1]).interval == (0.0, None)
    with pytest.raises(ValueError, match="between 0 and 1"):
        pit_distance([1.5], [0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(1, 20))
def test_pit_bound_is_never_below_the_distance(pit: list[float], n_clusters: int) -> None:
    estimate = pit_distance(pit, np.arange(len(pit)) % n_clusters)
    high = estimate.interval[1]
    assert 0.0 <= estimate.statistic <= 1.0
    assert high is None or estimate.statistic <= high <= 1.0


def test_lag_correlation_finds_repeated_noise_and_nothing_else() -> None:
    rng = np.random.default_rng(4)
    clusters = np.repeat(np.arange(20), 40)
    independent = [lag_correlation(rng.random(800), clusters).pvalue or 0.0 for _ in range(500)]
    assert 0.03 <= np.mean(np.array(independent) <= 0.05) <= 0.075
    repeated = lag_correlation(np.repeat(rng.random(400), 2), clusters)
    assert repeated.interval[0] is not None
    assert repeated.interval[0] > 0.2
    assert repeated.n == 20 * 39


def test_lag_correlation_needs_two_tokens_of_a_request() -> None:
    with pytest.raises(ValueError, match="two tokens 1 apart"):
        lag_correlation([0.1, 0.2], [0, 1])
    with pytest.raises(ValueError, match="two tokens 5 apart"):
        lag_correlation([0.1, 0.2], [0, 0], lag=5)


# ------------------------------------------------------------- token by token


def draw_residuals(
    rng: np.random.Generator, tilt: float = 0.0, n_requests: int = 120
) -> tuple[np.ndarray, np.ndarray]:
    """Draw 20 tokens a request from laws over 8 tokens that are drawn anew; half are favoured."""
    law = rng.dirichlet(np.full(8, 0.8), (n_requests, 20))
    used = law * np.exp(tilt * np.tile([0.5, -0.5], 4))
    below = (used / used.sum(-1, keepdims=True)).cumsum(-1)
    drawn = (rng.random((n_requests, 20, 1)) > below).sum(-1).clip(max=7)
    return (np.eye(8)[drawn] - law).sum(axis=1), law.sum(axis=(0, 1))


def test_token_frequencies_that_follow_their_laws_are_flagged_as_often_as_stated() -> None:
    rng = np.random.default_rng(4)
    pvalues = [frequency_excess(*draw_residuals(rng), rng, 199).pvalue or 0.0 for _ in range(600)]
    flagged = sum(p <= 0.05 for p in pvalues)
    assert dist.binomtest(flagged, 600, 0.05, alternative="greater").pvalue > 1e-3
    assert flagged > 0


def test_the_error_of_token_frequencies_is_estimated_without_bias() -> None:
    rng = np.random.default_rng(5)
    found = [frequency_excess(*draw_residuals(rng, 0.6, 400), rng, 19).statistic for _ in range(60)]
    law = rng.dirichlet(np.full(8, 0.8), 200_000)
    used = law * np.exp(0.6 * np.tile([0.5, -0.5], 4))
    used /= used.sum(-1, keepdims=True)
    expected, actual = law.mean(axis=0), used.mean(axis=0)
    truth = np.sqrt(((actual - expected) ** 2 / expected).sum())
    assert np.mean(np.square(found)) == pytest.approx(truth**2, rel=0.1)


def test_one_request_alone_says_nothing_of_token_frequencies() -> None:
    estimate = frequency_excess(
        np.array([[3.0, -1.0], *[[0.0, 0.0]] * 9]), np.array([10.0, 10.0]), np.random.default_rng(6)
    )
    assert estimate.statistic == 0.0
    assert estimate.pvalue == 1.0


# ------------------------------------------------------------------------ MMD

Texts = list[list[list[int]]]


def draw_texts(rng: np.random.Generator, n_prompts: int, n_repeats: int, skew: float) -> Texts:
    """Return outputs of 4 to 9 tokens from 5; ``skew`` favours the first. Prompts are offset."""
    law = np.full(5, (1 - skew) / 5) + skew * np.eye(5)[0]
    return [
        [
            [int(t) + 10 * prompt for t in rng.choice(5, rng.integers(4, 10), p=law)]
            for _ in range(n_repeats)
        ]
        for prompt in range(n_prompts)
    ]


def compute_mmd(baseline: list[list[int]], candidate: list[list[int]]) -> float:
    """Compute the definition, pair by pair."""

    def kernel(a: list[int], b: list[int]) -> float:
        return sum(x == y for x, y in zip(a, b, strict=False)) / max(len(a), len(b))

    within = [
        np.mean([kernel(a, b) for a, b in itertools.permutations(texts, 2)])
        for texts in (baseline, candidate)
    ]
    across = np.mean([kernel(a, b) for a, b in itertools.product(baseline, candidate)])
    return float(sum(within) - 2 * across)


def test_mmd_against_its_definition() -> None:
    rng = np.random.default_rng(5)
    baseline, candidate = draw_texts(rng, 4, 3, 0.0), draw_texts(rng, 4, 5, 0.5)
    expected = np.mean([compute_mmd(b, c) for b, c in zip(baseline, candidate, strict=True)])
    assert mmd_permutation(baseline, candidate, rng, 10).statistic == pytest.approx(expected)


def test_mmd_holds_its_level_by_simulation() -> None:
    rng = np.random.default_rng(6)
    pvalues = [
        mmd_permutation(draw_texts(rng, 5, 3, 0.2), draw_texts(rng, 5, 3, 0.2), rng, 99).pvalue
        for _ in range(600)
    ]
    assert np.mean(np.array(pvalues) <= 0.05) <= 0.075


def test_mmd_finds_another_law() -> None:
    rng = np.random.default_rng(7)
    found = mmd_permutation(draw_texts(rng, 40, 4, 0.0), draw_texts(rng, 40, 4, 0.4), rng, 2000)
    assert found.pvalue is not None
    assert found.pvalue < 0.001


def test_identical_texts_give_no_evidence() -> None:
    texts: list[list[list[int]]] = [[[1, 2], [1, 2]], [[], []]]
    found: Estimate = mmd_permutation(texts, texts, np.random.default_rng(8), 99)
    assert (found.statistic, found.pvalue, found.n) == (0.0, 1.0, 2)


def test_mmd_refuses_single_repeats_and_unmatched_prompts() -> None:
    rng = np.random.default_rng(9)
    with pytest.raises(ValueError, match="at least 2 repeats"):
        mmd_permutation([[[1]]], [[[1], [2]]], rng)
    with pytest.raises(ValueError, match="give as many"):
        mmd_permutation([], [], rng)


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=4, max_size=6),
        min_size=1,
        max_size=3,
    )
)
def test_mmd_pvalue_lies_between_one_draw_and_one(prompts: Texts) -> None:
    halves = [[p[:2] for p in prompts], [p[2:] for p in prompts]]
    found = mmd_permutation(halves[0], halves[1], np.random.default_rng(10), 19)
    assert found.pvalue is not None
    assert 1 / 20 <= found.pvalue <= 1.0
    assert np.isfinite(found.statistic)

"""Permutation tests: held to scipy, to enumeration, and to a simulation of their level."""

from __future__ import annotations

import itertools
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as dist

from gate.measures.resampling import paired_permutation, two_rate_permutation
from gate.measures.stats import Alternative

ALTERNATIVES: tuple[Alternative, ...] = get_args(Alternative)


def make_rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --------------------------------------------------------------- paired values


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_paired_permutation_against_scipy(alternative: Alternative) -> None:
    diffs = make_rng(1).normal(0.4, 1, 10)
    expected = dist.permutation_test(
        (diffs, np.zeros(10)),
        lambda x, y, axis: (x - y).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
        alternative=alternative,
    )
    estimate = paired_permutation(diffs, make_rng(), alternative=alternative)
    assert estimate.pvalue == pytest.approx(expected.pvalue)
    assert (estimate.interval, estimate.confidence_level) == ((None, None), 1.0)


def test_sampled_and_enumerated_pvalues_agree() -> None:
    diffs = make_rng(2).normal(0.5, 1, 15)
    signs = np.array(list(itertools.product((-1, 1), repeat=15)))
    exact = (np.abs(signs @ diffs) >= abs(diffs.sum()) - 1e-9).mean()
    estimate = paired_permutation(diffs, make_rng(), 40_000)
    assert estimate.pvalue == pytest.approx(exact, abs=0.01)
    assert "random 40000 patterns" in estimate.method


def test_pairs_without_difference_do_not_count() -> None:
    sparse = paired_permutation([1.0, 1.0, 1.0, *[0.0] * 500], make_rng())
    assert sparse.pvalue == 0.25
    assert "all 8 patterns" in sparse.method
    assert paired_permutation(np.zeros(50), make_rng()).pvalue == 1.0


def test_a_cluster_flips_as_one() -> None:
    diffs, clusters = np.ones(100), np.repeat(np.arange(4), 25)
    assert paired_permutation(diffs, make_rng(), clusters=clusters).pvalue == 0.125


def test_a_sampled_pvalue_is_never_zero() -> None:
    assert paired_permutation(np.ones(100), make_rng(), 99).pvalue == 0.01


def test_paired_permutation_is_reproducible() -> None:
    diffs = make_rng(3).normal(size=40)
    first, again = (paired_permutation(diffs, make_rng(7), 200) for _ in range(2))
    assert first == again


def test_paired_permutation_holds_its_level_by_simulation() -> None:
    rng = make_rng(4)
    pvalues = [paired_permutation(rng.normal(size=25), rng, 199).pvalue for _ in range(2000)]
    assert 0.035 <= np.mean(np.array(pvalues) <= 0.05) <= 0.065


# --------------------------------------------------------------- pooled rates


def test_two_rates_against_enumeration() -> None:
    k_base, n_base = np.array([1, 0, 2, 0, 3]), np.array([10, 12, 9, 30, 8])
    k_cand, n_cand = np.array([4, 1, 2, 3, 3]), np.array([11, 12, 10, 25, 9])

    def difference(swap: tuple[bool, ...]) -> float:
        k0, k1 = np.where(swap, k_cand, k_base), np.where(swap, k_base, k_cand)
        n0, n1 = np.where(swap, n_cand, n_base), np.where(swap, n_base, n_cand)
        return float(k1.sum() / n1.sum() - k0.sum() / n0.sum())

    null = [difference(swap) for swap in itertools.product((False, True), repeat=5)]
    estimate = two_rate_permutation(k_base, n_base, k_cand, n_cand, make_rng())
    assert estimate.statistic == pytest.approx(null[0])
    assert estimate.pvalue == pytest.approx(np.mean(np.abs(null) >= abs(null[0]) - 1e-12))
    greater = two_rate_permutation(
        k_base, n_base, k_cand, n_cand, make_rng(), alternative="greater"
    )
    assert greater.pvalue == pytest.approx(np.mean(np.array(null) >= null[0] - 1e-12))
    assert estimate.interval == (None, None)


def draw_rates(
    rng: np.random.Generator, n: int, shift: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return counts of both arms in requests whose own rates vary around 5%."""
    totals, rates = rng.integers(20, 100, n), rng.beta(2, 38, n)
    candidate = rng.binomial(totals, np.minimum(rates + shift, 1))
    return rng.binomial(totals, rates), totals, candidate, totals


def test_two_rates_hold_level_and_coverage_by_simulation() -> None:
    rng = make_rng(5)
    found = [
        two_rate_permutation(*draw_rates(rng, 40, 0.0), rng, n_resamples=199) for _ in range(2000)
    ]
    pvalues = np.array([estimate.pvalue for estimate in found], dtype=np.float64)
    covered = [low <= 0.0 <= high for low, high in (e.interval for e in found)]  # type: ignore[operator]
    assert 0.035 <= (pvalues <= 0.05).mean() <= 0.065
    assert 0.94 <= np.mean(covered) <= 0.97


def test_two_rates_find_a_rate_that_doubles() -> None:
    rng = make_rng(6)
    estimate = two_rate_permutation(*draw_rates(rng, 60, 0.05), rng)
    assert estimate.pvalue is not None
    assert estimate.pvalue < 0.001
    assert estimate.interval[0] is not None
    assert estimate.interval[0] > 0.0


def test_equal_rates_get_no_interval_of_width_zero() -> None:
    zeros, totals = np.zeros(60), np.full(60, 50)
    estimate = two_rate_permutation(zeros, totals, zeros, totals, make_rng(), side="upper")
    assert estimate.interval[0] is None
    assert estimate.interval[1] == pytest.approx(0.0487, abs=1e-4)
    assert (estimate.statistic, estimate.pvalue) == (0.0, 1.0)


def test_requests_empty_in_an_arm_are_left_out() -> None:
    estimate = two_rate_permutation([1, 5], [10, 5], [2, 0], [10, 0], make_rng())
    assert estimate.n == 1
    assert estimate.statistic == pytest.approx(0.1)
    with pytest.raises(ValueError, match="no request"):
        two_rate_permutation([0], [0], [1], [2], make_rng())
    with pytest.raises(ValueError, match="between 0 and their totals"):
        two_rate_permutation([3], [2], [1], [2], make_rng())


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 30), st.integers(0, 9), st.integers(1, 30)),
        min_size=1,
        max_size=20,
    )
)
def test_two_rates_give_no_nan_and_contain_the_difference(
    rows: list[tuple[int, int, int, int]],
) -> None:
    k_base, n_base, k_cand, n_cand = np.array(rows).T
    estimate = two_rate_permutation(
        np.minimum(k_base, n_base),
        n_base,
        np.minimum(k_cand, n_cand),
        n_cand,
        make_rng(),
        n_resamples=50,
    )
    low, high = estimate.interval
    assert low is None or low <= estimate.statistic
    assert high is None or high >= estimate.statistic
    assert estimate.pvalue is not None
    assert 0.0 < estimate.pvalue <= 1.0

"""Permutation tests on paired values and on pooled rates.

Conventions are those of ``stats.py``. The generator is an argument. A permutation test
bounds nothing: its interval is (None, None), which holds with confidence 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import stats as dist

from gate.measures.means import MIN_CLUSTERS, effective_df, widen_when_sparse
from gate.measures.stats import (
    Alternative,
    FloatArray,
    Side,
    binomial_limits,
    check_pair,
    check_vector,
    keep_side,
    name_method,
    sum_by_cluster,
    tail_probability,
)
from gate.records import Estimate

MAX_ENUMERATED = 14  # up to 2^14 sign patterns are enumerated, more are sampled
_CHUNK = 2_000_000  # signs held in memory at once
_ROUNDING = 1e-12


# ---------------------------------------------------------------- permutation


def paired_permutation(
    diffs: npt.ArrayLike,
    rng: np.random.Generator,
    n_resamples: int = 10_000,
    alternative: Alternative = "two-sided",
    clusters: npt.ArrayLike | None = None,
) -> Estimate:
    """Return the mean difference with its sign-flip p-value.

    diffs: (n,), candidate minus baseline; ``greater``: the candidate's is higher. clusters:
    (n,), a whole cluster flips together. Up to 14 nonzero units are enumerated, otherwise
    p = (1 + #) / (1 + n_resamples). All zero: p = 1. The p-value is of the sum.
    """
    values = check_vector(diffs, "diffs")
    units = values if clusters is None else sum_by_cluster(values, clusters)
    null, exact = flip_signs(units[units != 0.0, None], rng, n_resamples)
    pvalue = permutation_pvalue(null[:, 0], float(units.sum()), alternative, exact=exact)
    name = "sign flips" if clusters is None else f"sign flips of {units.size} clusters"
    method = _name_draws(name, len(null), exact=exact)
    return estimate_without_interval(float(values.mean()), values.size, method, pvalue)


def flip_signs(
    units: FloatArray,
    rng: np.random.Generator,
    n_resamples: int,
    reduce: Callable[[FloatArray], FloatArray] = lambda sums: sums,
) -> tuple[FloatArray, bool]:
    """Return sums under random signs, (n_patterns, k), and whether all are there. units: (n, k).

    reduce: what is kept of the sums, pattern by pattern, where all k of them are too many.
    """
    n = units.shape[0]
    if n <= MAX_ENUMERATED:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return reduce((2.0 * bits - 1.0) @ units), True
    rows = max(1, _CHUNK // n)
    sizes = [min(rows, n_resamples - done) for done in range(0, n_resamples, rows)]
    signs = (2.0 * rng.integers(0, 2, (size, n), dtype=np.int8) - 1.0 for size in sizes)
    return np.concatenate([reduce(chunk @ units) for chunk in signs]), False


def permutation_pvalue(
    null: FloatArray, observed: float, alternative: Alternative, *, exact: bool
) -> float:
    """Share of the null at least as extreme; the observed one counts among a sample."""
    slack = 1e-9 * max(float(np.abs(null).max()), abs(observed))
    sign = -1.0 if alternative == "less" else 1.0
    if alternative == "two-sided":
        null, observed = np.abs(null), abs(observed)
    n_extreme = int((sign * null >= sign * observed - slack).sum())
    return n_extreme / null.size if exact else (1 + n_extreme) / (1 + null.size)


def _name_draws(name: str, n_patterns: int, *, exact: bool) -> str:
    return f"{name}, {'all' if exact else 'random'} {n_patterns} patterns"


def estimate_without_interval(statistic: float, n: int, method: str, pvalue: float) -> Estimate:
    """Return what a test found; (None, None) holds with confidence 1."""
    return Estimate(
        statistic=statistic,
        interval=(None, None),
        confidence_level=1.0,
        n=n,
        method=method,
        pvalue=pvalue,
    )


def two_rate_permutation(
    baseline_counts: npt.ArrayLike,
    baseline_totals: npt.ArrayLike,
    candidate_counts: npt.ArrayLike,
    candidate_totals: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    n_resamples: int = 10_000,
    alternative: Alternative = "two-sided",
    confidence_level: float = 0.95,
    side: Side = "two-sided",
) -> Estimate:
    """Return the candidate's pooled rate minus the baseline's, permuting arms within requests.

    counts, totals: (n_requests,), one request at the same place in all four. Requests
    with a total of 0 in either arm carry no paired evidence and are left out; none left
    raises ValueError. n: requests used. Interval: jackknife over requests with t; where no
    request differs, the share that could is bounded binomially; unbounded for fewer than 8
    requests. ``greater``: the candidate's rate is higher.
    """
    counts = check_pair(baseline_counts, candidate_counts, "counts")
    totals = check_pair(baseline_totals, candidate_totals, "totals")
    table = np.stack([*check_pair(counts[0], totals[0], "rates"), counts[1], totals[1]])
    _check_rates(table)
    table = table[:, (table[1] > 0) & (table[3] > 0)]
    if table.shape[1] == 0:
        msg = "no request has a total above 0 in both arms"
        raise ValueError(msg)
    difference = float(_rate_difference(*table.sum(axis=1)))
    null, exact = _swap_arms(table, rng, n_resamples)
    name = _name_draws("pooled rates with arms swapped by request", len(null), exact=exact)
    limits = _rate_limits(table, difference, tail_probability(confidence_level, side))
    return Estimate(
        statistic=difference,
        interval=keep_side(*limits, side),
        confidence_level=confidence_level,
        n=table.shape[1],
        method=name_method(name, side),
        pvalue=permutation_pvalue(null, difference, alternative, exact=exact),
    )


def _check_rates(table: FloatArray) -> None:
    if table.min() < 0.0 or (table[0] > table[1]).any() or (table[2] > table[3]).any():
        msg = "counts must lie between 0 and their totals"
        raise ValueError(msg)


def _rate_difference(
    k_base: npt.ArrayLike, n_base: npt.ArrayLike, k_cand: npt.ArrayLike, n_cand: npt.ArrayLike
) -> FloatArray:
    return np.asarray(np.divide(k_cand, n_cand) - np.divide(k_base, n_base))


def _swap_arms(
    table: FloatArray, rng: np.random.Generator, n_resamples: int
) -> tuple[FloatArray, bool]:
    """Rate differences with the arms of random requests exchanged. table: (4, n)."""
    centre = (table[:2] + table[2:]) / 2.0
    half = (table[2:] - table[:2]) / 2.0
    sums, exact = flip_signs(half[:, half.any(axis=0)].T, rng, n_resamples)
    middle = centre.sum(axis=1)
    base, cand = (middle - sums).T, (middle + sums).T
    return _rate_difference(base[0], base[1], cand[0], cand[1]), exact


def _rate_limits(table: FloatArray, difference: float, tail: float) -> tuple[float, float]:
    """Jackknife over requests with the effective degrees of freedom of their totals."""
    n = table.shape[1]
    if n < MIN_CLUSTERS:
        return -math.inf, math.inf
    k_base, n_base, k_cand, n_cand = table
    influence = _influence(k_cand, n_cand) - _influence(k_base, n_base)
    df = min(effective_df(n_base), effective_df(n_cand))
    half = float(dist.t.isf(tail, df) * np.sqrt((n - 1) / n * (influence**2).sum()))
    if np.abs(influence).max() <= _ROUNDING:
        half = binomial_limits(0, n, tail)[1] * float(n_cand.max() / n_cand.mean())
    shares = n * (k_cand / n_cand.sum() - k_base / n_base.sum())  # their mean: the difference
    low, high = widen_when_sparse((difference - half, difference + half), shares, tail)
    return max(-1.0, min(low, difference)), min(1.0, max(high, difference))


def _influence(counts: FloatArray, totals: FloatArray) -> FloatArray:
    """Return what leaving each request out does to the pooled rate (jackknife), (n,)."""
    residuals = counts - counts.sum() / totals.sum() * totals
    return np.asarray(residuals / (totals.sum() - totals))

"""Permutation tests, the distance of PIT values from uniform, and a two-sample text test.

Conventions are those of ``stats.py``. The generator is an argument. A permutation test
bounds nothing: its interval is (None, None), which holds with confidence 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats as dist

from gate.measures.means import MIN_CLUSTERS, clustered_mean_difference
from gate.measures.stats import (
    Alternative,
    FloatArray,
    Side,
    binomial_limits,
    check_pair,
    check_vector,
    cluster_labels,
    keep_side,
    name_method,
    tail_probability,
)
from gate.records import Estimate

MAX_ENUMERATED = 14  # up to 2^14 sign patterns are enumerated, more are sampled
_CHUNK = 2_000_000  # signs held in memory at once
_GRID = 512  # points at which the spread of a distribution function is taken
_PAD = -1

IntArray = npt.NDArray[np.int64]


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
    units = values
    if clusters is not None:
        units = np.bincount(cluster_labels(clusters, values.size), weights=values)
    null, exact = _flip_signs(units[units != 0.0, None], rng, n_resamples)
    pvalue = _permutation_pvalue(null[:, 0], float(units.sum()), alternative, exact=exact)
    name = "sign flips" if clusters is None else f"sign flips of {units.size} clusters"
    return _unbounded(float(values.mean()), values.size, _name_draws(name, null, exact), pvalue)


def _flip_signs(
    units: FloatArray, rng: np.random.Generator, n_resamples: int
) -> tuple[FloatArray, bool]:
    """Sums under random signs. units: (n, k); out: (n_patterns, k), and whether all are there."""
    n = units.shape[0]
    if n <= MAX_ENUMERATED:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return (2.0 * bits - 1.0) @ units, True
    rows = max(1, _CHUNK // n)
    chunks = [min(rows, n_resamples - done) for done in range(0, n_resamples, rows)]
    sums = [(2.0 * rng.integers(0, 2, (size, n), dtype=np.int8) - 1.0) @ units for size in chunks]
    return np.concatenate(sums), False


def _permutation_pvalue(
    null: FloatArray, observed: float, alternative: Alternative, *, exact: bool
) -> float:
    """Share of the null at least as extreme; the observed one counts among a sample."""
    slack = 1e-9 * max(float(np.abs(null).max()), abs(observed))
    sign = -1.0 if alternative == "less" else 1.0
    if alternative == "two-sided":
        null, observed = np.abs(null), abs(observed)
    n_extreme = int((sign * null >= sign * observed - slack).sum())
    return n_extreme / null.size if exact else (1 + n_extreme) / (1 + null.size)


def _name_draws(name: str, null: npt.NDArray[np.float64], exact: bool) -> str:  # noqa: FBT001
    return f"{name}, {'all' if exact else 'random'} {null.shape[0]} patterns"


def _unbounded(statistic: float, n: int, method: str, pvalue: float) -> Estimate:
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
    n_resamples: int = 10_000,
    alternative: Alternative = "two-sided",
    confidence_level: float = 0.95,
    side: Side = "two-sided",
) -> Estimate:
    """Return the candidate's pooled rate minus the baseline's, permuting arms within requests.

    counts, totals: (n_requests,), one request at the same place in all four. Requests
    with a total of 0 in either arm carry no paired evidence and are left out; none left
    raises ValueError. n: requests used. Interval: the rates' influence values per request
    with t(n - 1); where no request differs, the share that could is bounded binomially;
    unbounded for fewer than 8 requests. ``greater``: the candidate's rate is higher.
    """
    counts = check_pair(baseline_counts, candidate_counts, "counts")
    totals = check_pair(baseline_totals, candidate_totals, "totals")
    table = np.stack([*check_pair(counts[0], totals[0], "rates"), counts[1], totals[1]])
    _check_rates(table)
    table = table[:, (table[1] > 0) & (table[3] > 0)]
    if table.shape[1] == 0:
        msg = "no request has a total above 0 in both arms"
        raise ValueError(msg)
    difference = _rate_difference(*table.sum(axis=1))
    null, exact = _swap_arms(table, rng, n_resamples)
    limits = _rate_limits(table, float(difference), tail_probability(confidence_level, side))
    return Estimate(
        statistic=float(difference),
        interval=keep_side(*limits, side),
        confidence_level=confidence_level,
        n=table.shape[1],
        method=name_method(_name_draws("pooled rates, arms swapped by request", null, exact), side),
        pvalue=_permutation_pvalue(null, float(difference), alternative, exact=exact),
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
    sums, exact = _flip_signs(half[:, half.any(axis=0)].T, rng, n_resamples)
    middle = centre.sum(axis=1)
    base, cand = (middle - sums).T, (middle + sums).T
    return _rate_difference(base[0], base[1], cand[0], cand[1]), exact


def _rate_limits(table: FloatArray, difference: float, tail: float) -> tuple[float, float]:
    """Delta method over requests: e_i = (k_i - r n_i) / N, candidate minus baseline."""
    n = table.shape[1]
    if n < MIN_CLUSTERS:
        return -math.inf, math.inf
    k_base, n_base, k_cand, n_cand = table
    influence = (k_cand - k_cand.sum() / n_cand.sum() * n_cand) / n_cand.sum()
    influence -= (k_base - k_base.sum() / n_base.sum() * n_base) / n_base.sum()
    half = float(dist.t.isf(tail, n - 1) * np.sqrt(n / (n - 1) * (influence**2).sum()))
    if not (table[:2] != table[2:]).any() or half == 0.0:
        half = binomial_limits(0, n, tail)[1] * float(n_cand.max() / n_cand.mean())
    return max(-1.0, difference - half), min(1.0, difference + half)


# ------------------------------------------------------------------------ PIT


def pit_distance(
    pit: npt.ArrayLike, clusters: npt.ArrayLike, confidence_level: float = 0.95
) -> Estimate:
    """Return the Kolmogorov distance of PIT values from uniform with an upper bound.

    pit, clusters: (n,), values in [0, 1] and the request each came from. The bound adds the
    Dvoretzky-Kiefer-Wolfowitz band (Massart 1990), sqrt(2 ln(2/a)) times the largest
    standard error of the empirical distribution: over clusters (CR1, widened by the ratio
    of t(G - 1) to normal quantiles) and never below the 1 / (2 sqrt(n)) of independent values.
    Conservative twice over (the triangle inequality, and a band for both signs). Fewer
    than 8 clusters: unbounded.
    """
    values = check_vector(pit, "pit")
    if values.min() < 0.0 or values.max() > 1.0:
        msg = "pit values must lie between 0 and 1"
        raise ValueError(msg)
    labels = cluster_labels(clusters, values.size)
    tail, g = tail_probability(confidence_level, "upper"), int(labels.max()) + 1
    distance = _distance_from_uniform(np.sort(values))
    band = math.inf
    if g >= MIN_CLUSTERS:
        widening = float(dist.t.isf(tail / 2.0, g - 1) / dist.norm.isf(tail / 2.0))
        std_error = max(widening * _largest_std_error(values, labels), 0.5 / math.sqrt(values.size))
        band = math.sqrt(2.0 * math.log(2.0 / tail)) * std_error
    return Estimate(
        statistic=distance,
        interval=(0.0, min(1.0, distance + band) if math.isfinite(band) else None),
        confidence_level=confidence_level,
        n=values.size,
        method=name_method(f"Kolmogorov distance, DKW band over {g} clusters", "upper"),
    )


def _distance_from_uniform(ordered: FloatArray) -> float:
    ranks = np.arange(ordered.size + 1) / ordered.size
    return float(max((ranks[1:] - ordered).max(), (ordered - ranks[:-1]).max()))


def _largest_std_error(values: FloatArray, labels: npt.NDArray[np.intp]) -> float:
    """Largest CR1 standard error of the empirical distribution function over a grid."""
    g, n = int(labels.max()) + 1, values.size
    bins = np.minimum((values * _GRID).astype(np.intp), _GRID - 1)
    counts = np.bincount(labels * _GRID + bins, minlength=g * _GRID).reshape(g, _GRID)
    below = counts.cumsum(axis=1)  # (n_clusters, n_grid)
    sizes = below[:, -1:]
    residuals = below - below.sum(axis=0) / n * sizes
    return float(np.sqrt(g / (g - 1) * (residuals**2).sum(axis=0).max()) / n)


def lag_correlation(
    pit: npt.ArrayLike, clusters: npt.ArrayLike, lag: int = 1, confidence_level: float = 0.95
) -> Estimate:
    """Return the correlation of PIT values ``lag`` tokens apart within a request.

    pit, clusters: (n,), the tokens of a request adjacent and in order. The mean of
    12 (u_t - 1/2)(u_{t+lag} - 1/2), 0 for independent uniform values, CR1 over requests.
    """
    values = check_vector(pit, "pit") - 0.5
    labels = cluster_labels(clusters, values.size)
    same = labels[lag:] == labels[:-lag] if 0 < lag < values.size else np.zeros(0, dtype=bool)
    if not same.any():
        msg = f"no request has two tokens {lag} apart"
        raise ValueError(msg)
    products = 12.0 * values[lag:][same] * values[:-lag][same]
    return clustered_mean_difference(products, labels[lag:][same], confidence_level)


# ------------------------------------------------------------------------ MMD


def mmd_permutation(
    baseline: Sequence[Sequence[npt.ArrayLike]],
    candidate: Sequence[Sequence[npt.ArrayLike]],
    rng: np.random.Generator,
    n_resamples: int = 10_000,
) -> Estimate:
    """Return the mean over prompts of the unbiased MMD^2 between the arms' outputs.

    baseline, candidate: by prompt, then by repeat (at least 2), token or character ids >= 0,
    of any length. Kernel: equal positions over the longer length (Hamming; 1 for two empty
    outputs). Labels are permuted within prompts; p = (1 + #) / (1 + n_resamples), larger
    is more different. n: prompts. Gretton et al. (2012); Gao et al. (2024).
    """
    if len(baseline) != len(candidate) or not baseline:
        msg = f"{len(baseline)} baseline and {len(candidate)} candidate prompts; give as many"
        raise ValueError(msg)
    observed, null = 0.0, np.zeros(n_resamples)
    for base, cand in zip(baseline, candidate, strict=True):
        values = _permute_mmd(base, cand, rng, n_resamples)
        observed, null = observed + float(values[0]), null + values[1:]
    pvalue = _permutation_pvalue(null, observed, "greater", exact=False)
    method = f"MMD^2 with Hamming kernel, {n_resamples} permutations within prompts"
    return _unbounded(observed / len(baseline), len(baseline), method, pvalue)


def _permute_mmd(
    baseline: Sequence[npt.ArrayLike],
    candidate: Sequence[npt.ArrayLike],
    rng: np.random.Generator,
    n_resamples: int,
) -> FloatArray:
    """MMD^2 of one prompt: (1 + n_resamples,), as observed first."""
    n_base, n_cand = len(baseline), len(candidate)
    if min(n_base, n_cand) < 2:
        msg = "MMD needs at least 2 repeats per prompt and arm"
        raise ValueError(msg)
    kernel = _hamming_kernel([*baseline, *candidate])
    labels = np.repeat([0.0, 1.0], [n_base, n_cand])
    draws = rng.permuted(np.tile(labels, (n_resamples, 1)), axis=1)
    cand = np.concatenate([labels[None], draws])  # (1 + n_resamples, n_base + n_cand)
    return _mmd_squared(kernel, cand, n_base, n_cand)


def _hamming_kernel(outputs: Sequence[npt.ArrayLike]) -> FloatArray:
    """Share of equal positions among the longer length: (n, n)."""
    rows = [np.asarray(output, dtype=np.int64).reshape(-1) for output in outputs]
    lengths = np.array([row.size for row in rows])
    padded: IntArray = np.full((len(rows), max(1, lengths.max())), _PAD)
    for place, row in zip(padded, rows, strict=True):
        place[: row.size] = row
    equal = ((padded[:, None] == padded[None]) & (padded[:, None] != _PAD)).sum(axis=2)
    longer = np.maximum(lengths[:, None], lengths)
    return np.where(longer == 0, 1.0, equal / np.maximum(longer, 1))


def _mmd_squared(kernel: FloatArray, cand: FloatArray, n_base: int, n_cand: int) -> FloatArray:
    """Unbiased: a sample's own pairs do not count. cand: (b, n), 1 marks the candidate."""
    base = 1.0 - cand
    within = kernel - np.diag(np.diag(kernel))
    base_base = ((base @ within) * base).sum(axis=1) / (n_base * (n_base - 1))
    cand_cand = ((cand @ within) * cand).sum(axis=1) / (n_cand * (n_cand - 1))
    across = ((base @ kernel) * cand).sum(axis=1) / (n_base * n_cand)
    return np.asarray(base_base + cand_cand - 2.0 * across)

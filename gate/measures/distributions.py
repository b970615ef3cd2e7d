"""Sampled output as a distribution: PIT values, token frequencies, texts against texts.

Conventions are those of ``stats.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import stats as dist

from gate.measures.means import (
    MIN_CLUSTERS,
    cluster_std_error,
    clustered_mean_difference,
    effective_df,
)
from gate.measures.resampling import estimate_without_interval, flip_signs, permutation_pvalue
from gate.measures.stats import (
    FloatArray,
    check_vector,
    cluster_labels,
    name_method,
    tail_probability,
)
from gate.records import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

_GRID = 512  # points at which the spread of a distribution function is taken
_PAD = -1
LEAST_REPEATS = 2  # per prompt and arm: a spread within an arm takes two


# ------------------------------------------------------------------------ PIT


def pit_distance(
    pit: npt.ArrayLike, clusters: npt.ArrayLike, confidence_level: float = 0.95
) -> Estimate:
    """Return the Kolmogorov distance of PIT values from uniform with an upper bound.

    pit, clusters: (n,), values in [0, 1] and the request each came from. The bound adds the
    Dvoretzky-Kiefer-Wolfowitz band (Massart 1990), sqrt(2 ln(2/a)) times the largest
    standard error of the empirical distribution: over clusters (CR3, widened by the ratio
    of t to normal quantiles) and never below the 1 / (2 sqrt(n)) of independent values.
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
    band = _band(values, labels, tail) if g >= MIN_CLUSTERS else math.inf
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


def _band(values: FloatArray, labels: npt.NDArray[np.intp], tail: float) -> float:
    """DKW with the largest cluster-robust standard error of the empirical distribution."""
    g, n = int(labels.max()) + 1, values.size
    bins = np.minimum((values * _GRID).astype(np.intp), _GRID - 1)
    counts = np.bincount(labels * _GRID + bins, minlength=g * _GRID).reshape(g, _GRID)
    below = counts.cumsum(axis=1)  # (n_clusters, n_grid)
    sizes = below[:, -1].astype(np.float64)
    residuals = below - below.sum(axis=0) / n * sizes[:, None]
    widening = dist.t.isf(tail / 2.0, effective_df(sizes)) / dist.norm.isf(tail / 2.0)
    std_error = float(widening * cluster_std_error(residuals, sizes).max())
    return math.sqrt(2.0 * math.log(2.0 / tail)) * max(std_error, 0.5 / math.sqrt(n))


def lag_correlation(
    pit: npt.ArrayLike, clusters: npt.ArrayLike, lag: int = 1, confidence_level: float = 0.95
) -> Estimate:
    """Return the correlation of PIT values ``lag`` tokens apart within a request.

    pit, clusters: (n,), the tokens of a request adjacent and in order. The mean of
    12 (u_t - 1/2)(u_{t+lag} - 1/2), 0 for independent uniform values, clustered by request.
    """
    values = check_vector(pit, "pit") - 0.5
    labels = cluster_labels(clusters, values.size)
    same = labels[lag:] == labels[:-lag] if 0 < lag < values.size else np.zeros(0, dtype=bool)
    if not same.any():
        msg = f"no request has two tokens {lag} apart"
        raise ValueError(msg)
    products = 12.0 * values[lag:][same] * values[:-lag][same]
    return clustered_mean_difference(products, labels[lag:][same], confidence_level)


# ------------------------------------------------------------- token by token


def frequency_excess(
    residuals: npt.NDArray[np.float64],
    expected: npt.NDArray[np.float64],
    rng: np.random.Generator,
    n_resamples: int = 10_000,
) -> Estimate:
    """Return by which share of itself a token's frequency is off: root mean square.

    residuals: (n_requests, n_tokens), times drawn less times expected. expected: (n_tokens,), over
    all requests, above 0. Pearson's sum over tokens of (drawn - expected)^2 / expected, less what
    chance adds: the products of a request's residuals with its own. What remains estimates
    sum_t e_t d_t^2 without bias, d_t the relative error; its share of sum_t e_t is the mean
    square. Under the law a request's residuals have mean zero whatever came before them, and
    requests are independent, so their signs may be flipped: p = (1 + #) / (1 + n_resamples).
    n: draws expected.
    """
    scaled = residuals / np.sqrt(expected)
    observed = float((scaled.sum(axis=0) ** 2).sum())
    null, exact = flip_signs(scaled, rng, n_resamples, lambda sums: (sums**2).sum(axis=1))
    pvalue = permutation_pvalue(null, observed, "greater", exact=exact)
    excess = max(0.0, observed - float((scaled**2).sum()))
    return estimate_without_interval(
        math.sqrt(excess / float(expected.sum())),
        round(float(expected.sum())),
        f"Pearson's sum over {expected.size} tokens, sign flips of {len(residuals)} requests",
        pvalue,
    )


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
    pvalue = permutation_pvalue(null, observed, "greater", exact=False)
    method = f"MMD^2 with Hamming kernel, {n_resamples} permutations within prompts"
    return estimate_without_interval(observed / len(baseline), len(baseline), method, pvalue)


def _permute_mmd(
    baseline: Sequence[npt.ArrayLike],
    candidate: Sequence[npt.ArrayLike],
    rng: np.random.Generator,
    n_resamples: int,
) -> FloatArray:
    """MMD^2 of one prompt: (1 + n_resamples,), as observed first."""
    n_base, n_cand = len(baseline), len(candidate)
    if min(n_base, n_cand) < LEAST_REPEATS:
        msg = f"MMD needs at least {LEAST_REPEATS} repeats per prompt and arm"
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
    padded = np.full((len(rows), max(1, lengths.max())), _PAD, dtype=np.int64)
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

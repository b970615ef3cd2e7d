"""How often the gate's intervals hold the truth, by simulation of data that are none too tame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.simulated import (
    ICC,
    SPEED,
    TIMING_NOISE,
    draw_acceptance,
    draw_clusters,
    draw_count,
    draw_exponential,
    draw_flips,
    draw_pit,
    draw_rates,
    draw_scores,
    draw_times,
)
from gate.measures.bounds import bound_each_side
from gate.measures.means import (
    clustered_mean_difference,
    geometric_mean_ratio,
    paired_mean_difference,
    ratio_of_means,
)
from gate.measures.resampling import two_rate_permutation
from gate.measures.sampling import bound_distance
from gate.measures.stats import clopper_pearson, paired_binary_difference, percentile_with_interval
from gate.records import Estimate, Record

Rng = np.random.Generator
AT_LEAST, ABOUT = "at least 95%", "94% to 97%"
PER_SIDE = 0.95
"""The level of criteria: of each side's bound."""
Draw = Callable[[Rng], Any]
Compute = Callable[[Any, float], Estimate]


class Scenario(NamedTuple):
    """``draw`` makes data of which ``truth`` is true; ``compute`` takes a two-sided level."""

    interval: str
    data: str
    promise: str
    truth: float
    draw: Draw
    compute: Compute


class CoverageRow(Record, frozen=True, kw_only=True):
    """Shares of simulations whose interval or bound holds the truth.

    two_sided_95: of the 95% interval. lower_95, upper_95: of the bounds that criteria read, 95% on
    each side. mean_width: of the 95% interval where it has both ends.
    """

    interval: str
    data: str
    promise: str
    n_simulations: int
    two_sided_95: float
    lower_95: float
    upper_95: float
    mean_width: float


def measure_coverage(scenario: Scenario, n: int, seed: int) -> CoverageRow:
    """Simulate one scenario ``n`` times."""
    rng = np.random.default_rng(seed)
    inside = low = high = 0
    widths = []
    for _ in range(n):
        data = scenario.draw(rng)
        whole = scenario.compute(data, 0.95).interval
        sides = bound_each_side(partial(scenario.compute, data), PER_SIDE).interval
        inside += is_below(whole[0], scenario.truth) and is_below(scenario.truth, whole[1])
        low += is_below(sides[0], scenario.truth)
        high += is_below(scenario.truth, sides[1])
        if whole[0] is not None and whole[1] is not None:
            widths.append(whole[1] - whole[0])
    return CoverageRow(
        interval=scenario.interval,
        data=scenario.data,
        promise=scenario.promise,
        n_simulations=n,
        two_sided_95=inside / n,
        lower_95=low / n,
        upper_95=high / n,
        mean_width=float(np.mean(widths)) if widths else -1.0,
    )


def is_below(left: float | None, right: float | None) -> bool:
    """Whether left <= right up to rounding; an open end holds everything."""
    return left is None or right is None or left <= right + 1e-12


def list_scenarios() -> Iterator[Scenario]:
    """Yield all scenarios."""
    yield from list_flips()
    yield from list_clusters()
    yield from list_ratios()
    yield from list_others()


# ---------------------------------------------------------------------- flips


def list_flips() -> Iterator[Scenario]:
    """Paired flips and plain proportions: exact limits, so at least their level."""
    for n, gain, loss in ((70, 0.02, 0.02), (70, 0.05, 0.15), (200, 0.01, 0.03), (200, 0.1, 0.1)):
        yield Scenario(
            "paired flips",
            f"{n} pairs, {gain:.0%} gained, {loss:.0%} lost",
            AT_LEAST,
            gain - loss,
            partial(draw_flips, n, gain, loss),
            estimate_flips,
        )
    for n, rate in ((70, 0.02), (1600, 0.001), (30, 0.3)):
        yield Scenario(
            "binomial",
            f"{n} items at {rate:.1%}",
            AT_LEAST,
            rate,
            partial(draw_count, n, rate),
            estimate_share,
        )


@cache
def estimate_flips(counts: tuple[int, int, int], level: float) -> Estimate:
    """Return the interval of counts of flips, on which the order of pairs has no effect."""
    n_gained, n_lost, n = counts
    before = [1.0] * n_lost + [0.0] * (n - n_lost)
    return paired_binary_difference(before, [0.0] * (n - n_gained) + [1.0] * n_gained, level)


@cache
def estimate_share(counts: tuple[int, int], level: float) -> Estimate:
    """Return the exact interval of a share."""
    return clopper_pearson(*counts, level)


# ------------------------------------------------------------------- clusters


def list_clusters() -> Iterator[Scenario]:
    """Clustered differences, 0.7 of the variance between clusters."""
    for n_clusters in (8, 12, 20, 50):
        for is_even in (True, False):
            sizes = np.full(n_clusters, 5) if is_even else 1 + np.arange(n_clusters) % 9
            yield Scenario(
                "clustered mean",
                f"{n_clusters} clusters of {'5' if is_even else '1 to 9'}, ICC {ICC}",
                ABOUT,
                0.0,
                partial(draw_clusters, sizes),
                estimate_clusters,
            )
    for n_clusters in (20, 50):
        yield Scenario(
            "clustered mean",
            f"{n_clusters} clusters of 5, ICC {ICC}, scores -1, 0, 1",
            ABOUT,
            0.0,
            partial(draw_scores, np.full(n_clusters, 5)),
            estimate_clusters,
        )


def estimate_clusters(data: tuple[np.ndarray, np.ndarray], level: float) -> Estimate:
    """Return the cluster-robust interval."""
    return clustered_mean_difference(*data, level)


# --------------------------------------------------------------------- ratios


def list_ratios() -> Iterator[Scenario]:
    """Ratios of paired times, and accepted over drafted tokens."""
    for n in (8, 20, 40):
        data = f"{n} pairs of times, log-normal (0.5), noise 15%"
        draw, mean = partial(draw_times, n), SPEED * float(np.exp(TIMING_NOISE**2 / 2))
        yield Scenario("ratio of means", data, ABOUT, mean, draw, estimate_ratio)
        yield Scenario("geometric mean ratio", data, ABOUT, SPEED, draw, estimate_geometric)
    for n in (20, 70):
        yield Scenario(
            "ratio of means",
            f"accepted of drafted tokens, {n} requests, share 0.2",
            ABOUT,
            0.2,
            partial(draw_acceptance, n),
            estimate_ratio,
        )


def estimate_ratio(data: tuple[np.ndarray, np.ndarray], level: float) -> Estimate:
    """Return Fieller's interval."""
    return ratio_of_means(*data, level)


def estimate_geometric(data: tuple[np.ndarray, np.ndarray], level: float) -> Estimate:
    """Return the interval of the geometric mean."""
    return geometric_mean_ratio(*data, level)


# --------------------------------------------------------------------- others


def list_others() -> Iterator[Scenario]:
    """Rates, percentiles, skewed means, and distances of distribution functions."""
    for n in (20, 70, 200):
        yield Scenario(
            "two rates",
            f"{n} requests, 1% against 2%, rates beta-distributed",
            ABOUT,
            0.01,
            partial(draw_rates, n),
            estimate_rates,
        )
    for q, n in ((0.5, 40), (0.9, 100), (0.99, 500)):
        yield Scenario(
            "percentile",
            f"p{100 * q:g} of {n} exponential times",
            AT_LEAST,
            float(-np.log1p(-q)),
            partial(draw_exponential, n),
            partial(estimate_percentile, q),
        )
    yield Scenario(
        "paired t",
        "70 requests, mean divergence exponentially distributed",
        ABOUT,
        1.0,
        partial(draw_exponential, 70),
        paired_mean_difference,
    )
    yield Scenario(
        "distribution distance",
        "4,096 sampled tokens of 128 requests, distance 0.03",
        AT_LEAST,
        0.03,
        partial(draw_pit, 0.03),
        estimate_distance,
    )


def estimate_rates(data: tuple[np.ndarray, ...], level: float) -> Estimate:
    """Return the jackknife interval; its permutations are of no use here."""
    return two_rate_permutation(
        data[0],
        data[1],
        data[2],
        data[3],
        np.random.default_rng(0),
        n_resamples=1,
        confidence_level=level,
    )


def estimate_percentile(q: float, data: np.ndarray, level: float) -> Estimate:
    """Return the order-statistic interval."""
    return percentile_with_interval(data, q, level)


def estimate_distance(data: tuple[np.ndarray, np.ndarray], level: float) -> Estimate:
    """Return the distance from uniform; its level is per side."""
    return bound_distance(*data, (1.0 + level) / 2.0)

"""How often criteria see the effect that they are said to see, by simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarks.coverage import estimate_flips
from benchmarks.family import (
    CRITERIA,
    FLIPS,
    TASKS,
    compare_counts,
    make_outputs,
    make_rules,
    simulate_band,
    simulate_sampled,
)
from benchmarks.simulated import ICC, draw_clusters, draw_flips
from gate.criteria import judge_all
from gate.defaults import default_criteria
from gate.measures.bounds import POWER
from gate.measures.means import clustered_mean_difference, paired_mean_difference
from gate.measures.power import (
    detectable_binary_difference,
    detectable_mean_difference,
    detectable_one_way_flips,
    required_n_zero_flips,
)
from gate.measures.stats import clopper_pearson
from gate.measures.tokens import compare_rates
from gate.records import Comparison, Criterion, Outcome, Record

Rng = np.random.Generator
Hit = Callable[[Rng], bool]
ALPHA = 0.001
LEVEL = 0.95
STATED_ALPHA = 2.0 * (1.0 - LEVEL)
"""Of ``describe_power`` at a bound's level of 95%."""
TESTED_ALPHA = 0.05
SHARE = ALPHA / (len(CRITERIA) - 1 + len(TASKS))
"""What Holm leaves the first of a default run's alarms."""
MANY_RESAMPLES = 50_000  # the least p must reach that share
CLUSTER_SPREAD = (ICC + (1.0 - ICC) / 5) ** 0.5
"""Standard deviation of the means of clusters of 5."""
DEFAULTS = {
    c.name: c for c in default_criteria("lossless", "content", "float32", 0.02, own_baseline=True)
}
SHARP = (1.0, 1e6)
"""Rates of near-ties that flip in float32: none."""


class Case(NamedTuple):
    """``hit``: whether a simulated run shows the effect. stated: the power promised for it.

    one_of: simulations are slow, so that one of so many is run.
    """

    criterion: str
    effect: str
    shows: str
    stated: float | None
    hit: Hit
    one_of: int = 1


class PowerRow(Record, frozen=True, kw_only=True):
    """Share of simulated runs that show an effect.

    shows: what counts as shown. stated: the power that the report or a function promises for this
    very effect; None: no promise, the figure says what to expect.
    """

    criterion: str
    effect: str
    shows: str
    n_simulations: int
    power: float
    stated: float | None


def measure_power(case: Case, n: int, seed: int) -> PowerRow:
    """Simulate one case ``n`` times."""
    rng, n = np.random.default_rng(seed), max(1, n // case.one_of)
    return PowerRow(
        criterion=case.criterion,
        effect=case.effect,
        shows=case.shows,
        n_simulations=n,
        power=sum(case.hit(rng) for _ in range(n)) / n,
        stated=case.stated,
    )


def list_cases() -> Iterator[Case]:
    """Yield all cases."""
    yield from list_counts()
    yield from list_flips()
    yield from list_means()
    yield from list_margins()
    yield from list_alarms()


# --------------------------------------------------- promises of the report


def list_counts() -> Iterator[Case]:
    """Criteria that no count may pass: the report says which rate n decisions can show."""
    for name, n in (
        ("token certificate", 1600),
        ("token certificate", 12800),
        ("termination", 136),
    ):
        effect = f"one in {n // 3:,} of {n:,}"
        yield Case(name, effect, "FAIL", LEVEL, partial(shows_count, DEFAULTS[name], n))


def shows_count(criterion: Criterion, n: int, rng: Rng) -> bool:
    """Whether one fault in n // 3 fails a run of n."""
    k = int(rng.binomial(n, 1.0 / (n // 3)))
    found = Comparison(
        measure=criterion.measure,
        unit="count",
        direction="lower_is_better",
        candidate=k,
        difference=clopper_pearson(k, n, LEVEL, "upper"),
    )
    return fails(criterion, found)


def list_flips() -> Iterator[Case]:
    """Scores and labels: the report states a rate of one-way flips; the alarm wants more."""
    for n in (30, 70, 200, 1000):
        rate = detectable_one_way_flips(n, STATED_ALPHA, POWER) or 1.0
        effect = f"{rate:.1%} of {n} pairs flip one way"
        hit = partial(shows_flips, n, rate)
        yield Case("paired flips", effect, "p at most 0.1", POWER, hit)
        yield Case("task alarm", effect, f"FAIL at {SHARE:.1g}", None, partial(alarms, n, rate))
    for n in (30, 70, 200):
        rate = detectable_one_way_flips(n, SHARE, POWER) or 1.0
        effect = f"{rate:.1%} of {n} pairs flip one way"
        yield Case("task alarm", effect, f"FAIL at {SHARE:.1g}", POWER, partial(alarms, n, rate))


def shows_flips(n: int, rate: float, rng: Rng) -> bool:
    """Whether one-way flips are significant at the level the report states its effect for."""
    counts = (0, int(rng.binomial(n, rate)), n)
    return (estimate_flips(counts, LEVEL).pvalue or 0.0) <= STATED_ALPHA


def alarms(n: int, rate: float, rng: Rng) -> bool:
    """Whether the task alarm fires on a loss where Holm leaves it the smallest share."""
    estimate = compare_counts(0, int(rng.binomial(n, rate)), n)
    found = Comparison(measure="task_delta", group=TASKS[0], difference=estimate)
    return fails(DEFAULTS["task alarm"], found, SHARE)


def list_means() -> Iterator[Case]:
    """What ``gate.measures.power`` promises for flips both ways, means and clusters."""
    for n, discordance in ((200, 0.1), (500, 0.2)):
        difference = detectable_binary_difference(n, discordance, TESTED_ALPHA) or 1.0
        shares = ((discordance + difference) / 2, (discordance - difference) / 2)
        effect = f"{difference:.1%} of {n} pairs, {discordance:.0%} discordant"
        hit = partial(shows_both_ways, n, shares)
        yield Case("paired flips", effect, "p at most 0.05", POWER, hit)
    for n in (20, 100):
        size = detectable_mean_difference(n, 1.0, TESTED_ALPHA) or 1.0
        effect = f"{size:.2f} standard deviations, {n} pairs"
        yield Case("paired t", effect, "p at most 0.05", POWER, partial(shows_mean, n, size))
    size = detectable_mean_difference(20, CLUSTER_SPREAD, TESTED_ALPHA) or 1.0
    effect = f"{size:.2f} standard deviations, 20 clusters of 5, ICC {ICC}"
    yield Case("clustered mean", effect, "p at most 0.05", POWER, partial(shows_clusters, size))


def shows_both_ways(n: int, shares: tuple[float, float], rng: Rng) -> bool:
    """Whether flips both ways are significant."""
    return is_low(estimate_flips(draw_flips(n, *shares, rng), LEVEL).pvalue)


def shows_mean(n: int, size: float, rng: Rng) -> bool:
    """Whether a mean difference is significant."""
    return is_low(paired_mean_difference(rng.normal(size, 1.0, n)).pvalue)


def shows_clusters(size: float, rng: Rng) -> bool:
    """Whether clustered differences are significant."""
    values, labels = draw_clusters(np.full(20, 5), rng)
    return is_low(clustered_mean_difference(values + size, labels).pvalue)


def is_low(pvalue: float | None) -> bool:
    """Whether a p-value is at most 5%."""
    return pvalue is not None and pvalue <= TESTED_ALPHA


# -------------------------------------------------------- margins and alarms


def list_margins() -> Iterator[Case]:
    """Task accuracy: what passes, and that a loss as large as the margin does not."""
    for margin in (0.02, 0.10):
        n = required_n_zero_flips(margin)
        for size, loss, outcome, stated in (
            (n, 0.0, Outcome.PASS, 1.0),
            (10 * n, margin, Outcome.PASS, None),
            (10 * n, 3 * margin, Outcome.FAIL, None),
        ):
            effect = f"loss {loss:.0%}, {size} items, margin {margin:.0%}"
            hit = partial(ends_in, outcome, margin, size, loss)
            yield Case("task accuracy", effect, outcome.value, stated, hit)


def ends_in(outcome: Outcome, margin: float, n: int, loss: float, rng: Rng) -> bool:
    """Whether one-way flips end in an outcome."""
    criterion = msgspec.structs.replace(DEFAULTS["task accuracy"], margin=margin)
    estimate = compare_counts(0, int(rng.binomial(n, loss)), n)
    found = Comparison(measure="task_delta", direction="higher_is_better", difference=estimate)
    return judge_all([criterion], [found], make_rules(ALPHA))[0].outcome is outcome


def list_alarms() -> Iterator[Case]:
    """Alarms without a promise: what they see at their share of alpha."""
    for more, ties, name in (
        (0.01, FLIPS, "1% near-ties flip"),
        (0.02, FLIPS, "1% near-ties flip"),
        (0.01, SHARP, "float32"),
    ):
        effect = f"{more:.0%} more second choices, 70 requests of 60 tokens, {name}"
        yield Case("flip rate", effect, "FAIL", None, partial(shows_rate, more, ties), 10)
    for taken, n in ((0.8, 64), (0.9, 32), (1.0, 20)):
        effect = f"{taken:.0%} of {n} taken"
        yield Case("second choices", effect, "FAIL", None, partial(shows_band, taken, n))
    for distance in (0.03, 0.05, 0.08):
        effect = f"distance {distance}, 4,096 tokens of 128 requests"
        yield Case("sampled law alarm", effect, "FAIL", None, partial(shows_law, distance))


def shows_rate(more: float, ties: tuple[float, float], rng: Rng) -> bool:
    """Whether more flips raise the alarm."""
    found = compare_rates(make_outputs(rng, more, ties), rng, MANY_RESAMPLES)[0]
    return fails(DEFAULTS["flip rate"], found, SHARE)


def shows_band(taken: float, n: int, rng: Rng) -> bool:
    """Whether second choices taken raise the alarm."""
    return fails(DEFAULTS["second choices"], simulate_band(taken, n, rng)[0], SHARE)


def shows_law(distance: float, rng: Rng) -> bool:
    """Whether a distance from the law raises the alarm."""
    found = next(simulate_sampled(distance, rng))
    return fails(DEFAULTS["sampled law alarm, all"], found, SHARE)


def fails(criterion: Criterion, comparison: Comparison, alpha: float = ALPHA) -> bool:
    """Whether the gate fails a comparison on its first group."""
    verdicts = judge_all([criterion], [comparison], make_rules(alpha))
    return verdicts[0].outcome is Outcome.FAIL

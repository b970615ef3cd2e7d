"""The run-level false-alarm rate: all alarms of a default run on arms that do not differ.

Comparisons come out of the gate's measures on simulated outputs, and go through its judgement.
What is simulated is hostile: both arms flip near-ties (as in 16 bits), scores and labels flip
both ways, and second choices are taken half the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec
import numpy as np

from benchmarks.simulated import draw_pit
from gate.criteria import Rules, judge_all
from gate.defaults import default_criteria
from gate.measures.band import EVEN, compare_band
from gate.measures.bounds import compare_flags, read_smallest_pvalue
from gate.measures.distributions import frequency_excess, lag_correlation
from gate.measures.paired import Arm, Paired
from gate.measures.sampling import RUN_GROUPS, bound_distance
from gate.measures.stats import clopper_pearson
from gate.measures.tokens import compare_rates
from gate.records import (
    BandProbe,
    Comparison,
    Criterion,
    DecoderSpec,
    Estimate,
    Generation,
    NoiseBound,
    Outcome,
    Record,
    Request,
    TokenScores,
)

Rng = np.random.Generator
TASKS = tuple(f"task {n}" for n in range(10))
GUARDS = {"refusal": 60, "format": 60, "degeneration": 600}
"""Pairs of outputs under each guard."""
N_DOCUMENTS = 60
N_REQUESTS, LEAST_TOKENS, MOST_TOKENS = 70, 30, 90
FLIPS = (1.0, 99.0)
"""Beta distribution of a request's rate of near-ties that flip: 1% on average."""
UNEXPLAINED_SHARE = 0.1
CHANGED_SCORES, CHANGED_LABELS = 0.06, 0.02
RESAMPLES = 20_000
N_OFFERS = 64
N_SAMPLED, TOKENS_DRAWN, N_FREQUENT = 150, 30, 40
"""Sampled requests, tokens of each, and tokens of the vocabulary that are counted."""
BOUND = 0.0625
EDGES = NoiseBound(
    bound=BOUND,
    dtype="bfloat16",
    n_positions=1,
    n_rows=32,
    q999_one_row=0.0,
    q999_wide=0.0,
    source="",
)
CRITERIA: tuple[Criterion, ...] = tuple(
    c
    for c in default_criteria("lossless", "content", "bfloat16", 0.02, own_baseline=True)
    if c.rule == "alarm"
)
ALPHAS = (0.05, 0.001)


class FamilyRow(Record, frozen=True, kw_only=True):
    """Runs in which any alarm fired, of runs in which nothing was wrong.

    floors: whether effects also had to exceed them. upper_95: one-sided bound of the rate.
    within_budget: the rate is not significantly above alpha (exact binomial, 1%).
    """

    run: str
    floors: bool
    alpha: float
    n_runs: int
    n_false_alarms: int
    rate: float
    upper_95: float
    within_budget: bool


def measure_families(n_runs: int, seed: int) -> list[FamilyRow]:
    """Simulate runs and judge each at both alphas, with and without floors."""
    rng = np.random.default_rng(seed)
    counts: Counter[tuple[str, float, bool]] = Counter()
    for _ in range(n_runs):
        for name, comparisons in simulate_runs(rng).items():
            for alpha in ALPHAS:
                for floors in (True, False):
                    hit = raises_alarm(comparisons, alpha, floors=floors)
                    counts[name, alpha, floors] += hit
    return [make_row(*key, n_runs, k) for key, k in counts.items()]


def simulate_runs(rng: Rng) -> dict[str, list[Comparison]]:
    """Return the comparisons of one run of each kind; the first two share theirs."""
    keyed = [*simulate_rates(rng), *simulate_band(EVEN, N_OFFERS, rng), *simulate_flips(rng)]
    return {
        "near-ties flip, certified sampling": keyed,
        "near-ties flip, noise of its own": [*keyed, *simulate_sampled(0.0, rng)],
        "independent exact p-values, no floor in the way": simulate_uniform(rng),
    }


def make_row(run: str, alpha: float, has_floors: bool, n_runs: int, k: int) -> FamilyRow:  # noqa: FBT001 - a key
    """Return a row of the result."""
    lower = clopper_pearson(k, n_runs, 0.99, "lower").interval[0] or 0.0
    return FamilyRow(
        run=run,
        floors=has_floors,
        alpha=alpha,
        n_runs=n_runs,
        n_false_alarms=k,
        rate=k / n_runs,
        upper_95=clopper_pearson(k, n_runs, 0.95, "upper").interval[1] or 1.0,
        within_budget=lower <= alpha,
    )


def raises_alarm(comparisons: Sequence[Comparison], alpha: float, *, floors: bool = True) -> bool:
    """Tell whether the gate's judgement fails the run."""
    criteria = CRITERIA if floors else [msgspec.structs.replace(c, floor=0.0) for c in CRITERIA]
    verdicts = judge_all(criteria, comparisons, make_rules(alpha))
    return any(verdict.outcome is Outcome.FAIL for verdict in verdicts)


def make_rules(alpha: float) -> Rules:
    """Return the rules of a run."""
    return Rules(purpose="content", alpha=alpha, max_dropped=0.02, tasks=TASKS)


# ------------------------------------------------------------------ simulated


def simulate_uniform(rng: Rng) -> list[Comparison]:
    """All alarms, each with an exact p-value and an effect above its floor: the worst case."""
    groups = [(c, TASKS if c.groups == "each_task" else (c.groups,)) for c in CRITERIA]
    return [
        Comparison(measure=c.measure, group=group, difference=make_estimate(float(rng.random())))
        for c, names in groups
        for group in names
    ]


def make_estimate(pvalue: float) -> Estimate:
    """Return an effect of 1 with a p-value."""
    return Estimate(
        statistic=1.0,
        interval=(None, None),
        confidence_level=1.0,
        n=100,
        method="simulated",
        pvalue=pvalue,
    )


def simulate_rates(rng: Rng, more: float = 0.0, n_resamples: int = RESAMPLES) -> list[Comparison]:
    """flip_rate and token_unexplained. more: what the candidate's rate of flips has on top."""
    return compare_rates(make_outputs(rng, more), rng, n_resamples)


def make_outputs(rng: Rng, more: float, ties: tuple[float, float] = FLIPS) -> Paired:
    """Return both arms' regrets on 70 requests."""
    totals = rng.integers(LEAST_TOKENS, MOST_TOKENS, N_REQUESTS)
    own = rng.beta(*ties, N_REQUESTS)
    arms = [make_arm(rng, totals, own + extra) for extra in (0.0, more)]
    return Paired(requests=make_requests(), baseline=arms[0], candidate=arms[1], bound=EDGES)


@cache
def make_requests() -> dict[tuple[str, int], Request]:
    """Return greedy requests."""
    return {
        (f"r{n}", 0): Request(id=f"r{n}", task="t", request_class="c", prompt="", max_tokens=1)
        for n in range(N_REQUESTS)
    }


def make_arm(rng: Rng, totals: np.ndarray, rates: np.ndarray) -> Arm:
    """Return an arm whose decisions flip at these rates."""
    keys = list(make_requests())
    n_flips = rng.binomial(totals, rates)
    n_wide = rng.binomial(n_flips, UNEXPLAINED_SHARE)
    regrets = [
        (BOUND,) * int(k - w) + (2 * BOUND,) * int(w) + (0.0,) * int(n - k)
        for n, k, w in zip(totals, n_flips, n_wide, strict=True)
    ]
    return Arm(
        spec=DecoderSpec(kind="simulated"),
        generations=make_generations(),
        scores={key: make_scores(key, regret) for key, regret in zip(keys, regrets, strict=True)},
    )


@cache
def make_generations() -> dict[tuple[str, int], Generation]:
    """Return outputs that did not fail."""
    return {key: Generation(request_id=key[0], finish="length") for key in make_requests()}


def make_scores(key: tuple[str, int], regret: tuple[float, ...]) -> TokenScores:
    """Return what the referee says of an output, as far as rates need it."""
    return TokenScores(
        request_id=key[0],
        token_ids=(),
        regret=regret,
        gap=(),
        entropy=(),
        best_id=(),
        rank=(),
        logprob=(),
    )


def simulate_band(share: float, n: int, rng: Rng) -> list[Comparison]:
    """band_acceptance of a verifier that takes a share of second choices."""
    taken = tuple(bool(taken) for taken in rng.random(n) < share)
    return compare_band(BandProbe(band_nat=3 * BOUND, n_in_band=n, accepted=taken))


def simulate_flips(rng: Rng) -> list[Comparison]:
    """Task scores and guard labels that flip both ways."""
    tasks = [flip("task_delta", name, N_DOCUMENTS, CHANGED_SCORES, rng) for name in TASKS]
    return tasks + [flip("guard_flips", g, n, CHANGED_LABELS, rng) for g, n in GUARDS.items()]


def flip(measure: str, group: str, n: int, share: float, rng: Rng) -> Comparison:
    """Return a comparison of labels of which a share flips, either way alike."""
    gained, lost, _ = (int(k) for k in rng.multinomial(n, [share / 2, share / 2, 1.0 - share]))
    return Comparison(
        measure=measure,
        group=group,
        difference=compare_counts(gained, lost, n),
        detail={"smallest_pvalue": read_smallest_pvalue(n)},
    )


@cache
def compare_counts(gained: int, lost: int, n: int) -> Estimate:
    """Return the paired comparison with these flips."""
    before = [True] * lost + [False] * (n - lost)
    return compare_flags(before, [False] * (n - gained) + [True] * gained, 0.95)


def simulate_sampled(distance: float, rng: Rng) -> Iterator[Comparison]:
    """pit_distance, pooled and by place in a run, sample_lag and sample_tokens."""
    pit, requests = draw_pit(distance, rng)
    is_first = rng.random(pit.size) < 0.4  # noqa: PLR2004 - runs of two or three tokens
    parts = {"all": is_first | ~is_first, RUN_GROUPS[0]: is_first, RUN_GROUPS[1]: ~is_first}
    for group, part in parts.items():
        yield Comparison(
            measure="pit_distance",
            group=group,
            direction="lower_is_better",
            difference=bound_distance(pit[part], requests[part]),
        )
    yield Comparison(measure="sample_lag", difference=lag_correlation(pit, requests))
    yield simulate_frequencies(rng)


def simulate_frequencies(rng: Rng) -> Comparison:
    """sample_tokens of draws that follow their law."""
    law, total = np.full(N_FREQUENT, 1 / N_FREQUENT), TOKENS_DRAWN * N_SAMPLED
    residuals = rng.multinomial(TOKENS_DRAWN, law, N_SAMPLED) - TOKENS_DRAWN * law
    return Comparison(
        measure="sample_tokens",
        direction="lower_is_better",
        difference=frequency_excess(residuals, total * law, rng, RESAMPLES),
        detail={"smallest_pvalue": 1 / (1 + RESAMPLES)},
    )

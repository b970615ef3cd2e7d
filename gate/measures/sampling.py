"""Sampled output of decoders with noise of their own: is it drawn from the referee's law?

The referee fills in the randomised probability integral transform of every sampled token, in
descending order of probability: uniform where tokens come from its law, whatever the prompt
and whatever came before. So is the transform at a given place of a run, which is decided by
the tokens before it. Seeds leave no trace there: copies and lag tests look for those.

How often each frequent token was drawn is held against how often it was expected: that sees what
favours some tokens over others wherever they stand, whatever their rank, as a draft law does that
differs from the model's token by token.

What neither can see: errors that favour other tokens at every position, whatever their rank.
Averaged over positions the draws then follow the law, and one draw per position cannot tell more.
For a draft law that is flatter or sharper than the target's, as a smaller model's is, it shows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np

from gate.measures.diagnosis import place_in_run
from gate.measures.distributions import (
    frequency_excess,
    lag_correlation,
    mmd_permutation,
    pit_distance,
)
from gate.measures.means import MIN_CLUSTERS
from gate.measures.paired import Arm, Key, Paired
from gate.measures.stats import clopper_pearson
from gate.records import Comparison, Estimate

RUN_GROUPS = ("first_of_run", "inside_run")
LEAST_EXPECTED = 10.0
"""Times a token must be expected for its draws to be counted."""
COPY = math.log(1e-8)  # two repeats that agree although this improbable are copies
NO_SAMPLES = "no request outside the conformance set is sampled"
KEYED = "sampled tokens have the project's noise and are judged one by one"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draws:
    """Sampled tokens: transform, request and place in the run of each (-1: unknown)."""

    pit: np.ndarray
    request: np.ndarray
    place: np.ndarray

    def only(self, kept: np.ndarray) -> Draws:
        """Return the tokens that a mask keeps."""
        columns = dataclasses.asdict(self)
        return Draws(**{name: column[kept] for name, column in columns.items()})


def compare_sampling(
    paired: Paired, rng: np.random.Generator, n_resamples: int
) -> list[Comparison]:
    """Return pit_distance (all, and by place in a run), the sample_* measures and text_mmd."""
    keys = [key for key in paired.keys if paired.requests[key].sampling.temperature > 0]
    note = NO_SAMPLES if not keys else KEYED
    measures = [("pit_distance", name) for name in ("all", *RUN_GROUPS)]
    measures += [(name, "all") for name in ("sample_tokens", "sample_lag", "sample_duplicates")]
    measures += [("text_mmd", "all")]
    if not keys or paired.candidate.spec.noise != "own":
        return [Comparison(measure=name, group=group, note=note) for name, group in measures]
    draws = gather_draws(paired.candidate, keys)
    return [
        _distance("all", draws),
        _distance("first_of_run", draws.only(draws.place == 0)),
        _distance("inside_run", draws.only(draws.place > 0)),
        _frequencies(paired, keys, rng, n_resamples),
        _lag(draws),
        _duplicates(paired, keys),
        _texts(paired, keys, rng, n_resamples),
    ]


def gather_draws(arm: Arm, keys: Sequence[Key]) -> Draws:
    """Collect an arm's sampled tokens, those of a request adjacent and in order."""
    rows = [row for n, key in enumerate(keys) for row in _draws_of(arm, key, n)]
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return Draws(
        pit=table[:, 0], request=table[:, 1].astype(np.intp), place=table[:, 2].astype(np.intp)
    )


def _draws_of(arm: Arm, key: Key, n: int) -> Iterator[tuple[float, int, int]]:
    scores = arm.scores.get(key)
    if scores is None:
        return
    for position, pit in enumerate(scores.pit):
        place, _ = place_in_run(arm.generations[key], position)
        yield pit, n, -1 if place is None else place


def _distance(group: str, draws: Draws) -> Comparison:
    base = Comparison(
        measure="pit_distance", group=group, unit="distance", direction="lower_is_better"
    )
    n_requests = len(np.unique(draws.request))
    if n_requests < MIN_CLUSTERS:
        note = f"{n_requests} requests with sampled tokens; {MIN_CLUSTERS} are needed"
        return msgspec.structs.replace(base, note=note)
    estimate = bound_distance(draws.pit, draws.request)
    return msgspec.structs.replace(
        base,
        candidate=estimate.statistic,
        difference=estimate,
        detail={"n_requests": n_requests, "n_tokens": len(draws.pit)},
    )


def bound_distance(
    pit: np.ndarray, clusters: np.ndarray, confidence_level: float = 0.95
) -> Estimate:
    """Return the distance from uniform with a bound on each side, and a p-value of uniformity.

    The band around the empirical distribution holds for both sides at once, so the true
    distance is at least the statistic less the band. pvalue: the level at which the
    band (Dvoretzky-Kiefer-Wolfowitz) would just reach uniform: 2 exp(-(D / se)^2 / 2).
    """
    upper = pit_distance(pit, clusters, confidence_level)
    limit = upper.interval[1]
    band = (1.0 if limit is None else limit) - upper.statistic
    pvalue = _solve_level(upper.statistic, band, confidence_level)
    return msgspec.structs.replace(
        upper,
        interval=(max(0.0, upper.statistic - band), limit),
        pvalue=pvalue,
        method=upper.method.replace("upper bound", "one-sided bound on each side"),
    )


def _solve_level(distance: float, band: float, confidence_level: float) -> float:
    unit = math.sqrt(2.0 * math.log(2.0 / (1.0 - confidence_level)))
    return min(1.0, 2.0 * math.exp(-((distance * unit / band) ** 2) / 2.0)) if band > 0 else 1.0


def _frequencies(
    paired: Paired, keys: Sequence[Key], rng: np.random.Generator, n_resamples: int
) -> Comparison:
    """Frequencies of the candidate's tokens; beside the baseline's where that draws for itself."""
    base = Comparison(measure="sample_tokens", unit="share", direction="lower_is_better")
    signs = {1: paired.candidate}
    if paired.baseline.spec.noise == "own":  # a server, whose law need not be the referee's
        signs[-1] = paired.baseline
    residuals, expected = gather_residuals(signs, keys)
    if len(residuals) < MIN_CLUSTERS or not expected.size:
        note = f"under {MIN_CLUSTERS} requests, or no token expected {LEAST_EXPECTED:.0f} times"
        return msgspec.structs.replace(base, note=note)
    estimate = frequency_excess(residuals, expected, rng, n_resamples)
    detail: dict[str, object] = {
        "n_tokens": expected.size,
        "smallest_pvalue": 1.0 / (1.0 + n_resamples),
    }
    return msgspec.structs.replace(
        base, candidate=estimate.statistic, difference=estimate, detail=detail
    )


def gather_residuals(
    signs: Mapping[int, Arm], keys: Sequence[Key]
) -> tuple[np.ndarray, np.ndarray]:
    """Return draws less expected ones, (n_outputs, n_tokens), and all expected, (n_tokens,).

    Of the tokens that were expected LEAST_EXPECTED times in all; outputs without any are left out.
    signs: the arms, each with the sign that its draws have.
    """
    known = [
        (sign, scores.draws)
        for sign, arm in signs.items()
        for key in keys
        if (scores := arm.scores.get(key)) and scores.draws
    ]
    total: dict[int, float] = {}
    for _, draws in known:
        for token, (expected, _) in draws.items():
            total[token] = total.get(token, 0.0) + expected
    frequent = {t: n for n, t in enumerate(t for t, e in total.items() if e >= LEAST_EXPECTED)}
    residuals = np.zeros((len(known), len(frequent)))
    for row, (sign, draws) in zip(residuals, known, strict=True):
        for token, (expected, n_drawn) in draws.items():
            if token in frequent:
                row[frequent[token]] = sign * (n_drawn - expected)
    return residuals[residuals.any(axis=1)], np.array([total[token] for token in frequent])


def _lag(draws: Draws) -> Comparison:
    base = Comparison(measure="sample_lag", unit="correlation", direction="neutral")
    if len(np.unique(draws.request)) < MIN_CLUSTERS:
        return msgspec.structs.replace(base, note="too few requests with sampled tokens")
    try:
        estimate = lag_correlation(draws.pit, draws.request)
    except ValueError as error:
        return msgspec.structs.replace(base, note=str(error))
    return msgspec.structs.replace(base, candidate=estimate.statistic, difference=estimate)


def _duplicates(paired: Paired, keys: Sequence[Key]) -> Comparison:
    """Pairs of repeats that are equal although that is next to impossible."""
    base = Comparison(measure="sample_duplicates", unit="count", direction="lower_is_better")
    pairs = list(_repeat_pairs(keys))
    if not pairs:
        return msgspec.structs.replace(base, note="no sampled request was sent twice")
    n_copies = sum(_is_copy(paired.candidate, *pair) for pair in pairs)
    return msgspec.structs.replace(
        base,
        baseline=0,
        candidate=n_copies,
        difference=clopper_pearson(n_copies, len(pairs), 0.95, "upper"),
    )


def _repeat_pairs(keys: Sequence[Key]) -> Iterator[tuple[Key, Key]]:
    groups: dict[str, list[Key]] = {}
    for key in keys:
        groups.setdefault(key[0], []).append(key)
    for group in groups.values():
        yield from combinations(group, 2)


def _is_copy(arm: Arm, one: Key, other: Key) -> bool:
    scores = arm.scores.get(one)
    same = arm.generations[one].token_ids == arm.generations[other].token_ids
    return same and scores is not None and sum(scores.processed_logprob) < COPY


def _texts(
    paired: Paired, keys: Sequence[Key], rng: np.random.Generator, n_resamples: int
) -> Comparison:
    """Texts against texts, where the candidate gives no token ids that could be scored."""
    base = Comparison(measure="text_mmd", unit="MMD^2", direction="lower_is_better")
    groups: dict[str, list[Key]] = {}
    for key in keys:
        if key not in paired.candidate.scores:
            groups.setdefault(key[0], []).append(key)
    usable = [group for group in groups.values() if len(group) > 1]
    if not usable:
        note = "the outputs' tokens were scored" if not groups else "no prompt was sent twice"
        return msgspec.structs.replace(base, note=note)
    baseline, candidate = (
        [[_characters(arm, key) for key in group] for group in usable]
        for arm in (paired.baseline, paired.candidate)
    )
    estimate = mmd_permutation(baseline, candidate, rng, n_resamples)
    detail: dict[str, object] = {"smallest_pvalue": 1.0 / (1.0 + n_resamples)}
    return msgspec.structs.replace(
        base, candidate=estimate.statistic, difference=estimate, detail=detail
    )


def _characters(arm: Arm, key: Key) -> list[int]:
    return [ord(character) for character in arm.generations[key].text]

"""Token evidence on servers' outputs, gathered when both arms are done.

Last, because it must not touch what is measured: a referee in memory would slow a server down, and
a server that scores outputs sees prompts again. The noise bound comes from the baseline arm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gate.conformance import TASK as CONFORMANCE
from gate.decoders.evidence import UNMEASURED_NAT
from gate.records import Generation, NoiseBound, Record, Request, TokenScores

QUANTILE = 99.9
LEAST_POSITIONS = 1000
"""Positions of the baseline that a quantile of 99.9% rests on."""
WIDEST_NAT = 1.0
FLOOR_NAT = 1e-3  # of a referee in float32
Outputs = Sequence[tuple[Request, Generation]]


class LateScores(Record, frozen=True, kw_only=True):
    """What was found: scores by arm, the bound, and what belongs on the first screen.

    eos_ids: the tokens that end an output of the model, which a server's requests do not name.
    """

    name: str
    described: dict[str, object] = {}
    scores: dict[str, tuple[TokenScores, ...]] = {}
    bound: NoiseBound
    eos_ids: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


class LateScorer(Protocol):
    """Scores outputs, and counts why it left some out."""

    name: str
    eos_ids: tuple[int, ...]
    unscored: dict[str, int]

    def score(
        self, requests: Sequence[Request], generations: Sequence[Generation]
    ) -> Iterator[TokenScores]:
        """Yield the scores of what can be scored."""
        ...

    def describe(self) -> dict[str, object]:
        """Provenance."""
        ...


def score_late(scorer: LateScorer, outputs: Mapping[str, Outputs]) -> LateScores:
    """Score both arms' outputs; the bound is that of the baseline's. outputs: by arm."""
    scores = {
        arm: tuple(scorer.score([r for r, _ in pairs], [g for _, g in pairs]))
        for arm, pairs in outputs.items()
    }
    bound = bound_noise(scorer.name, outputs["baseline"], scores["baseline"])
    return LateScores(
        name=scorer.name,
        described=scorer.describe(),
        scores=scores,
        bound=bound,
        eos_ids=scorer.eos_ids,
        notes=tuple(write_notes(scorer, bound)),
    )


def bound_noise(name: str, outputs: Outputs, scores: Iterable[TokenScores]) -> NoiseBound:
    """Return the bound from the baseline's regrets and log-probability differences, nats.

    Of each the 99.9% quantile over its greedy tokens outside the conformance set, the larger of
    the two. ``weakness`` says why the bound can carry no certificate.
    """
    found = {(s.request_id, s.repeat): s for s in scores}
    regrets: list[float] = []
    moved: list[float] = []
    for request, generation in outputs:
        one = found.get((request.id, request.repeat))
        if one is None or request.task == CONFORMANCE or request.sampling.temperature:
            continue
        regrets += one.regret
        moved += _list_moves(generation, one)
    quantiles = [
        float(np.percentile(values, QUANTILE)) if values else 0.0 for values in (regrets, moved)
    ]
    bound = max(FLOOR_NAT, *quantiles) if regrets else UNMEASURED_NAT
    return NoiseBound(
        bound=bound,
        dtype="the server's",
        n_positions=len(regrets),
        n_rows=0,
        q999_one_row=quantiles[0],
        q999_wide=quantiles[1],
        source=f"the baseline's own tokens under {name}",
        largest=max([*regrets, *moved], default=0.0),
        weakness=find_weakness(bound, len(regrets)),
    )


def _take_quantile(values: Sequence[float]) -> float:
    return float(np.percentile(values, QUANTILE)) if values else 0.0


def _list_moves(generation: Generation, scores: TokenScores) -> list[float]:
    """How far the server's own log-probabilities are from the scorer's, per token, nats."""
    reported = generation.logprobs or ()
    if len(reported) > len(scores.token_ids):
        return []
    return [
        abs(one.logprob - scores.logprob[n])
        for n, one in enumerate(reported)
        if one.token_id == scores.token_ids[n]
    ]


def find_weakness(bound: float, n_positions: int) -> str:
    """Return why a bound can carry no certificate; empty: it can."""
    if n_positions < LEAST_POSITIONS:
        return (
            f"the noise bound rests on {n_positions:,} tokens of the baseline where "
            f"{LEAST_POSITIONS:,} are needed; gate on more or longer greedy prompts"
        )
    if bound > WIDEST_NAT:
        return (
            f"the noise band is {bound:.2g} nat wide where {WIDEST_NAT:g} is the most that shows "
            "a defect; name a referee that is closer to what the server runs"
        )
    return ""


def write_notes(scorer: LateScorer, bound: NoiseBound) -> Iterator[str]:
    """Say what scored the tokens, how wide the band is, and what was left out."""
    yield (
        f"tokens were scored by {scorer.name}; noise bound {bound.bound:.2g} nat, "
        f"from {bound.n_positions:,} tokens of the baseline"
    )
    for reason, n in sorted(scorer.unscored.items()):
        yield f"{n} output{'s' if n > 1 else ''} not scored: {reason}"


def gather(requests: Iterable[Request], generations: Mapping[Any, Generation]) -> Outputs:
    """Join requests with their outputs, leaving out what failed."""
    keyed = ((r, generations.get((r.id, r.repeat))) for r in requests)
    return [(r, g) for r, g in keyed if g is not None and g.finish != "error"]

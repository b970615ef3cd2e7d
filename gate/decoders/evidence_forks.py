"""Token evidence from the likeliest tokens that the baseline's own server tells at each position.

Up to the first difference of two greedy outputs both servers decided on the same prefix, so the
baseline's reported log-probabilities there judge the candidate's token as well: its regret is what
it lies behind the best of them. The weakest of the three sources: the baseline judges itself, and
what follows a difference is not judged at all.

The noise bound comes from the baseline alone: in a new life it is sent its prompts again, in the
opposite order and so in other company, and the bound is the 99.9% quantile of how far that moves
the gap between the two likeliest tokens, at least FLOOR_NAT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from gate.conformance import TASK as CONFORMANCE
from gate.decoders.evidence import UNMEASURED_NAT
from gate.decoders.evidence_server import make_scores
from gate.decoders.late import (
    LEAST_POSITIONS,
    QUANTILE,
    LateScores,
    Outputs,
    find_weakness,
)
from gate.records import Generation, NoiseBound, Request, TokenScores, needs_processing

NAME = (
    "the likeliest tokens that the baseline's own server reports, which are not independent of it "
    "and judge nothing behind the first difference of two outputs"
)
FLOOR_NAT = 0.25
"""Two spacings of a 16-bit logit between 16 and 32: the server's precision is not known, and with
drafts it decodes more rows at once than the baseline ever does."""
LEAST_SHARE = 0.5
"""Share of the candidate's tokens that must lie before a difference, or nothing is certified."""
RESENT = 2 * LEAST_POSITIONS
"""Tokens of the baseline that are made again: some lie behind a difference."""
Send = Callable[[Sequence[Request]], Sequence[Generation]]
Table = dict[int, float]
"""Token id -> log-probability, nats."""


class _Pair(NamedTuple):
    request: Request
    baseline: Generation
    candidate: Generation


def score_forks(outputs: Mapping[str, Outputs], send: Send) -> LateScores:
    """Score both arms up to the first difference. send: decodes with the baseline, anew."""
    pairs = list(_join(outputs))
    usable = [pair for pair in pairs if _is_told(pair.baseline) and pair.candidate.token_ids]
    scored = [(pair, found) for pair in usable if (found := _score_candidate(pair))]
    bound = _measure_bound([pair for pair, _ in scored], send)
    n_judged = sum(len(found.token_ids) for _, found in scored)
    n_tokens = sum(len(pair.candidate.token_ids or ()) for pair, _ in scored)
    return LateScores(
        name=NAME,
        described={"kind": "top log-probabilities of the baseline", "is_independent": False},
        scores={
            "baseline": tuple(_score_baseline(pair) for pair, _ in scored),
            "candidate": tuple(found for _, found in scored),
        },
        bound=bound if n_judged >= LEAST_SHARE * n_tokens else _weaken(bound, n_judged, n_tokens),
        notes=tuple(_write_notes(bound, len(pairs) - len(scored), n_judged, n_tokens)),
    )


def _join(outputs: Mapping[str, Outputs]) -> Iterator[_Pair]:
    """Yield what both arms answered, greedily and by the plain law, which is the one reported."""
    other = {(r.id, r.repeat): g for r, g in outputs["candidate"]}
    for request, generation in outputs["baseline"]:
        found = other.get((request.id, request.repeat))
        is_plain = request.task != CONFORMANCE and not needs_processing(request)
        if found is not None and is_plain:
            yield _Pair(request, generation, found)


def _is_told(generation: Generation) -> bool:
    """Whether each token came with its own log-probability and another's."""
    told = generation.logprobs or ()
    return bool(told) and all(one.top for one in told)


def _tables(generation: Generation) -> list[Table]:
    told = generation.logprobs or ()
    return [{**dict(one.top), one.token_id: one.logprob} for one in told]


def _count_shared(one: Generation, other: Generation) -> int:
    """Return the number of tokens before the first difference."""
    ids, others = one.token_ids or (), other.token_ids or ()
    same = (a == b for a, b in zip(ids, others, strict=False))
    return next((n for n, found in enumerate(same) if not found), min(len(ids), len(others)))


def _score_baseline(pair: _Pair) -> TokenScores:
    return make_scores(pair.request, pair.baseline.token_ids or (), _tables(pair.baseline))


def _score_candidate(pair: _Pair) -> TokenScores | None:
    """Return the candidate's scores; None where one output ends inside the other.

    A token that the baseline does not list is at least as unlikely as the last one listed.
    """
    ids, theirs = pair.candidate.token_ids or (), pair.baseline.token_ids or ()
    n = _count_shared(pair.baseline, pair.candidate)
    if n == min(len(ids), len(theirs)) and len(ids) != len(theirs):
        return None
    judged, tables = ids[: n + 1], _tables(pair.baseline)[: n + 1]
    if judged[-1] not in tables[-1]:
        tables[-1][judged[-1]] = min(tables[-1].values())
    return make_scores(pair.request, judged, tables)


# ---------------------------------------------------------------------- noise


def _measure_bound(pairs: Sequence[_Pair], send: Send) -> NoiseBound:
    first = {(p.request.id, p.request.repeat): p.baseline for p in _choose(pairs)}
    again = send([p.request for p in reversed(_choose(pairs))]) if first else ()
    moves = [
        move
        for one in again
        if _is_told(one)
        for move in _list_moves(first[one.request_id, one.repeat], one)
    ]
    quantile = float(np.percentile(moves, QUANTILE)) if moves else 0.0
    bound = max(FLOOR_NAT, quantile) if moves else UNMEASURED_NAT
    return NoiseBound(
        bound=bound,
        dtype="the server's",
        n_positions=len(moves),
        n_rows=0,
        q999_one_row=quantile,
        q999_wide=quantile,
        source="the baseline's own gaps when its prompts were sent again, in other company",
        largest=max(moves, default=0.0),
        weakness=find_weakness(bound, len(moves)),
    )


def _choose(pairs: Sequence[_Pair]) -> list[_Pair]:
    """Return pairs spread over the run, with enough tokens between them."""
    n_tokens = sum(len(pair.baseline.token_ids or ()) for pair in pairs)
    return list(pairs[:: max(1, n_tokens // RESENT)])


def _list_moves(first: Generation, again: Generation) -> Iterator[float]:
    """Yield by how much the gap between the two likeliest tokens moved, nats, per position."""
    n = _count_shared(first, again) + 1
    for before, after in zip(_tables(first)[:n], _tables(again)[:n], strict=False):
        best, second = sorted(before, key=lambda token: -before[token])[:2]
        if best in after and second in after:
            yield abs(before[best] - before[second] - (after[best] - after[second]))


# ---------------------------------------------------------------------- words


def _weaken(bound: NoiseBound, n_judged: int, n_tokens: int) -> NoiseBound:
    why = (
        f"outputs part so early that {n_judged:,} of the candidate's {n_tokens:,} tokens can be "
        f"judged where {LEAST_SHARE:.0%} are needed; name a [referee]"
    )
    return msgspec.structs.replace(bound, weakness=bound.weakness or why)


def _write_notes(bound: NoiseBound, n_left: int, n_judged: int, n_tokens: int) -> Iterator[str]:
    yield (
        f"tokens were scored by {NAME}; {n_judged:,} of the candidate's {n_tokens:,} tokens were "
        f"judged; noise bound {bound.bound:.2g} nat, from {bound.n_positions:,} tokens of the "
        "baseline, sent again"
    )
    if n_left:
        yield (
            f"{n_left} output{'s' if n_left > 1 else ''} not scored: no token ids with the "
            "likeliest tokens, or one arm's output ends inside the other's"
        )

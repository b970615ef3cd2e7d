"""Whether reported log-probabilities are the referee's, of the kind and number asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gate.records import Generation, Request, TokenLogprob, TokenScores

CUT = -1e4  # processed log-probability of a token that the referee cuts
Fault = tuple[str, str]
"""(what was expected, what came)."""


def find_logprob_faults(
    request: Request, generation: Generation, scores: TokenScores | None, tolerance: float
) -> Iterator[Fault]:
    """Yield the first fault of an output's reported log-probabilities, nats.

    ``tolerance``: honest arithmetic, in nats of the untempered logits. A token that it may move
    across a cut has no processed log-probability to compare with where the referee cuts it.
    """
    if request.n_logprobs is None or not generation.token_ids:
        return
    reported, ids = generation.logprobs or (), generation.token_ids
    if tuple(entry.token_id for entry in reported) != ids:
        yield f"a log-probability for each of {len(ids)} tokens", _describe_ids(reported, ids)
        return
    if generation.logprobs_kind != request.logprobs_kind:
        yield f"{request.logprobs_kind} log-probabilities", f"{generation.logprobs_kind} ones"
        return
    band, is_raw = tolerance, request.logprobs_kind == "raw"
    if not is_raw:
        tolerance /= request.sampling.temperature or 1.0
    for at, entry in enumerate(reported):
        is_comparable = scores is not None and (is_raw or not _is_cut_edge(scores, at, band))
        found = _check_value(request, entry, at, scores if is_comparable else None, tolerance)
        found = found or _check_top(request, entry, at, tolerance)
        if found:
            yield found
            return


def _describe_ids(reported: Sequence[TokenLogprob], ids: Sequence[int]) -> str:
    if len(reported) != len(ids):
        return f"{len(reported)}"
    return "those of other tokens"


def _is_cut_edge(scores: TokenScores, at: int, band: float) -> bool:
    """Whether the referee cuts the emitted token, and honest arithmetic may not."""
    if at >= len(scores.processed_logprob) or not scores.cut_distance:
        return False
    return scores.processed_logprob[at] <= CUT and scores.cut_distance[at] <= band


def _check_value(
    request: Request, entry: TokenLogprob, at: int, scores: TokenScores | None, tolerance: float
) -> Fault | None:
    if scores is None:
        return None
    is_raw = request.logprobs_kind == "raw"
    known = scores.logprob if is_raw else scores.processed_logprob
    if at >= len(known) or abs(entry.logprob - known[at]) <= tolerance:
        return None
    return f"{known[at]:.4f} at output position {at}", f"{entry.logprob:.4f}"


def _check_top(request: Request, entry: TokenLogprob, at: int, tolerance: float) -> Fault | None:
    """The likeliest tokens: so many, in order, none less likely than one left out."""
    n = request.n_logprobs or 0
    if n == 0:
        return None
    where = f"at output position {at}"
    values = [value for _, value in entry.top]
    is_short = not values if request.logprobs_kind == "processed" else len(values) < n
    if is_short or len(values) > n:
        return f"the {n} likeliest tokens {where}", f"{len(values)}"
    if any(left < right for left, right in pairwise(values)):
        return f"the likeliest tokens first {where}", "another order"
    own = dict(entry.top).get(entry.token_id)
    if own is None and entry.logprob > values[-1] + tolerance:
        return f"the emitted token among the {n} likeliest {where}", "less likely ones"
    if own is not None and abs(own - entry.logprob) > tolerance:
        came = f"{own:.4f} and {entry.logprob:.4f}"
        return f"one log-probability of the emitted token {where}", came
    return None

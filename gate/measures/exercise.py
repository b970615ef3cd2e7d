"""Whether the candidate did what it is gated for: drafts it had accepted, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from gate.measures.paired import Key, Paired
from gate.records import Comparison, Estimate, Generation


def adds_up(generation: Generation) -> bool:
    """Whether a trace's counts can be true of the output it came with.

    Accepted tokens are drafted and emitted ones, and the steps emit the output: the token of
    the prefill may be left out, and the last step may reach past the end.
    """
    steps = generation.trace.steps if generation.trace else ()
    if any(s.n_accepted > min(s.n_drafted, s.n_emitted) or s.n_accepted < 0 for s in steps):
        return False
    if generation.token_ids is None:
        return True
    n = len(generation.token_ids) + len(generation.tail_ids)
    total = sum(s.n_emitted for s in steps)
    return total - steps[-1].n_emitted <= n <= total + 1


def compare_exercise(paired: Paired) -> list[Comparison]:
    """Return the measure exercised: drafts the candidate had accepted, and where."""
    detail, n_known = _count_exercise(paired)
    base = Comparison(measure="exercised", unit="count", detail=detail)
    if n_known == 0:
        note = "the candidate does not say how many drafts it accepted"
        return [msgspec.structs.replace(base, note=note)]
    total = float(str(detail["accepted"]))
    counted = Estimate(
        statistic=total,
        interval=(total, total),
        confidence_level=1.0,
        n=n_known,
        method="count",
    )
    return [
        msgspec.structs.replace(
            base,
            direction="higher_is_better",
            baseline=0.0,
            candidate=total,
            difference=counted,
        )
    ]


class _Accepted(NamedTuple):
    """What some requests had accepted. n_requests: how many of them, at the least."""

    keys: tuple[Key, ...]
    n_drafted: int
    n_accepted: int
    n_requests: int
    adds_up: bool = True


def _count_exercise(paired: Paired) -> tuple[dict[str, object], int]:
    """Return what was accepted, and of how many requests it is known."""
    found = [*_read_outputs(paired), *_read_batches(paired)]
    by_class = dict.fromkeys((r.request_class for r in paired.requests.values()), 0)
    for one in found:
        if one.adds_up:
            by_class[paired.requests[one.keys[0]].request_class] += one.n_accepted
    n_known = sum(len(one.keys) for one in found)
    detail: dict[str, object] = {
        "accepted": sum(by_class.values()),
        "requests": sum(one.n_requests for one in found if one.adds_up),
        "by_class": by_class,
        "drafted": sum(one.n_drafted for one in found if one.adds_up),
        "n_not_adding_up": sum(not one.adds_up for one in found),
        "unknown": n_known == 0,
    }
    return detail, n_known


def _read_outputs(paired: Paired) -> Iterator[_Accepted]:
    """Yield what each output's own trace says."""
    for key in paired.requests:
        generation = paired.candidate.generations.get(key)
        if generation is None or generation.trace is None:
            continue
        steps, drafts = generation.trace.steps, generation.trace.drafts
        if steps:
            accepted = sum(step.n_accepted for step in steps)
            drafted = sum(step.n_drafted for step in steps)
            yield _Accepted((key,), drafted, accepted, int(accepted > 0), adds_up(generation))
        elif drafts is not None:
            is_possible = drafts.n_accepted <= count_tokens(generation)
            n = int(drafts.n_accepted > 0)
            yield _Accepted((key,), drafts.n_drafted or 0, drafts.n_accepted, n, is_possible)


def _read_batches(paired: Paired) -> Iterator[_Accepted]:
    """Yield what a server counted over whole batches, each of one request class.

    A request cannot have more accepted than it has tokens, so the longest outputs that could
    hold all of a batch's accepted tokens are the fewest requests that had any.
    """
    for keys, drafts in paired.candidate.counted:
        if not all(key in paired.requests for key in keys):
            continue
        outputs = [paired.candidate.generations[key] for key in keys]
        lengths = sorted((count_tokens(one) for one in outputs), reverse=True)
        yield _Accepted(
            keys,
            drafts.n_drafted or 0,
            drafts.n_accepted,
            count_fewest(drafts.n_accepted, lengths),
            drafts.n_accepted <= sum(lengths),
        )


def count_fewest(total: int, lengths: Sequence[int]) -> int:
    """Return how many of ``lengths``, longest first, it takes to hold ``total``."""
    held = 0
    for n, length in enumerate(lengths):
        if held >= total:
            return n
        held += length
    return len(lengths)


def count_tokens(generation: Generation) -> int:
    """Return how many tokens an output has, as counted by its ids, else by the server."""
    known = len(generation.token_ids or ()) + len(generation.tail_ids)
    return max(known, generation.usage.n_output if generation.usage else 0)

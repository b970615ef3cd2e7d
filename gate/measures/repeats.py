"""Requests sent again: does an arm give what it gave before, in other company?

A request that is greedy, or sampled with the project's noise, has one output up to ties, whatever
is decoded beside it and however wide the batch is. Elsewhere nothing else can be asked of the
candidate than what the baseline itself does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gate.measures.bounds import compare_flags, read_smallest_pvalue
from gate.measures.paired import Arm, Key
from gate.measures.stats import clopper_pearson
from gate.measures.tokens import UNEXPLAINED_FACTOR
from gate.records import Comparison, Generation, NoiseBound, TokenScores

NONE_SENT = "no request has an output that must come again"
ARMS = ("baseline", "candidate")


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """What both arms gave the second time. passes: per arm, one Arm per batch width."""

    keys: tuple[Key, ...]
    widths: tuple[int, ...] = ()
    passes: Mapping[str, Sequence[Arm]] = field(default_factory=dict)


class Change(NamedTuple):
    """How an output differs from the first one. is_tie: by arithmetic noise alone."""

    request_id: str
    position: int
    is_tie: bool


def compare_repeats(
    found: Repeats | None, first: Mapping[str, Arm], bound: NoiseBound
) -> list[Comparison]:
    """Return baseline_repeats, repeats (changed beyond ties) and repeat_rate (changed at all).

    first: the arms' outputs in the run itself.
    """
    if found is None:
        return []
    if not found.keys:
        names = ("baseline_repeats", "repeats", "repeat_rate")
        return [Comparison(measure=name, unit="count", note=NONE_SENT) for name in names]
    changes = {name: list_changes(found, first[name], name, bound) for name in ARMS}
    return [
        _count("baseline_repeats", "baseline", changes, found),
        _count("repeats", "candidate", changes, found),
        _compare_rates(changes, found),
    ]


def _count(
    measure: str, judged: str, changes: Mapping[str, list[Change]], found: Repeats
) -> Comparison:
    beyond = {name: {c.request_id for c in one if not c.is_tie} for name, one in changes.items()}
    n = len(found.keys)
    return Comparison(
        measure=measure,
        unit="count",
        direction="lower_is_better",
        baseline=len(beyond["baseline"]),
        candidate=len(beyond["candidate"]),
        difference=clopper_pearson(len(beyond[judged]), n, 0.95, "upper"),
        detectable=f"a change in one of {max(n // 3, 1)} requests",
        detail={
            "n_requests": n,
            "widths": list(found.widths),
            "n_ties": len({c.request_id for c in changes[judged]} - beyond[judged]),
            "changes": [c._asdict() for c in changes[judged]],
        },
    )


def _compare_rates(changes: Mapping[str, list[Change]], found: Repeats) -> Comparison:
    names = [key[0] for key in found.keys]
    changed = {name: {c.request_id for c in one} for name, one in changes.items()}
    before, after = ([one in changed[name] for one in names] for name in ARMS)
    return Comparison(
        measure="repeat_rate",
        unit="share",
        direction="lower_is_better",
        baseline=sum(before) / len(names),
        candidate=sum(after) / len(names),
        difference=compare_flags(before, after, 0.95),
        detail={"n_units": len(names), "smallest_pvalue": read_smallest_pvalue(len(names))},
    )


def list_changes(found: Repeats, first: Arm, name: str, bound: NoiseBound) -> list[Change]:
    """Return the outputs of an arm that came out otherwise."""
    return [
        change
        for again in found.passes[name]
        for key in found.keys
        if not first.failed(key)
        for change in _find_change(first, again, key, UNEXPLAINED_FACTOR * bound.bound)
    ]


def _find_change(first: Arm, again: Arm, key: Key, bound: float) -> Iterator[Change]:
    if again.failed(key):
        yield Change(key[0], 0, is_tie=False)
        return
    before, after = first.generations[key], again.generations[key]
    one, other = _read_ids(before), _read_ids(after)
    if one is None or other is None:
        if before.text != after.text:
            yield Change(key[0], 0, is_tie=False)
        return
    shorter = min(len(one), len(other))
    at = next((i for i in range(shorter) if one[i] != other[i]), shorter)
    if at < shorter:
        scores = first.scores.get(key), again.scores.get(key)
        yield Change(key[0], at, is_tie=all(_is_close(s, at, bound) for s in scores))
    elif len(one) != len(other):
        yield Change(key[0], at, is_tie=False)


def _read_ids(generation: Generation) -> tuple[int, ...] | None:
    ids = generation.token_ids
    return None if ids is None else (*ids, *generation.tail_ids)


def _is_close(scores: TokenScores | None, at: int, bound: float) -> bool:
    return scores is not None and at < len(scores.regret) and scores.regret[at] <= bound

"""Where the arms' outputs part, and what the referee says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gate.measures.paired import Key, Paired
from gate.measures.tokens import classify
from gate.records import Alternative, Comparison, Fork, Generation, TokenScores, TokenView

CONTEXT = 24  # tokens shown on either side of a fork
PROMPT_SHOWN = 2000  # characters
LISTED = 500  # forks that a decision holds
Decode = Callable[[Sequence[int]], str]
SEVERITY = {"defect": 0, "unexplained": 1, "unscored": 2, "tie": 3, "exact": 4}


class _Place(NamedTuple):
    """Where one pair parts: output position, class of evidence, both regrets."""

    key: Key
    at: int
    kind: str
    regret_baseline: float | None
    regret_candidate: float | None


def find_forks(
    paired: Paired, texts: Mapping[Key, str], decode: Decode, limit: int = LISTED
) -> tuple[Fork, ...]:
    """Return the first fork of every pair that differs, worst first, at most ``limit``.

    texts: the prompts as written, by key. decode: token ids to text.
    """
    places = sorted(_find_places(paired), key=lambda p: (SEVERITY[p.kind], p.key))
    return tuple(_show(paired, place, texts.get(place.key, ""), decode) for place in places[:limit])


def mark_scores(forks: Iterable[Fork], changed: Mapping[str, bool]) -> tuple[Fork, ...]:
    """Return forks that know whether the score of their document changed. changed: by request."""
    return tuple(
        msgspec.structs.replace(fork, score_changed=changed.get(fork.request_id)) for fork in forks
    )


def compare_forks(paired: Paired) -> list[Comparison]:
    """Return ``forks``, for all pairs and per class: how many parted, by class of evidence.

    Counts of this run, so that a reader knows how many forks there are beside those shown.
    """
    places = list(_find_places(paired))
    classes = dict.fromkeys(paired.requests[key].request_class for key in paired.keys)
    return [_count(paired, places, group) for group in ("all", *classes)]


def _count(paired: Paired, places: Iterable[_Place], group: str) -> Comparison:
    def belongs(key: Key) -> bool:
        return group in ("all", paired.requests[key].request_class)

    own = [place for place in places if belongs(place.key)]
    return Comparison(
        measure="forks",
        group=group,
        unit="count",
        candidate=len(own),
        detail={
            "n_pairs": sum(belongs(key) for key in paired.keys),
            "by_kind": dict(Counter(place.kind for place in own)),
        },
    )


def _find_places(paired: Paired) -> Iterable[_Place]:
    return (place for key in paired.keys if (place := _find_place(paired, key)))


def _find_place(paired: Paired, key: Key) -> _Place | None:
    b, c = paired.baseline.generations[key], paired.candidate.generations[key]
    b_ids, c_ids = _emitted(b), _emitted(c)
    if b_ids == c_ids and b.text == c.text and b.finish == c.finish:
        return None
    at = next(
        (i for i, (x, y) in enumerate(zip(b_ids, c_ids, strict=False)) if x != y),
        min(len(b_ids), len(c_ids)),
    )
    regrets = [_regret_at(arm.scores.get(key), at) for arm in (paired.baseline, paired.candidate)]
    known = [r for r in regrets if r is not None]
    kind = classify(max(known), paired.bound.bound) if known else "unscored"
    return _Place(key, at, kind, *regrets)


def _show(paired: Paired, place: _Place, prompt: str, decode: Decode) -> Fork:
    """Return the fork with its texts. Texts are decoded only for what is listed."""
    key, at = place.key, place.at
    request, c_scores = paired.requests[key], paired.candidate.scores.get(key)
    b_ids, c_ids = (_emitted(arm.generations[key]) for arm in (paired.baseline, paired.candidate))
    return Fork(
        request_id=request.id,
        repeat=request.repeat,
        task=request.task,
        request_class=request.request_class,
        position=at,
        kind=place.kind,
        regret_baseline=place.regret_baseline,
        regret_candidate=place.regret_candidate,
        gap=c_scores.gap[at] if c_scores and at < len(c_scores.gap) else None,
        token_baseline=_view(b_ids, at, decode),
        token_candidate=_view(c_ids, at, decode),
        prompt=prompt[:PROMPT_SHOWN],
        before=decode(b_ids[max(0, at - CONTEXT) : at]),
        after_baseline=decode(b_ids[at + 1 : at + 1 + CONTEXT]),
        after_candidate=decode(c_ids[at + 1 : at + 1 + CONTEXT]),
        tokens_baseline=_split(b_ids, at, decode),
        tokens_candidate=_split(c_ids, at, decode),
        alternatives=_rank(paired, key, at, decode),
    )


def _emitted(generation: Generation) -> tuple[int, ...]:
    return (*(generation.token_ids or ()), *generation.tail_ids)


def _regret_at(scores: TokenScores | None, position: int) -> float | None:
    return scores.regret[position] if scores and position < len(scores.regret) else None


def _view(ids: Sequence[int], at: int, decode: Decode) -> TokenView | None:
    return TokenView(token_id=ids[at], text=decode(ids[at : at + 1])) if at < len(ids) else None


def _split(ids: Sequence[int], at: int, decode: Decode) -> tuple[str, ...]:
    return tuple(decode((token,)) for token in ids[at : at + 1 + CONTEXT])


def _rank(paired: Paired, key: Key, at: int, decode: Decode) -> tuple[Alternative, ...]:
    """Return the referee's likeliest tokens at the fork. Both arms saw the same prefix there."""
    for arm in (paired.candidate, paired.baseline):
        scores = arm.scores.get(key)
        if scores and at in scores.top:
            return tuple(
                Alternative(token=TokenView(token_id=i, text=decode((i,))), behind_nat=nats)
                for i, nats in scores.top[at]
            )
    return ()

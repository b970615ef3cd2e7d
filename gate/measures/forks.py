"""Where the arms' outputs part, and what the referee says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gate.measures.paired import Key, Paired
from gate.measures.tokens import classify
from gate.records import Fork, Generation, TokenScores, TokenView

CONTEXT = 24  # tokens shown on either side of a fork
PROMPT_SHOWN = 2000  # characters
Decode = Callable[[Sequence[int]], str]
SEVERITY = {"defect": 0, "unexplained": 1, "unscored": 2, "tie": 3, "exact": 4}


def find_forks(
    paired: Paired, texts: Mapping[Key, str], decode: Decode, limit: int = 500
) -> tuple[Fork, ...]:
    """Return the first fork of every pair that differs, worst first.

    texts: the prompts as written, by key. decode: token ids to text.
    """
    forks = [
        fork for key in paired.keys if (fork := _fork_of(paired, key, texts.get(key, ""), decode))
    ]
    return tuple(sorted(forks, key=lambda f: (SEVERITY[f.kind], f.request_id))[:limit])


def _fork_of(paired: Paired, key: Key, prompt: str, decode: Decode) -> Fork | None:
    b, c = paired.baseline.generations[key], paired.candidate.generations[key]
    b_ids, c_ids = _emitted(b), _emitted(c)
    if b_ids == c_ids and b.text == c.text and b.finish == c.finish:
        return None
    at = next(
        (i for i, (x, y) in enumerate(zip(b_ids, c_ids, strict=False)) if x != y),
        min(len(b_ids), len(c_ids)),
    )
    b_scores, c_scores = paired.baseline.scores.get(key), paired.candidate.scores.get(key)
    b_regret, c_regret = _regret_at(b_scores, at), _regret_at(c_scores, at)
    known = [r for r in (b_regret, c_regret) if r is not None]
    request = paired.requests[key]
    return Fork(
        request_id=request.id,
        repeat=request.repeat,
        task=request.task,
        request_class=request.request_class,
        position=at,
        kind=classify(max(known), paired.bound.bound) if known else "unscored",
        regret_baseline=b_regret,
        regret_candidate=c_regret,
        gap=c_scores.gap[at] if c_scores and at < len(c_scores.gap) else None,
        token_baseline=_view(b_ids, at, decode),
        token_candidate=_view(c_ids, at, decode),
        prompt=prompt[:PROMPT_SHOWN],
        before=decode(b_ids[max(0, at - CONTEXT) : at]),
        after_baseline=decode(b_ids[at + 1 : at + 1 + CONTEXT]),
        after_candidate=decode(c_ids[at + 1 : at + 1 + CONTEXT]),
    )


def _emitted(generation: Generation) -> tuple[int, ...]:
    return (*(generation.token_ids or ()), *generation.tail_ids)


def _regret_at(scores: TokenScores | None, position: int) -> float | None:
    return scores.regret[position] if scores and position < len(scores.regret) else None


def _view(ids: Sequence[int], at: int, decode: Decode) -> TokenView | None:
    return TokenView(token_id=ids[at], text=decode(ids[at : at + 1])) if at < len(ids) else None

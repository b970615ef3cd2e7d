"""Drafts from known outputs: long accepted runs, and rejections of likely tokens.

A fault inside a run needs runs; a relaxed rule needs drafts that are likely and wrong. So a
request's own continuation is recorded once with the baseline, past its end, together with the
second best token of every position, which then stands in for some of the drafts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.options import AutoregressiveOptions
from gate.decoders.sampling import Law
from gate.noise import mix_int
from gate.records import Record, Request

if TYPE_CHECKING:
    from gate.models import LoadedModel

LENGTH = 6
"""Tokens of a draft."""
CONTEXT = 2
"""Last tokens of an output that find its place in the recorded one, once both differ."""
BEYOND = 4
"""Tokens recorded past an output's end."""
WRONG_OF = (3, 11)
"""So many drafts of so many are the second best token."""


class Recorded(Record, frozen=True, kw_only=True):
    """One output and what was second best at each of its positions."""

    token_ids: tuple[int, ...]
    seconds: tuple[int, ...]


Key = tuple[str, int]


class RecordedDrafts:
    """External drafts: what the baseline said next, with second best tokens in between."""

    def __init__(self, known: Mapping[Key, Recorded]) -> None:
        """``known``: by request id and repeat."""
        self._known = known

    def __call__(self, request: Request, output: tuple[int, ...]) -> list[list[int]]:
        """Return a decoy of the second best token, then the continuation."""
        known = self._known.get((request.id, request.repeat))
        if known is None:
            return []
        at = find_place(known.token_ids, output)
        if at is None:
            return []
        chain = [self._pick(known, i) for i in range(at, min(at + LENGTH, len(known.token_ids)))]
        return [list(known.seconds[at : at + 1]), chain] if chain else []

    def _pick(self, known: Recorded, place: int) -> int:
        wrong, of = WRONG_OF
        is_wrong = mix_int(place + len(known.token_ids)) % of < wrong
        return known.seconds[place] if is_wrong else known.token_ids[place]


def find_place(ids: Sequence[int], output: Sequence[int]) -> int | None:
    """Return the index in ``ids`` that continues ``output``: the same, or its last tokens."""
    n = len(output)
    if tuple(ids[:n]) == tuple(output):
        return n
    tail = tuple(output[-CONTEXT:])
    found = [i for i in range(CONTEXT, len(ids)) if tuple(ids[i - CONTEXT : i]) == tail]
    return min(found, key=lambda i: abs(i - n), default=None)


def record_drafts(model: LoadedModel, batches: Iterable[Sequence[Request]]) -> dict[Key, Recorded]:
    """Decode plainly, past the ends where nothing but the end is lost by that, and remember."""
    decoder = AutoregressiveDecoder(model, AutoregressiveOptions())
    seconds: dict[Key, list[list[int]]] = {}

    def tap(request: Request, position: int, law: Law) -> None:  # noqa: ARG001 - in order
        pair = law.processed.topk(2).indices.tolist()
        seconds.setdefault((request.id, request.repeat), []).append(pair)

    decoder.tap = tap
    found = {}
    for batch in batches:
        for one in decoder.generate([go_on(request) for request in batch]):
            key, ids = (one.request_id, one.repeat), (one.token_ids or ()) + one.tail_ids
            pairs = zip(seconds.get(key, ()), ids, strict=False)
            others = [pair[1] if pair[0] == token else pair[0] for pair, token in pairs]
            found[key] = Recorded(token_ids=ids, seconds=tuple(others))
    return found


def go_on(request: Request) -> Request:
    """Return the request without its ends. A minimum needs the end it keeps away."""
    if request.min_tokens or request.response_format is not None:
        return request
    return msgspec.structs.replace(
        request,
        max_tokens=request.max_tokens + BEYOND,
        stop=(),
        eos_ids=(),
        stream=False,
        n_logprobs=None,
    )

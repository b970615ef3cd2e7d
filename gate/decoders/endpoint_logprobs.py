"""Log-probabilities as servers write them: chat style or completion style, ids told or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec

from gate.records import TokenLogprob

MOST_ID = 2**31 - 1
TokenId = Annotated[int, msgspec.Meta(ge=-MOST_ID, le=MOST_ID)]
ROUNDING = 1e-3  # nats above 0 that a log-probability may come out at
TOKEN_ID = "token_id:"  # noqa: S105 - how vLLM writes a token as its id


class _Entry(msgspec.Struct):
    """One token of chat-style log-probabilities."""

    logprob: float
    token: str = ""
    id: TokenId | None = None
    bytes: list[int] | None = None
    top_logprobs: list[_Entry] = []


class Logprobs(msgspec.Struct):
    """Chat style has ``content``; completion style has the other three."""

    content: list[_Entry] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


def list_texts(found: Logprobs | None) -> list[bytes]:
    """Return the text of each token of chat-style log-probabilities."""
    entries = (found.content if found else None) or []
    return [bytes(e.bytes) if e.bytes is not None else e.token.encode() for e in entries]


def read_logprobs(found: Logprobs) -> Sequence[TokenLogprob]:
    """Return log-probabilities with their token ids, -1 where an id is not told."""
    if found.content is not None:
        return [_read_entry(entry) for entry in found.content]
    tokens, values = found.tokens or [], found.token_logprobs or []
    tops = found.top_logprobs or [None] * len(tokens)
    if not len(tokens) == len(values) == len(tops):
        msg = (
            f"log-probabilities of {len(values)} tokens and likeliest tokens of {len(tops)} came "
            f"with {len(tokens)} tokens"
        )
        raise ValueError(msg)
    return [
        TokenLogprob(
            token_id=_read_id(token),
            logprob=_read_value(value),
            top=_sort((_read_id(name), _read_value(each)) for name, each in (top or {}).items()),
        )
        for token, value, top in zip(tokens, values, tops, strict=True)
    ]


def drop_added(entries: Sequence[TokenLogprob], n: int | None) -> tuple[TokenLogprob, ...]:
    """Leave out the emitted token where it was added to the ``n`` likeliest that were asked for.

    OpenAI's completions API, and vLLM's, return one more where the emitted token is not of them.
    """
    return tuple(
        msgspec.structs.replace(entry, top=entry.top[:-1])
        if n and len(entry.top) == n + 1 and entry.top[-1][0] == entry.token_id
        else entry
        for entry in entries
    )


def _read_entry(entry: _Entry) -> TokenLogprob:
    tops = ((_id_of(one), _read_value(one.logprob)) for one in entry.top_logprobs)
    return TokenLogprob(token_id=_id_of(entry), logprob=_read_value(entry.logprob), top=_sort(tops))


def _id_of(entry: _Entry) -> int:
    return _read_id(entry.token) if entry.id is None else entry.id


def _read_id(token: str) -> int:
    """Return the id of a token that is written as its id; -1: it is written as text."""
    number = token.removeprefix(TOKEN_ID)
    is_one = number != token and number.isdecimal() and len(number) < len(str(MOST_ID))
    return int(number) if is_one else -1


def _read_value(value: float | None) -> float:
    """Return a log-probability. Raises ValueError where it is none."""
    if value is None or math.isnan(value) or value > ROUNDING:
        msg = f"{value} is no log-probability"
        raise ValueError(msg)
    return min(value, 0.0)


def _sort(tops: object) -> tuple[tuple[int, float], ...]:
    pairs: list[tuple[int, float]] = list(tops)  # type: ignore[call-overload]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))

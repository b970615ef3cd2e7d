"""What a server answered, as a generation: checked at the border, nothing guessed.

An answer that contradicts the request (another model, no choice, an unknown reason to end)
raises AttemptError; its request has failed, and is never an empty output.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import msgspec

from gate.decoders.endpoint_client import AttemptError, Body
from gate.decoders.endpoint_profiles import Profile
from gate.decoders.endpoint_stream import read_events
from gate.records import (
    Chunk,
    DraftCount,
    Finish,
    Generation,
    Request,
    TokenLogprob,
    Trace,
    Usage,
)

ROUNDING = 1e-3  # nats above 0 that a log-probability may come out at
TOKEN_ID = "token_id:"  # noqa: S105 - how vLLM writes a token as its id


class _Entry(msgspec.Struct):
    """One token of chat-style log-probabilities."""

    logprob: float
    token: str = ""
    id: int | None = None
    bytes: list[int] | None = None
    top_logprobs: list[_Entry] = []


class _Logprobs(msgspec.Struct):
    """Chat style has ``content``; completion style has the other three."""

    content: list[_Entry] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[object] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None
    stop_reason: str | int | msgspec.UnsetType | None = msgspec.UNSET
    matched_stop: str | int | list[int] | msgspec.UnsetType | None = msgspec.UNSET
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Timings(msgspec.Struct):
    draft_n: int = 0
    draft_n_accepted: int = 0


class _Answer(msgspec.Struct):
    model: str | None = None
    choices: list[_Choice] = []
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: object = None


DECODER = msgspec.json.Decoder(_Answer)


class Expected(msgspec.Struct, frozen=True):
    """What an answer is held against. models: names the server may answer with; empty: any."""

    request: Request
    profile: Profile
    models: tuple[str, ...]


class _Joined(msgspec.Struct):
    """An answer, whole: in one body, or put together from a stream."""

    text: list[str] = []
    token_ids: list[int] | None = None
    logprobs: list[TokenLogprob] = []
    told: list[bytes] = []  # the text of tokens whose ids come from their log-probabilities
    has_logprobs: bool = False
    finish_reason: str | None = None
    stopped_by: object = msgspec.UNSET
    usage: _Usage | None = None
    timings: _Timings | None = None
    chunks: list[Chunk] = []


async def read_whole(body: Body, expected: Expected) -> Generation:
    """Read an answer that comes in one piece."""
    raw = await body.whole()
    joined = _Joined()
    at_s = time.perf_counter() - body.sent_at
    _add(joined, _decode(raw), expected, at_s)
    return _finish(joined, expected, Trace(total_s=at_s))


async def read_stream(body: Body, expected: Expected) -> Generation:
    """Read a streamed answer; one that ends without saying why is broken."""
    joined = _Joined()
    async for event in read_events(body.pieces()):
        at_s = time.perf_counter() - body.sent_at
        _add(joined, _decode(event), expected, at_s)
    total_s = time.perf_counter() - body.sent_at
    if joined.finish_reason is None:
        msg = "the stream broke off before the output had ended"
        raise AttemptError(msg, is_final=False)
    await body.drain()
    first = joined.chunks[0].at_s if joined.chunks else None
    last = joined.chunks[-1].at_s if joined.chunks else total_s
    return _finish(joined, expected, Trace(ttft_s=first, total_s=last))


def _decode(raw: bytes) -> _Answer:
    """Decode JSON. Raises AttemptError, also where it is no UTF-8."""
    try:
        answer = DECODER.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        msg = f"the answer is not what this API returns: {error}"
        raise AttemptError(msg, is_final=True) from error
    if answer.error is not None:
        msg = f"the server answered with an error: {answer.error}"
        raise AttemptError(msg, is_final=False)
    return answer


def _add(joined: _Joined, answer: _Answer, expected: Expected, at_s: float) -> None:
    """Add a whole answer, or the next piece of a streamed one."""
    if expected.models and answer.model is not None and answer.model not in expected.models:
        msg = (
            f"the server answered as model {answer.model!r} where {expected.models[0]!r} was asked "
            "for; set model, or answers_as where that is its other name"
        )
        raise AttemptError(msg, is_final=True)
    joined.usage = answer.usage or joined.usage
    joined.timings = answer.timings or joined.timings
    if len(answer.choices) > 1:
        msg = f"{len(answer.choices)} outputs came where one was asked for"
        raise AttemptError(msg, is_final=True)
    for choice in answer.choices:
        _add_choice(joined, choice, at_s)


def _add_choice(joined: _Joined, choice: _Choice, at_s: float) -> None:
    message = choice.message or choice.delta
    if message is not None and message.tool_calls:
        msg = "the server answered with a tool call, which was not asked for"
        raise AttemptError(msg, is_final=True)
    text = choice.text or (message.content if message else None) or ""
    entries = list(read_logprobs(choice.logprobs)) if choice.logprobs else []
    ids = choice.token_ids
    if ids is None and entries:
        ids = [entry.token_id for entry in entries]
        joined.told += _list_texts(choice.logprobs)
    if ids is not None and any(token < 0 for token in ids):
        ids = None  # a token without an id among them: none are known
    if text or ids:
        joined.text.append(text)
        joined.chunks.append(Chunk(text=text, token_ids=tuple(ids or ()), at_s=at_s))
    if ids is not None:
        joined.token_ids = [*(joined.token_ids or ()), *ids]
    joined.logprobs += entries
    joined.finish_reason = choice.finish_reason or joined.finish_reason
    for value in (choice.stop_reason, choice.matched_stop):
        joined.stopped_by = joined.stopped_by if value is msgspec.UNSET else value


def _list_texts(found: _Logprobs | None) -> list[bytes]:
    """Return the text of each token of chat-style log-probabilities."""
    entries = (found.content if found else None) or []
    return [bytes(e.bytes) if e.bytes is not None else e.token.encode() for e in entries]


def _drop_partial(joined: _Joined, text: str) -> None:
    """Forget ids that cover a part of the text only.

    llama.cpp streams a log-probability for the first token of an accepted run and for no other.
    """
    if not joined.told or b"".join(joined.told).startswith(text.encode("utf-8", "replace")):
        return
    joined.token_ids, joined.logprobs = None, []
    joined.chunks = [msgspec.structs.replace(chunk, token_ids=()) for chunk in joined.chunks]


def read_logprobs(found: _Logprobs) -> Sequence[TokenLogprob]:
    """Return log-probabilities with their token ids, -1 where an id is not told."""
    if found.content is not None:
        return [_read_entry(entry) for entry in found.content]
    tokens, values = found.tokens or [], found.token_logprobs or []
    tops = found.top_logprobs or [None] * len(tokens)
    return [
        TokenLogprob(
            token_id=_read_id(token),
            logprob=_read_value(value),
            top=_sort((_read_id(name), _read_value(each)) for name, each in (top or {}).items()),
        )
        for token, value, top in zip(tokens, values, tops, strict=True)
    ]


def _read_entry(entry: _Entry) -> TokenLogprob:
    tops = ((_id_of(one), _read_value(one.logprob)) for one in entry.top_logprobs)
    return TokenLogprob(token_id=_id_of(entry), logprob=_read_value(entry.logprob), top=_sort(tops))


def _id_of(entry: _Entry) -> int:
    return _read_id(entry.token) if entry.id is None else entry.id


def _read_id(token: str) -> int:
    """Return the id of a token that is written as its id; -1: it is written as text."""
    number = token.removeprefix(TOKEN_ID)
    return int(number) if number != token and number.isdecimal() else -1


def _read_value(value: float | None) -> float:
    """Return a log-probability. Raises ValueError where it is none."""
    if value is None or math.isnan(value) or value > ROUNDING:
        msg = f"{value} is no log-probability"
        raise ValueError(msg)
    return min(value, 0.0)


def _sort(tops: object) -> tuple[tuple[int, float], ...]:
    pairs: list[tuple[int, float]] = list(tops)  # type: ignore[call-overload]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def _finish(joined: _Joined, expected: Expected, trace: Trace) -> Generation:
    text, request = "".join(joined.text), expected.request
    _drop_partial(joined, text)
    finish = read_finish(joined, request)
    if not text and not joined.token_ids and finish == "length":
        msg = "the output is empty: not even a first token"
        raise AttemptError(msg, is_final=True)
    token_ids = None if joined.token_ids is None else tuple(joined.token_ids)
    is_whole = token_ids is not None and len(joined.logprobs) == len(token_ids)
    return Generation(
        request_id=request.id,
        repeat=request.repeat,
        text=text,
        token_ids=token_ids,
        logprobs=tuple(joined.logprobs) if is_whole and joined.logprobs else None,
        finish=finish,
        usage=_read_usage(joined.usage),
        trace=Trace(
            ttft_s=trace.ttft_s,
            total_s=trace.total_s,
            chunks=tuple(joined.chunks) if trace.ttft_s is not None else (),
            drafts=_read_drafts(joined, expected.profile),
        ),
    )


def _read_usage(found: _Usage | None) -> Usage | None:
    """Return the server's counts. Raises ValueError where they are below 0."""
    if found is None:
        return None
    if min(found.prompt_tokens, found.completion_tokens) < 0:
        msg = "the server counts fewer than 0 tokens"
        raise ValueError(msg)
    return Usage(n_prompt=found.prompt_tokens, n_output=found.completion_tokens)


def read_finish(joined: _Joined, request: Request) -> Finish:
    """Return why an output ended. Raises AttemptError for a reason that is none of ours.

    Where the server does not tell a stop string from an end-of-sequence token, an output of a
    request with stop strings counts as stopped.
    """
    reason = joined.finish_reason
    if reason == "length":
        return "length"
    if reason != "stop":
        msg = f"the output ended for the reason {reason!r}; only stop and length are expected"
        raise AttemptError(msg, is_final=True)
    if isinstance(joined.stopped_by, str):
        return "stop"
    return "eos" if joined.stopped_by is not msgspec.UNSET or not request.stop else "stop"


def _read_drafts(joined: _Joined, profile: Profile) -> DraftCount | None:
    """Return what the answer says of its drafts; nothing said by a server that says so is 0."""
    timings = joined.timings
    if timings is None or not profile.says_drafts:
        return None
    if not 0 <= timings.draft_n_accepted <= timings.draft_n:
        return None
    return DraftCount(n_drafted=timings.draft_n, n_accepted=timings.draft_n_accepted)

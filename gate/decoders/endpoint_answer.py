"""What a server answered, as a generation: checked at the border, nothing guessed.

An answer that contradicts the request (another model, no choice, an unknown reason to end)
raises AttemptError; its request has failed, and is never an empty output.
"""

from __future__ import annotations

import time
from typing import Annotated

import msgspec

from gate.decoders.endpoint_logprobs import (
    MOST_ID,
    Logprobs,
    TokenId,
    drop_added,
    list_texts,
    read_logprobs,
)
from gate.decoders.endpoint_profiles import Profile
from gate.decoders.endpoint_response import AttemptError, Body
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

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_ID)]


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[object] | None = None
    reasoning: str | None = None  # two names of one field
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None
    stop_reason: str | int | msgspec.UnsetType | None = msgspec.UNSET
    matched_stop: str | int | list[int] | msgspec.UnsetType | None = msgspec.UNSET
    logprobs: Logprobs | None = None
    token_ids: list[TokenId] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class _Timings(msgspec.Struct):
    draft_n: Count = 0
    draft_n_accepted: Count = 0


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
    answer = _decode(await body.whole())
    joined = _Joined()
    at_s = time.perf_counter() - body.sent_at
    if not answer.choices:
        msg = "the answer holds no output: its choices are missing or empty"
        raise AttemptError(msg, is_final=True)
    _add(joined, answer, expected, at_s)
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
    if message is not None and (message.reasoning or message.reasoning_content):
        msg = (
            "the server takes the model's reasoning out of the text, so that its tokens are not "
            "the text's; start it without a reasoning parser, or turn it off with extra_body"
        )
        raise AttemptError(msg, is_final=True)
    text = choice.text or (message.content if message else None) or ""
    entries = list(read_logprobs(choice.logprobs)) if choice.logprobs else []
    ids = choice.token_ids
    if ids is None and entries:
        ids = [entry.token_id for entry in entries]
        joined.told += list_texts(choice.logprobs)
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


def _drop_partial(joined: _Joined, text: str) -> None:
    """Forget ids that cover a part of the text only.

    llama.cpp streams a log-probability for the first token of an accepted run and for no other.
    """
    if not joined.told or b"".join(joined.told).startswith(text.encode("utf-8", "replace")):
        return
    joined.token_ids, joined.logprobs = None, []
    joined.chunks = [msgspec.structs.replace(chunk, token_ids=()) for chunk in joined.chunks]


def _finish(joined: _Joined, expected: Expected, trace: Trace) -> Generation:
    text, request = "".join(joined.text), expected.request
    _drop_partial(joined, text)
    finish = read_finish(joined, request)
    if not text and not joined.token_ids and finish == "length":
        msg = "the output is empty: not even a first token"
        raise AttemptError(msg, is_final=True)
    token_ids = None if joined.token_ids is None else tuple(joined.token_ids)
    logprobs = drop_added(joined.logprobs, request.n_logprobs)
    is_whole = token_ids is not None and len(logprobs) == len(token_ids)
    return Generation(
        request_id=request.id,
        repeat=request.repeat,
        text=text,
        token_ids=token_ids,
        logprobs=logprobs if is_whole and logprobs else None,
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
    if found is None:
        return None
    return Usage(n_prompt=found.prompt_tokens, n_output=found.completion_tokens)


def read_finish(joined: _Joined, request: Request) -> Finish:
    """Return why an output ended. Raises AttemptError for a reason that is none of ours.

    Where the server does not tell a stop string from an end-of-sequence token, an output of a
    request with stop strings counts as stopped.
    """
    reason = joined.finish_reason
    if reason == "length":
        return "length"
    if reason is None:
        msg = "the answer does not say why the output ended (finish_reason)"
        raise AttemptError(msg, is_final=True)
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

"""Whether outputs ended as they should, and were reported as they were.

Works on the final text and ids alone, independent of decoders/stopping.py: a mistake
there must not hide here. Runs while the tokenizer is at hand; measures/termination.py
compares what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gate.records import Generation, Request
from gate.store import Fault

Decode = Callable[[Sequence[int]], str]


def check_output(request: Request, generation: Generation, decode: Decode) -> tuple[Fault, ...]:
    """Return what is wrong with an output's end, text, usage and stream."""
    if generation.finish == "error" or generation.token_ids is None:
        return ()
    ids = (*generation.token_ids, *generation.tail_ids)
    return (
        *_check_length(request, generation, ids),
        *_check_eos(request, generation, ids),
        *_check_text(request, generation, ids, decode),
        *_check_usage(request, generation),
        *_check_stream(request, generation),
    )


def _check_length(request: Request, generation: Generation, ids: Sequence[int]) -> Iterator[Fault]:
    n, limit = len(ids), request.max_tokens
    if n > limit:
        yield Fault(kind="over_budget", message=f"{n} tokens where {limit} were allowed")
    if generation.finish == "length" and n < limit:
        yield Fault(kind="short_of_budget", message=f"ended for length after {n} of {limit} tokens")
    # the tail counts: a stop string may begin inside its first token
    kept = n - bool(ids and ids[-1] in request.eos_ids)
    if generation.finish != "length" and kept < request.min_tokens:
        yield Fault(
            kind="min_tokens",
            message=f"{kept} tokens where at least {request.min_tokens} were asked for",
        )


def _check_eos(request: Request, generation: Generation, ids: Sequence[int]) -> Iterator[Fault]:
    inside = [at for at, token in enumerate(ids[:-1]) if token in request.eos_ids]
    if inside:
        yield Fault(
            kind="eos_passed_over",
            message=f"went on after the end-of-sequence token at position {inside[0]}",
        )
    if ids and ids[-1] in request.eos_ids and generation.finish != "eos":
        yield Fault(
            kind="finish_reason",
            message=f"ended with an end-of-sequence token but says {generation.finish!r}",
        )


def _check_text(
    request: Request, generation: Generation, ids: Sequence[int], decode: Decode
) -> Iterator[Fault]:
    expected = cut_at_stop(request, ids, decode)
    n_cut = len(generation.tail_ids)
    if expected is None:
        if generation.text != decode(ids) and not n_cut and generation.finish != "stop":
            yield Fault(kind="text_mismatch", message="the text is not what its token ids say")
        if n_cut:
            yield Fault(
                kind="stop_not_there", message="cut off tokens in which no stop string is complete"
            )
        elif generation.finish == "stop" and generation.text != decode(ids):
            yield Fault(kind="ids_not_cut", message="the text is cut and its token ids are not")
        return
    n_used, text = expected
    if generation.finish == "eos" and n_used == len(ids):
        return
    if generation.finish != "stop":
        yield Fault(
            kind="stop_ignored",
            message=f"a stop string was complete at token {n_used} of {len(ids)}",
        )
    elif n_used != len(ids):
        yield Fault(
            kind="stop_late",
            message=f"stopped {len(ids) - n_used} tokens after a stop string was complete",
        )
    elif generation.text != text:
        yield Fault(kind="stop_cut", message="the text is not cut at the earliest stop string")
    elif decode(generation.token_ids or ()) != text and not _covers(
        generation.token_ids or (), text, decode
    ):
        yield Fault(kind="ids_not_cut", message="the text is cut and its token ids are not")


def cut_at_stop(request: Request, ids: Sequence[int], decode: Decode) -> tuple[int, str] | None:
    """Return (tokens until a stop string is complete, text before it), or None.

    The reference definition: decode every prefix, take the first with a match that starts
    behind the text of the first ``min_tokens`` tokens, and cut at the earliest start.
    """
    if not request.stop or not any(stop in decode(ids) for stop in request.stop):
        return None
    floor = len(decode(ids[: request.min_tokens])) if request.min_tokens else 0
    for n in range(request.min_tokens + 1, len(ids) + 1):
        text = decode(ids[:n])
        starts = [at for stop in request.stop if (at := text.find(stop, floor)) >= 0]
        if starts:
            return n, text[: min(starts)]
    return None


def _covers(ids: Sequence[int], text: str, decode: Decode) -> bool:
    """Whether ``ids`` are the fewest tokens whose text begins with ``text``."""
    return decode(ids).startswith(text) and not (ids and decode(ids[:-1]).startswith(text))


def _check_usage(request: Request, generation: Generation) -> Iterator[Fault]:
    usage = generation.usage
    if usage is None:
        return
    ids = generation.token_ids or ()
    without_eos = len(ids) - bool(ids and ids[-1] in request.eos_ids)
    if usage.n_output not in (len(ids), without_eos):
        yield Fault(
            kind="usage", message=f"reports {usage.n_output} output tokens and delivered {len(ids)}"
        )
    if usage.n_prompt != len(request.prompt):
        yield Fault(
            kind="usage", message=f"reports {usage.n_prompt} prompt tokens of {len(request.prompt)}"
        )


def _check_stream(request: Request, generation: Generation) -> Iterator[Fault]:
    if not request.stream:
        return
    chunks = generation.trace.chunks if generation.trace else ()
    if "".join(chunk.text for chunk in chunks) != generation.text:
        yield Fault(kind="stream", message="the streamed text is not the text returned")
    streamed = tuple(token for chunk in chunks for token in chunk.token_ids)
    if streamed != (generation.token_ids or ()):
        yield Fault(
            kind="stream",
            message=f"streamed {len(streamed)} token ids of {len(generation.token_ids or ())}",
        )

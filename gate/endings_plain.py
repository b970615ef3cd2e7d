"""Whether outputs that came as text alone ended as they should, and were reported as they were.

What endings.py checks token by token is out of reach without a tokenizer. What the text and
the server's own counts contradict is found all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from gate.records import Generation, Request
from gate.store import Fault


def check_plain_output(request: Request, generation: Generation) -> tuple[Fault, ...]:
    """Return what is wrong with an output's end, counts and stream."""
    if generation.finish == "error":
        return ()
    return (
        *_check_stop(request, generation),
        *_check_counts(request, generation),
        *_check_stream(request, generation),
    )


def _check_stop(request: Request, generation: Generation) -> Iterator[Fault]:
    """A stop string in the text; one that min_tokens may have held back is not judged."""
    found = [stop for stop in request.stop if stop in generation.text]
    if found and not request.min_tokens:
        yield Fault(kind="stop_ignored", message=f"the text goes on over the stop {found[0]!r}")


def _check_counts(request: Request, generation: Generation) -> Iterator[Fault]:
    ids, usage = generation.token_ids, generation.usage
    counts = [len(ids)] if ids is not None else []
    if usage is not None:
        counts.append(usage.n_output)
        if generation.text and usage.n_output == 0:
            yield Fault(kind="usage", message="reports 0 output tokens and delivered text")
        # an end-of-sequence token or the tokens of a cut stop string may be counted or not
        elif ids is not None and generation.finish == "length" and usage.n_output != len(ids):
            message = f"reports {usage.n_output} output tokens and delivered {len(ids)}"
            yield Fault(kind="usage", message=message)
    if counts and max(counts) > request.max_tokens:
        message = f"{max(counts)} tokens where {request.max_tokens} were allowed"
        yield Fault(kind="over_budget", message=message)
    if not counts:
        return
    if generation.finish == "length" and max(counts) < request.max_tokens:
        message = f"ended for length after {max(counts)} of {request.max_tokens} tokens"
        yield Fault(kind="short_of_budget", message=message)
    if generation.finish != "length" and max(counts) < request.min_tokens:
        message = f"{max(counts)} tokens where at least {request.min_tokens} were asked for"
        yield Fault(kind="min_tokens", message=message)


def _check_stream(request: Request, generation: Generation) -> Iterator[Fault]:
    if not request.stream:
        return
    chunks = generation.trace.chunks if generation.trace else ()
    if "".join(chunk.text for chunk in chunks) != generation.text:
        yield Fault(kind="stream", message="the streamed text is not the text returned")

"""Prompts that nothing has seen or that come again, and what was drafted on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gate.records import DraftCount, Generation, MemoryControl, Request
from gate.store import BatchResult

MOST_TOKENS = 64  # per output: what a drafter remembers shows early
MARK = "Please answer this once more. "


def send_twice(
    session: Any, decoder: Any, requests: Sequence[Request], batch: int
) -> MemoryControl | None:
    """Send prompts twice, new to the server the first time; None: drafts are not told.

    session: remote.RemoteSession.
    """
    if not getattr(decoder, "tells_drafts", False) or not requests:
        return None
    is_fresh = session.begin_life(decoder)
    rounds = []
    for name in ("memory-1", "memory-2"):
        batches = session.split([rename(request, name) for request in requests], batch)
        rounds.append(add_drafts([session.run_batch(decoder, one) for one in batches]))
    first, second = rounds
    if first is None or second is None:
        return None
    return MemoryControl(n_prompts=len(requests), first=first, second=second, is_fresh=is_fresh)


def rename(request: Request, round_name: str) -> Request:
    """Return a request under another id, with a prompt of its own: the same in each round."""
    prompt: Any = request.prompt
    if isinstance(prompt, str):
        changed: Any = MARK + prompt
    else:
        *earlier, last = prompt
        changed = (*earlier, {**last, "content": MARK + last["content"]})
    renamed = msgspec.structs.replace(request, id=f"{round_name}/{request.id}", prompt=changed)
    return shorten(renamed)


def shorten(request: Request) -> Request:
    """Return a request whose output shows what a drafter remembers, and no more."""
    return msgspec.structs.replace(request, max_tokens=min(request.max_tokens, MOST_TOKENS))


def count_drafts(generations: Sequence[Generation]) -> DraftCount:
    """Return what the steps of some outputs drafted and accepted."""
    steps = [step for one in generations if one.trace for step in one.trace.steps]
    return DraftCount(
        n_drafted=sum(step.n_drafted for step in steps),
        n_accepted=sum(step.n_accepted for step in steps),
    )


def add_drafts(results: Sequence[BatchResult]) -> DraftCount | None:
    """Return the drafts of several batches; None where any of them is not told."""
    found = [count for result in results for count in _list_counts(result)]
    if not found or any(count is None or count.n_drafted is None for count in found):
        return None
    known = [count for count in found if count is not None]
    return DraftCount(
        n_drafted=sum(count.n_drafted or 0 for count in known),
        n_accepted=sum(count.n_accepted for count in known),
    )


def _list_counts(result: BatchResult) -> list[DraftCount | None]:
    if result.drafts is not None:
        return [result.drafts]
    answered = [one for one in result.generations if one.finish != "error"]
    return [one.trace.drafts if one.trace else None for one in answered]

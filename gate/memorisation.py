"""The memorisation control: what a drafter with a memory gains on prompts that come again."""

from __future__ import annotations

from typing import Any

from gate.records import MemoryControl, Request
from gate.store import RunStore, StoredPlan

N_PROMPTS = 20
NAME = "memory.json"


def control_memory(store: RunStore, stored: StoredPlan, session: Any) -> MemoryControl | None:
    """Send some prompts twice, after everything else; None where acceptance is not told."""
    known = store.read(NAME, MemoryControl)
    control = getattr(session, "control_memory", None)
    if known is not None or control is None:
        return known
    found: MemoryControl | None = control(choose_prompts(stored))
    if found is not None:
        store.write(NAME, found)
    return found


def choose_prompts(stored: StoredPlan) -> list[Request]:
    """Return prompts spread over the evalset's greedy requests, the first of each document."""
    greedy = [
        request
        for batch in stored.batches
        for request in batch
        if request.repeat == 0
        and not request.sampling.temperature
        and request.task != "conformance"
    ]
    step = max(1, len(greedy) // N_PROMPTS)
    return greedy[::step][:N_PROMPTS]

"""Which requests a fault or a control is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gate.conformance import TASK as CONFORMANCE
from gate.records import Record, Request, processes_logits
from gate.selftest.bench import SAMPLED, Batches, Bench, Keep

GROUPS: Mapping[str, tuple[str, ...]] = {
    "greedy-verification": ("tasks",),
    "sampling": (CONFORMANCE,),
    "stopping": (CONFORMANCE,),
    "processors": (CONFORMANCE,),
    "cache": (CONFORMANCE, "tasks"),
    "not-exercised": ("tasks",),
    "performance": ("tasks",),
    "baseline": ("tasks",),
}
"""The requests of a kind. A full run adds the others of the first two groups."""
QUICK_CONFORMANCE: Mapping[str, Keep] = {
    "sampling": lambda r: r.sampling.temperature > 0.0,
    "processors": lambda r: processes_logits(r) or r.n_logprobs is not None,
    "stopping": lambda r: ends_early(r) or r.sampling.temperature == 0.0,
    "cache": lambda r: not processes_logits(r),
}
"""The conformance requests that a quick run sends to a fault of a kind; a full run sends all."""
QUICK_TOKENS = 300
"""Task tokens, at least, of a control in a quick run; of a fault each says its own."""


class Options(Record, frozen=True, kw_only=True):
    """quick: each on the requests of its kind. only: these ids; empty: all. jobs: processes."""

    quick: bool = False
    only: tuple[str, ...] = ()
    jobs: int = 1


def choose_requests(bench: Bench, fault: Any, options: Options) -> dict[str, Batches]:
    """Return the batches that show a fault, by group; of a control see :class:`Examiner`."""
    if fault.needs == "sliding":
        return bench.choose(("tasks",), None)
    keep = QUICK_CONFORMANCE.get(fault.kind) if options.quick else None
    if fault.needs == SAMPLED:
        return bench.choose((CONFORMANCE, SAMPLED), fault.n_tokens if options.quick else None, keep)
    if not options.quick:
        return bench.choose((CONFORMANCE, "tasks"), None)
    names_class = isinstance(fault.strength, str) or fault.kind == "performance"
    return bench.choose(GROUPS[fault.kind], None if names_class else fault.n_tokens, keep)


def ends_early(request: Request) -> bool:
    """Whether the request asks for an end, or for what happens at ends."""
    return bool(request.stop or request.min_tokens or request.stream or len(request.eos_ids) > 1)

"""Timing: held-back prompts that both arms serve, in disjoint blocks whose order crosses over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gate.measures.paired import Arm, Paired, make_arm
from gate.plan import ARMS
from gate.progress import Progress
from gate.records import Request
from gate.store import BatchResult, RunStore, StoredPlan


@dataclass(frozen=True, kw_only=True)
class TimingBlock:
    """Held-back requests that both arms served one by one. results: by arm."""

    requests: tuple[Request, ...]
    results: dict[str, BatchResult]


def collect_timing(
    store: RunStore,
    stored: StoredPlan,
    session: Any,
    decoders: Mapping[str, Any],
    progress: Progress,
) -> tuple[TimingBlock, ...]:
    """Time disjoint blocks of held-back prompts; the arms' order crosses over between blocks."""
    found = []
    total = 2 * sum(len(block) for block in stored.timing)
    with progress.bar("timing", total) as advance:
        for n, block in enumerate(stored.timing):
            by_arm: dict[str, BatchResult] = {}
            for name in ARMS if n % 2 == 0 else reversed(ARMS):
                label = f"timing-{n:02d}"
                result = store.read_batch(name, label)
                if result is None:
                    decoder = decoders[name]
                    session.warm_up(decoder)
                    result = session.run_timing(decoder, block)
                    store.write_batch(name, label, result)
                by_arm[name] = result
                advance(len(block))
            found.append(TimingBlock(requests=block, results=by_arm))
    return tuple(found)


def add_timing(paired: Paired, blocks: Sequence[TimingBlock]) -> Paired:
    """Add the timing blocks' outputs: decoded alone, they show faults that batches hide."""
    requests = {(r.id, r.repeat): r for block in blocks for r in block.requests}
    joined: dict[str, Any] = {}
    for name in ARMS:
        arm: Arm = getattr(paired, name)
        timed = make_arm(arm.spec, [block.results[name] for block in blocks])
        joined[name] = Arm(
            spec=arm.spec,
            generations={**arm.generations, **timed.generations},
            scores={**arm.scores, **timed.scores},
            faults={**arm.faults, **timed.faults},
        )
    return replace(paired, requests={**paired.requests, **requests}, **joined)

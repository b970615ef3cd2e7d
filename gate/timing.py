"""Timing: held-back prompts that both arms serve, in disjoint blocks whose order crosses over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gate.decoders.base import OWN_ENGINE
from gate.decoders.load import Load
from gate.errors import RunError
from gate.gain_config import ServingConfig
from gate.measures.attribution import Method
from gate.measures.economics import ServedBlock
from gate.measures.paired import Arm, Paired, make_arm
from gate.plan import ARMS, Plan
from gate.progress import Progress
from gate.records import Generation, Request
from gate.store import BatchResult, RunStore, StoredPlan

ELSEWHERE = frozenset({"endpoint", "replay"})
"""Kinds that are not switched between after every request: a server may have to start."""
RELEASE, SWEEP = "release", "sweep"


@dataclass(frozen=True, kw_only=True)
class TimingBlock:
    """Held-back requests that both arms served. results: by arm."""

    requests: tuple[Request, ...]
    results: dict[str, BatchResult]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """All that was timed. blocks: per class; mixed: at the traffic's shares; sweep: waves."""

    blocks: tuple[TimingBlock, ...] = ()
    mixed: tuple[TimingBlock, ...] = ()
    sweep: tuple[TimingBlock, ...] = ()

    @property
    def certified(self) -> tuple[TimingBlock, ...]:
        """The blocks whose outputs the referee scores; a sweep's are cut short and are not."""
        return (*self.blocks, *self.mixed)


def collect_timing(
    plan: Plan,
    store: RunStore,
    stored: StoredPlan,
    session: Any,
    decoders: Mapping[str, Any],
    progress: Progress,
) -> Timing:
    """Serve all blocks in both arms; finished blocks are read back."""
    serving = plan.project.config.serving
    one = Load(concurrency=serving.concurrency)
    is_local = all(spec.kind not in ELSEWHERE for spec in plan.specs.values())
    size = serving.concurrency if is_local else None
    open_loop = serving.arrival_rate_per_s is not None
    parts = {
        "timing": [(block, one) for block in cross_over(stored.timing, size)],
        "mixed": [
            (block, _make_mixed_load(plan, n))
            for n, block in enumerate(cross_over(stored.mixed, None if open_loop else size))
        ],
        SWEEP: [(wave, Load(concurrency=len(wave))) for wave in stored.sweep],
    }
    found: dict[str, list[TimingBlock]] = {}
    warm: set[str] = set()
    total = 2 * sum(len(block) for part in parts.values() for block, _ in part)
    with progress.bar("timing", total) as advance:
        for name, part in parts.items():
            found[name] = []
            for n, (block, load) in enumerate(part):
                label = f"{name}-{n:02d}"
                results = _serve_block(
                    store, session, decoders, label, n, block, load, warm if is_local else set()
                )
                found[name].append(TimingBlock(requests=block, results=results))
                advance(2 * len(block))
    blocks = {name: tuple(part) for name, part in found.items()}
    return Timing(blocks=blocks["timing"], mixed=blocks["mixed"], sweep=blocks[SWEEP])


def _make_mixed_load(plan: Plan, n: int) -> Load:
    """Return the load of the n-th mixed block: arrivals of its own, the same in both arms."""
    serving = plan.project.config.serving
    return Load(
        concurrency=serving.concurrency,
        arrival_rate_per_s=serving.arrival_rate_per_s,
        arrivals=serving.arrivals,
        seed=(plan.project.config.seed, n),
    )


def cross_over(
    blocks: Sequence[tuple[Request, ...]], size: int | None
) -> list[tuple[Request, ...]]:
    """Return blocks as they are served: in pieces of ``size`` requests, None: whole.

    The arms take turns after every piece, so that a machine whose speed drifts slows both alike,
    and pairs stay independent. Every other block runs backwards: a class that was served with the
    baseline first then is with the candidate first.
    """
    if size is None:
        return list(blocks)
    pieces = [[block[at : at + size] for at in range(0, len(block), size)] for block in blocks]
    return [
        piece
        for n, block in enumerate(pieces)
        for piece in (block if n % 2 == 0 else reversed(block))
    ]


def _serve_block(
    store: RunStore,
    session: Any,
    decoders: Mapping[str, Any],
    label: str,
    n: int,
    block: tuple[Request, ...],
    load: Load,
    warm: set[str],
) -> dict[str, BatchResult]:
    """Serve one block in both arms, the candidate first in odd blocks. warm: arms that are."""
    by_arm: dict[str, BatchResult] = {}
    for name in ARMS if n % 2 == 0 else reversed(ARMS):
        result = store.read_batch(name, label)
        if result is None:
            if name not in warm:
                session.warm_up(decoders[name])
                warm.add(name)
            is_scored = not label.startswith(SWEEP)
            result = session.run_timing(decoders[name], block, load, is_scored=is_scored)
            store.write_batch(name, label, result)
        by_arm[name] = result
    return by_arm


def list_times(results: Iterable[BatchResult]) -> dict[str, float]:
    """Return seconds per held-back prompt, where it was answered and timed."""
    return {
        one.request_id: one.trace.total_s
        for result in results
        for one in result.generations
        if one.finish != "error" and one.trace and one.trace.total_s
    }


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
    untold = frozenset(
        key
        for key in requests
        if any(_is_untold(arm.generations.get(key)) for arm in joined.values())
    )
    requests = {**paired.requests, **requests}
    return replace(paired, requests=requests, untold=untold, **joined)


def _is_untold(generation: Generation | None) -> bool:
    return generation is not None and generation.finish != "error" and generation.token_ids is None


# ------------------------------------------------------------------- sweep


def list_sizes(serving: ServingConfig, batch: int, purpose: str) -> list[int]:
    """Return the batch sizes of the sweep: powers of two up to the production batch."""
    top = serving.production_batch
    if top is None:
        top = batch if purpose == RELEASE else 0
    sizes = [2**k for k in range(top.bit_length()) if 2**k < top]
    return [*sizes, top] if top else []


def plan_sweep(
    plan: Plan, session: Any, content: Sequence[Request], spare: Sequence[Request], n_rows: int
) -> tuple[tuple[tuple[Request, ...], ...], dict[str, str]]:
    """Return the waves, each of the requests served together, and the sizes that have none.

    Decoders of ours that carry nothing from one request to the next get the content prompts
    again; all others only prompts that nobody sent yet, for as long as there are some.
    """
    config = plan.project.config
    sizes = list_sizes(config.serving, config.run.batch, config.purpose)
    may_repeat = all(spec.kind in OWN_ENGINE for spec in plan.specs.values())
    pool, limits = list(content if may_repeat else spare), dict[str, str]()
    waves: list[tuple[Request, ...]] = []
    at = 0
    for n in range(config.serving.sweep_waves):
        # backwards in every other round, so that each size is served in both orders
        for size in sizes if n % 2 == 0 else reversed(sizes):
            if str(size) in limits:
                continue
            limit = _find_limit(plan, session, pool, at, n_rows, size, may_repeat=may_repeat)
            if limit:
                limits[str(size)] = limit
                waves = [wave for wave in waves if len(wave) != size]
                continue
            chosen = [pool[(at + k) % len(pool)] for k in range(size)]
            at += size
            waves.append(_make_wave(chosen, n, config.serving.sweep_tokens))
    return tuple(waves), limits


def _find_limit(
    plan: Plan,
    session: Any,
    pool: Sequence[Request],
    at: int,
    n_rows: int,
    size: int,
    *,
    may_repeat: bool,
) -> str:
    """Return why a batch size cannot be served; empty where it can."""
    if not pool or (not may_repeat and at + size > len(pool)):
        return f"{size} prompts that were never sent are needed; {max(0, len(pool) - at)} are left"
    most = min((spec.max_batch or size) for spec in plan.specs.values())
    if most < size:
        return f"a decoder takes {most} requests at once"
    try:
        fitting = session.fit_batch(pool, n_rows, size, plan.project.config.run.memory_gib)
    except RunError as error:
        return str(error)
    return f"the memory holds {fitting} requests" if fitting < size else ""


def _make_wave(requests: Sequence[Request], n: int, n_tokens: int) -> tuple[Request, ...]:
    """Give the requests names of their own, and a common limit."""
    size = len(requests)
    return tuple(
        msgspec.structs.replace(
            request,
            id=f"sweep/{size}/{n}/{k}",
            task="sweep",
            repeat=0,
            max_tokens=min(request.max_tokens, n_tokens),
            min_tokens=min(request.min_tokens, n_tokens),
        )
        for k, request in enumerate(requests)
    )


# ---------------------------------------------------------- what measures read


def list_pairs(
    blocks: Sequence[TimingBlock],
) -> list[tuple[dict[str, Sequence[Generation]], Sequence[Request]]]:
    """Return blocks as ``compare_serving`` reads them."""
    return [
        ({name: block.results[name].generations for name in ARMS}, block.requests)
        for block in blocks
    ]


def list_served(blocks: Sequence[TimingBlock]) -> list[ServedBlock]:
    """Return blocks as ``compare_economics`` reads them; one without a wall time is left out."""
    return [
        ServedBlock(
            requests=block.requests,
            generations={name: block.results[name].generations for name in ARMS},
            wall_s={name: block.results[name].wall_s or 0.0 for name in ARMS},
        )
        for block in blocks
        if all(block.results[name].wall_s for name in ARMS)
    ]


def choose_method(plan: Plan) -> Method:
    """Steps where both arms run on our engine; another decoder does not report its own cost."""
    is_own = all(spec.kind in OWN_ENGINE for spec in plan.specs.values())
    return "steps" if is_own else "in_flight"

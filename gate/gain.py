"""The gain half: what the timed blocks came to, in time, device-seconds and money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gate.decoders.base import load_object
from gate.measures.economics import ServedBlock, compare_economics, compare_whole
from gate.measures.goodput import Promise, compare_goodput
from gate.measures.profiling import Profile, compare_profile
from gate.measures.serving import compare_mixed, compare_serving
from gate.measures.sweep import Wave, compare_sweep
from gate.plan import ARMS, Plan
from gate.progress import Progress
from gate.records import Comparison
from gate.store import RunStore, StoredPlan
from gate.timing import (
    Timing,
    TimingBlock,
    choose_method,
    list_pairs,
    list_served,
    list_sizes,
)

PROFILE = "gate.measures.profile:profile_model"


def measure_gain(
    plan: Plan, timing: Timing, limits: Mapping[str, str], profile: Profile | None
) -> list[Comparison]:
    """Apply every measure of the gain."""
    config, classes = plan.project.config, plan.evalset.spec.classes
    evalset_shares = {name: one.traffic_share for name, one in classes.items()}
    shares = config.economics.traffic or evalset_shares
    promises = {name: Promise(one.slo_ttft_s, one.slo_e2e_s) for name, one in classes.items()}
    method = choose_method(plan)
    served, mixed = list_served(timing.blocks), list_served(timing.mixed)
    economics = compare_economics(served, shares, config.economics, method)
    seconds = [one for one in economics if one.measure == "device_seconds"]
    return [
        *compare_serving(list_pairs(timing.blocks), shares),
        *compare_mixed(list_pairs(timing.mixed)),
        *compare_goodput(mixed or served, promises, config.serving.timeout_s),
        *economics,
        *compare_whole(mixed, method),
        *compare_sweep(_list_waves(timing.sweep), limits),
        *compare_profile(
            profile, seconds, read_queue_share(mixed), is_memory_short=_is_memory_short(limits)
        ),
        compare_memory([*served, *mixed], profile),
    ]


def _list_waves(blocks: Sequence[TimingBlock]) -> list[Wave]:
    waves = []
    for block in blocks:
        results = [block.results[name] for name in ARMS]
        waves.append(
            Wave(
                size=len(block.requests),
                generations=(results[0].generations, results[1].generations),
                wall_s=(results[0].wall_s or 0.0, results[1].wall_s or 0.0),
            )
        )
    return waves


def _is_memory_short(limits: Mapping[str, str]) -> bool:
    return any("memory" in limit for limit in limits.values())


def read_queue_share(mixed: Sequence[ServedBlock]) -> float | None:
    """Return the baseline's share of time that requests waited; None where nothing could wait."""
    traces = [g.trace for block in mixed for g in block.generations["baseline"] if g.trace]
    total = sum(trace.total_s or 0.0 for trace in traces)
    return sum(trace.queued_s for trace in traces) / total if total > 0.0 else None


def compare_memory(blocks: Sequence[ServedBlock], profile: Profile | None) -> Comparison:
    """Return peak_memory, bytes: the most that any request's trace reports, and what was free."""
    peaks = {
        arm: [
            g.trace.peak_memory_bytes
            for block in blocks
            for g in block.generations[arm]
            if g.trace and g.trace.peak_memory_bytes
        ]
        for arm in ARMS
    }
    base = Comparison(measure="peak_memory", unit="bytes", direction="lower_is_better")
    if not all(peaks.values()):
        return msgspec.structs.replace(base, note="the decoders do not report their memory")
    return msgspec.structs.replace(
        base,
        baseline=float(max(peaks["baseline"])),
        candidate=float(max(peaks["candidate"])),
        note="peaks so far, the later arm's holds the earlier's",
        detail={"free_bytes": profile.free_bytes if profile else None},
    )


def collect_profile(
    plan: Plan,
    store: RunStore,
    stored: StoredPlan,
    session: Any,
    n_rows: int,
    progress: Progress,
) -> Profile | None:
    """Profile the device, where asked for and where a model runs here; None otherwise."""
    config = plan.project.config
    wanted = config.serving.profile
    if not (config.purpose == "release" if wanted is None else wanted):
        return None
    known = store.read("profile.json", Profile)
    if known:
        return known
    sizes = list_sizes(config.serving, config.run.batch, config.purpose)
    fitting = [size for size in sizes if str(size) not in stored.sweep_limits]
    batches = sorted({1, max(fitting, default=1)})
    with progress.stage("profile the device"):
        profile: Profile = load_object(PROFILE)(session.model, n_rows, batches)
    store.write("profile.json", profile)
    return profile

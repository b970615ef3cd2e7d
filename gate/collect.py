"""Running both arms: batches in the planned order, streamed to disk, resumed where finished."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gate.baselines import check_identity, identify_requests
from gate.conformance import TASK as CONFORMANCE
from gate.decoders.options import LookaheadOptions
from gate.decoders.routed import list_routes, spread_conformance
from gate.errors import RunError, UsageError
from gate.gain import collect_profile
from gate.late import join_late
from gate.measures.baseline_drift import Third, list_changed
from gate.measures.float32 import Float32
from gate.measures.paired import Arm, Key, Paired, make_arm
from gate.measures.profiling import Profile
from gate.measures.repeats import Repeats
from gate.memorisation import control_memory
from gate.offers import keep_offered
from gate.plan import ARMS, Plan
from gate.progress import Progress
from gate.records import BandProbe, DecoderSpec, MemoryControl, NoiseBound, Request, TokenScores
from gate.store import BatchResult, RunStore, StoredPlan, find_unfinished
from gate.timing import Timing, collect_timing, plan_sweep

Now = Callable[[], dt.datetime]
CALIBRATION_REQUESTS = {"float32": 4}
"""Prompts behind the noise bound; float32 rests on its floor, which a few positions confirm."""
CALIBRATION_REQUESTS_16_BIT = 32
PROBE_BATCH = 8  # of a decoder that sets no limit
ROWS_UNKNOWN = 32  # rows of a step assumed of decoders that do not say


def open_store(plan: Plan, out: Path, now: Now) -> tuple[RunStore, StoredPlan]:
    """Resume the newest unfinished run of the same fingerprint, or make a folder for a new one."""
    store = find_unfinished(out, plan.fingerprint)
    stored = store.read("plan.json", StoredPlan) if store else None
    if store and stored:
        return store, stored
    created = now()
    run_id = f"{created:%Y%m%dT%H%M%S}-{plan.fingerprint.removeprefix('sha256:')[:8]}"
    folder = out / run_id
    n = 1
    while folder.exists():
        n += 1
        folder = out / f"{run_id}-{n}"
    stored = StoredPlan(fingerprint=plan.fingerprint, created_at=created.isoformat(), batches=())
    store = RunStore(folder)
    store.write("plan.json", stored)
    return store, stored


@dataclass(frozen=True, kw_only=True)
class Collected:
    """Everything both arms gave."""

    requests: tuple[Request, ...]  # with token-id prompts
    arms: dict[str, Arm]
    timing: Timing
    bound: NoiseBound
    sweep_limits: Mapping[str, str] = field(default_factory=dict)
    profile: Profile | None = None
    band: BandProbe | None = None  # None: the candidate takes no drafts from outside
    repeats: Repeats | None = None  # None: nothing was sent again
    float32: Float32 | None = None  # None: the run is float32 itself, or leaves it out
    memory: MemoryControl | None = None  # None: no server, or one that tells no acceptance
    probed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of servers, by arm
    remarks: tuple[str, ...] = ()  # limitations that the session knows of
    third: Third | None = None  # the approved baseline, where one is named


def collect(
    plan: Plan, store: RunStore, stored: StoredPlan, session: Any, progress: Progress
) -> Collected:
    """Run both arms over the batch plan, then the timing blocks; finished batches are read back."""
    stored = fix_batches(plan, store, stored, session)
    bound = _calibrate(plan, store, stored, session, progress)
    arms = {arm: _collect_arm(plan, store, stored, session, arm, progress) for arm in ARMS}
    decoders = {name: decoder for name, (_, decoder) in arms.items()}
    timing = collect_timing(plan, store, stored, session, decoders, progress)
    n_rows = step_rows(plan.specs["candidate"])
    profile = collect_profile(plan, store, stored, session, n_rows, progress)
    third = _score_approved(plan, stored, session, arms["baseline"][0], progress)
    band = _probe_band(plan, store, stored, session, arms, bound)
    if not session.is_unchanged:
        msg = (
            "a decoder changed the model's weights in memory; nothing that followed can be trusted"
        )
        raise RunError(msg)
    collected = Collected(
        requests=tuple(r for batch in stored.batches for r in batch),
        arms={name: arm for name, (arm, _) in arms.items()},
        timing=timing,
        sweep_limits=stored.sweep_limits,
        profile=profile,
        bound=bound,
        band=band,
        memory=control_memory(store, stored, session),
        probed=session.probed,
        remarks=tuple(session.remarks),
        third=third,
    )
    with progress.stage("score tokens"):
        joined: Collected = join_late(collected, session.score_late(store, collected))
    return joined


def _score_approved(
    plan: Plan, stored: StoredPlan, session: Any, baseline: Arm, progress: Progress
) -> Third | None:
    """Score what the approved baseline gave and today's does not. Raises RunError."""
    if plan.approved is None:
        return None
    requests = [r for batch in stored.batches for r in batch if r.task != CONFORMANCE]
    name, identity = plan.approved.manifest.name, plan.approved.manifest.identity
    try:
        check_identity(name, identity, {"decoding": identify_requests(requests)})
    except UsageError as error:
        raise RunError(str(error)) from error
    changed = {
        (g.request_id, g.repeat): g for g in list_changed(plan.approved, baseline.generations)
    }
    scores: dict[Key, TokenScores] = {}
    with progress.stage(f"compare with the approved baseline, {len(changed)} outputs differ"):
        for batch in stored.batches:
            known = [r for r in batch if (r.id, r.repeat) in changed]
            outputs = [changed[r.id, r.repeat] for r in known]
            found = session.score(known, outputs) if known else []
            scores |= {(one.request_id, one.repeat): one for one in found}
    return Third(plan.approved, scores)


def _probe_band(
    plan: Plan,
    store: RunStore,
    stored: StoredPlan,
    session: Any,
    arms: Mapping[str, tuple[Arm, Any]],
    bound: NoiseBound,
) -> BandProbe | None:
    """Offer the candidate second choices inside the noise band, last: prompts come again."""
    known = store.read("band.json", BandProbe)
    if known:
        return known
    baseline, decoder = arms["baseline"][0], arms["candidate"][1]
    keyed = {(r.id, r.repeat): r for batch in stored.batches for r in batch}
    outputs = [(keyed[key], scores) for key, scores in baseline.scores.items()]
    size = min(plan.project.config.run.batch, decoder.spec.max_batch or PROBE_BATCH)
    band: BandProbe | None = session.probe_band(decoder, outputs, bound, size)
    if band:
        store.write("band.json", band)
    return band


def fix_batches(plan: Plan, store: RunStore, stored: StoredPlan, session: Any) -> StoredPlan:
    """Tokenise and fix the batch plan, once: both arms and every resumed run use the same."""
    if stored.batches:
        return stored
    size = plan.project.config.run.batch
    for spec in plan.specs.values():
        size = min(size, spec.max_batch or size)
    conformance = keep_offered(
        session.plan_conformance(plan.conformance, plan.project.config.seed),
        {name for spec in plan.specs.values() for name in spec.unsupported},
    )
    conformance = spread_conformance(conformance, plan.specs)
    tasks = [session.tokenise(request) for request in plan.requests]
    size = session.fit_batch(
        [*conformance, *tasks],
        max(step_rows(spec) for spec in plan.specs.values()),
        size,
        plan.project.config.run.memory_gib,
    )
    batches = tuple(batch for part in (conformance, tasks) for batch in session.split(part, size))
    timing = tuple(tuple(session.tokenise(r) for r in block) for block in plan.timing)
    mixed = tuple(tuple(session.tokenise(r) for r in block) for block in plan.mixed)
    spare = [session.tokenise(r) for r in plan.spare]
    n_rows = max(step_rows(spec) for spec in plan.specs.values())
    sweep, limits = plan_sweep(plan, session, tasks, spare, n_rows)
    fixed = msgspec.structs.replace(
        stored, batches=batches, timing=timing, mixed=mixed, sweep=sweep, sweep_limits=limits
    )
    store.write("plan.json", fixed)
    return fixed


def _calibrate(
    plan: Plan, store: RunStore, stored: StoredPlan, session: Any, progress: Progress
) -> NoiseBound:
    known = store.read("noise.json", NoiseBound)
    if known:
        return known
    with progress.stage("measure the noise bound"):
        unique = {r.id: r for batch in stored.batches for r in batch if r.task != CONFORMANCE}
        requests = list(unique.values())  # one of each: repeats are the same output
        n = CALIBRATION_REQUESTS.get(plan.project.config.model.dtype, CALIBRATION_REQUESTS_16_BIT)
        chosen = requests[:: max(1, len(requests) // n)][:n]
        bound: NoiseBound = session.measure_noise(chosen, step_rows(plan.specs["candidate"]))
    store.write("noise.json", bound)
    return bound


def step_rows(spec: DecoderSpec) -> int:
    """Return the rows of one request in a step of a decoder, of its routes the most."""
    routes = list_routes(spec).values()
    if routes:
        return max(step_rows(one) for one in routes)
    if spec.kind == "autoregressive":
        return 1
    if spec.kind in ("assisted", "prompt_lookup"):
        return 1 + int(str(spec.options["num_tokens"]))
    if spec.kind != "lookahead":
        return ROWS_UNKNOWN
    return msgspec.convert(spec.options, LookaheadOptions).step_rows


def _collect_arm(
    plan: Plan,
    store: RunStore,
    stored: StoredPlan,
    session: Any,
    name: str,
    progress: Progress,
) -> tuple[Arm, Any]:
    decoder = session.open_arm(plan.specs[name], name)
    results: list[BatchResult] = []
    with progress.bar(f"{name}: content", sum(len(batch) for batch in stored.batches)) as advance:
        for n, batch in enumerate(stored.batches):
            label = f"batch-{n:04d}"
            result = store.read_batch(name, label)
            if result is None:
                result = session.run_batch(decoder, batch)
                store.write_batch(name, label, result)
            results.append(result)
            advance(len(batch))
    return make_arm(decoder.spec, results), decoder


def pair(collected: Collected) -> Paired:
    """Join the arms by request."""
    return Paired(
        requests={(r.id, r.repeat): r for r in collected.requests},
        baseline=collected.arms["baseline"],
        candidate=collected.arms["candidate"],
        bound=collected.bound,
    )

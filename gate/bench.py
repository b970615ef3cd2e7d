"""The serving part alone, joined to an earlier content run of the same surface.

Content does not change with the machine's load, so it may be judged once, and the gain where and
when it can be measured. Only a content run that is still valid, of the same surface, evalset,
claim and criteria is joined; without one the decision is INCONCLUSIVE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gate.collect import fix_batches, open_store, step_rows
from gate.config import Project
from gate.criteria import Rules, decide, judge_all
from gate.decision import open_decision
from gate.decoders.base import load_object
from gate.defaults import GAIN_MEASURES
from gate.errors import RunError, UsageError
from gate.export.validity import explain_expiry
from gate.gain import collect_profile, measure_gain
from gate.gain_words import note_gain
from gate.pipeline import Now, reach_decision
from gate.plan import ARMS, Plan, make_plan
from gate.progress import Progress
from gate.provenance import describe_machine, hash_json
from gate.reasons import summarise
from gate.records import Comparison, Criterion, Decision, Verdict
from gate.routing_file import write_routing
from gate.store import RunStore, StoredPlan, read_decision
from gate.surface import describe_surface
from gate.timing import collect_timing

NO_CONTENT = (
    "no valid content run of this surface, evalset, claim and criteria was found; run "
    "'gate run --no-timing' first"
)


def bench(project: Project, out: Path, progress: Progress, now: Now) -> Decision:
    """Time both arms and judge the gain. Raises UsageError before the run folder exists."""
    config = msgspec.structs.replace(project.config, purpose="release")
    plan = make_plan(msgspec.structs.replace(project, config=config), progress)
    if not (plan.timing or plan.mixed):
        msg = "run.timing_per_class and serving.mixed_requests are 0: nothing would be timed"
        raise UsageError(msg)
    plan = _as_bench(plan)
    surface = describe_surface(plan)
    store, stored = open_store(plan, out, now)
    with store.lock():
        opening = open_decision(plan, store, stored, surface)
        return reach_decision(
            store, opening, lambda: _run_in_session(plan, store, stored, opening, progress, now)
        )


def _as_bench(plan: Plan) -> Plan:
    """Give the plan a fingerprint of its own: it resumes no whole run, and none resumes it."""
    return dataclasses.replace(plan, fingerprint=hash_json([plan.fingerprint, "bench"]))


def _run_in_session(
    plan: Plan,
    store: RunStore,
    stored: StoredPlan,
    opening: Decision,
    progress: Progress,
    now: Now,
) -> Decision:
    session: Any = load_object(f"{plan.session}:open_session")(
        plan.resolved, plan.project, plan.specs, store.folder
    )
    try:
        stored = fix_batches(plan, store, stored, session)
        decoders = {arm: session.open_arm(plan.specs[arm]) for arm in ARMS}
        timing = collect_timing(plan, store, stored, session, decoders, progress)
        n_rows = step_rows(plan.specs["candidate"])
        profile = collect_profile(plan, store, stored, session, n_rows, progress)
        comparisons = measure_gain(plan, timing, stored.sweep_limits, profile)
        routed = write_routing(plan.project, comparisons, store.folder)
        if not session.is_unchanged:
            msg = "a decoder changed the model's weights in memory; nothing timed can be trusted"
            raise RunError(msg)
        shared = {**describe_machine(plan.project.root), **session.describe()}
    finally:
        session.close()
    provenance = {arm: {**shared, "decoder": msgspec.to_builtins(plan.specs[arm])} for arm in ARMS}
    opening = msgspec.structs.replace(opening, provenance=provenance)
    decision = join(plan, opening, comparisons, _find_content(plan, opening, store, now))
    notes = (*decision.notes, routed) if routed else decision.notes
    return msgspec.structs.replace(decision, notes=notes)


def join(
    plan: Plan, opening: Decision, comparisons: Sequence[Comparison], content: Decision | None
) -> Decision:
    """Judge the gain, and put the content run's verdicts beside it."""
    config = plan.project.config
    rules = Rules(
        purpose="release",
        claim=config.claim,
        alpha=config.run.alpha,
        max_dropped=config.run.max_dropped,
        classes=tuple(plan.evalset.spec.classes),
    )
    gain = judge_all(list_gain(plan.criteria), comparisons, rules)
    held = [one for one in content.verdicts if one.half == "content"] if content else []
    verdicts: list[Verdict] = [*held, *gain]
    halves = decide(verdicts, "release")
    reason = summarise(halves.outcome, verdicts, gain_note="")
    if content is None:
        reason = f"{NO_CONTENT}. {reason}"
    return msgspec.structs.replace(
        opening,
        outcome=halves.outcome,
        content=halves.content,
        gain=halves.gain,
        reason=reason,
        verdicts=tuple(verdicts),
        comparisons=(*_list_content(content), *comparisons),
        forks=content.forks if content else (),
        waivers=content.waivers if content else (),
        notes=(*_note_content(content), *note_gain(comparisons)),
        sensitivity=content.sensitivity if content else (),
        expires_at=min(opening.expires_at, content.expires_at) if content else opening.expires_at,
    )


def _list_content(content: Decision | None) -> Iterable[Comparison]:
    """The content run's comparisons, but what it may itself have timed."""
    gain = GAIN_MEASURES | {"sweep", "routing", "profile", "peak_memory"}
    return [one for one in content.comparisons if one.measure not in gain] if content else []


def _note_content(content: Decision | None) -> list[str]:
    if content is None:
        return ["content was not judged: there is no content run to join"]
    joined = (
        f"content was judged in run {content.run_id} of {content.created_at}, gain in this one; "
        "the outputs of the timed prompts were not certified again"
    )
    return [joined, *content.notes]


def list_gain(criteria: Sequence[Criterion]) -> list[Criterion]:
    """Return the criteria of the gain."""
    return [one for one in criteria if one.measure in GAIN_MEASURES]


def _find_content(plan: Plan, opening: Decision, store: RunStore, now: Now) -> Decision | None:
    """Return the newest content run that covers this surface."""
    folders = (store.folder.parent, plan.project.folder / "reports")
    paths = {p.resolve() for folder in folders for p in folder.glob("*/decision.json")}
    found = []
    for path in paths - {(store.folder / "decision.json").resolve()}:
        try:
            decision = read_decision(path)
        except UsageError:
            continue
        if not find_mismatch(plan, opening, decision) and not explain_expiry(decision, now()):
            found.append(decision)
    return max(found, key=lambda one: one.created_at, default=None)


def find_mismatch(plan: Plan, opening: Decision, content: Decision) -> str:
    """Return why a decision's content does not cover this run; empty where it does."""
    evalset: Any = content.provenance.get("candidate", {}).get("evalset", {})
    wanted = [one for one in opening.criteria if one.measure not in GAIN_MEASURES]
    judged = [one for one in content.criteria if one.measure not in GAIN_MEASURES]
    checks: tuple[tuple[bool, str], ...] = (
        (content.surface.get("hash") == opening.surface.get("hash"), "another surface"),
        (content.claim == opening.claim, "another claim"),
        (isinstance(evalset, dict) and evalset.get("sha256") == plan.evalset.sha256, "evalset"),
        (judged == wanted, "other criteria"),
        (any(one.half == "content" for one in content.verdicts), "no content verdict"),
    )
    return next((reason for holds, reason in checks if not holds), "")

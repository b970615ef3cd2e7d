"""A gate run: plan, collect, pair, measure, judge, publish.

Everything before the run folder exists may refuse (UsageError, exit code 2). Everything
after ends in a decision, if need be ERROR with its reason.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gate.baselines import identify_machine
from gate.collect import Collected, collect, open_store, pair
from gate.config import Project
from gate.decision import describe_arms, error_decision, judge, open_decision
from gate.decoders.base import load_object
from gate.errors import GateError
from gate.export.junit import render_junit
from gate.export.redact import redact
from gate.export.summary import render_summary
from gate.float32 import add_float32
from gate.gain import measure_gain
from gate.measures.acceptance import compare_acceptance
from gate.measures.acceptance_drop import compare_drop
from gate.measures.band import compare_band
from gate.measures.baseline_drift import compare_baseline, compare_baseline_time
from gate.measures.conformance import compare_conformance, without_conformance
from gate.measures.divergence import compare_divergence
from gate.measures.entropy import compare_entropy
from gate.measures.exercise import compare_exercise
from gate.measures.float32 import compare_float32
from gate.measures.forks import compare_forks, find_forks, mark_scores
from gate.measures.guards import compare_errors, compare_guards
from gate.measures.memorisation import compare_memory
from gate.measures.paired import Paired
from gate.measures.repeats import compare_repeats
from gate.measures.sampling import compare_sampling
from gate.measures.task_deltas import TaskScore, compare_tasks, find_changes
from gate.measures.termination import compare_termination
from gate.measures.tokens import compare_certificates, compare_rates
from gate.plan import TASKS, Plan, make_plan, prompt_text
from gate.progress import Progress
from gate.records import Comparison, Decision
from gate.repeats import add_repeats
from gate.report.html import render_html
from gate.routing_file import write_routing
from gate.store import (
    RunStore,
    StoredPlan,
    encode_record,
    point_latest,
    seal,
    unfinished_decision,
    write_atomically,
)
from gate.surface import describe_surface
from gate.timing import add_timing, list_times

Now = Callable[[], dt.datetime]
Scores = tuple[list[TaskScore], list[TaskScore]]


def run(project: Project, out: Path, progress: Progress, now: Now) -> Decision:
    """Run the gate. Raises UsageError before the run folder exists, never after."""
    plan = make_plan(project, progress, now().date())
    surface = describe_surface(plan)
    store, stored = open_store(plan, out, now)
    with store.lock():
        opening = open_decision(plan, store, stored, surface)
        return reach_decision(
            store, opening, lambda: _run_planned(plan, store, stored, opening, progress)
        )


def reach_decision(store: RunStore, opening: Decision, work: Callable[[], Decision]) -> Decision:
    """Do a run's work to its decision and publish that: from here on nothing is raised."""
    store.write("decision.json", unfinished_decision(opening))
    point_latest(store.folder.parent, store.run_id)
    try:
        decision = work()
    except GateError as error:
        decision = error_decision(opening, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a run that broke is a decision too
        decision = error_decision(opening, f"the run broke: {type(error).__name__}: {error}")
    publish(store, decision)
    return decision


def _run_planned(
    plan: Plan, store: RunStore, stored: StoredPlan, opening: Decision, progress: Progress
) -> Decision:
    session = load_object(f"{plan.session}:open_session")(
        plan.resolved, plan.project, plan.specs, store.folder
    )
    try:
        return _run_in_session(plan, store, stored, opening, progress, session)
    finally:
        session.close()


def _run_in_session(
    plan: Plan,
    store: RunStore,
    stored: StoredPlan,
    opening: Decision,
    progress: Progress,
    session: Any,
) -> Decision:
    collected = collect(plan, store, stored, session, progress)
    collected = add_repeats(plan, store, session, collected, progress)
    collected = add_float32(plan, store, session, collected, progress)
    with progress.stage("measure"):
        paired = pair(collected)
        scores = score_arms(plan, paired)
        comparisons = measure(plan, paired, collected, scores)
        texts = {(r.id, r.repeat): prompt_text(r) for r in plan.requests}
        forks = mark_scores(find_forks(paired, texts, session.decode), find_changes(*scores))
    provenance = describe_arms(plan, session, collected)
    opening = msgspec.structs.replace(opening, provenance=provenance)
    times = list_times(block.results["baseline"] for block in collected.timing.blocks)
    machine = identify_machine(provenance["baseline"])
    comparisons += compare_baseline_time(plan.approved, machine, times)
    decision = judge(plan, opening, comparisons, collected)
    routed = write_routing(plan.project, comparisons, store.folder)
    notes = (*decision.notes, routed) if routed else decision.notes
    return msgspec.structs.replace(decision, forks=forks, notes=notes)


def measure(plan: Plan, paired: Paired, collected: Collected, scores: Scores) -> list[Comparison]:
    """Apply every measure."""
    rng = np.random.default_rng(plan.project.config.seed)
    return [
        *measure_content(plan, paired, collected, rng),
        *measure_quality(plan, paired, rng, scores),
        *compare_forks(paired),
        *measure_gain(plan, collected.timing, collected.sweep_limits, collected.profile),
    ]


def measure_content(
    plan: Plan, paired: Paired, collected: Collected, rng: np.random.Generator
) -> list[Comparison]:
    """Apply the measures that need the outputs and what the referee says of them."""
    config = plan.project.config
    traffic = without_conformance(paired)
    certified = add_timing(traffic, collected.timing.certified)
    return [
        *compare_certificates(certified),
        *compare_termination(certified),
        *compare_exercise(traffic),
        *compare_conformance(paired, probed=collected.probed),
        *compare_rates(certified, rng, config.run.resamples),
        *compare_band(collected.band),
        *compare_memory(collected.memory),
        *compare_sampling(traffic, rng, config.run.resamples),
        *compare_divergence(traffic),
        *compare_errors(traffic),
        *compare_acceptance(traffic),
        *compare_entropy(traffic),
        *compare_drop(traffic, plan.reference),
        *compare_repeats(collected.repeats, collected.arms, collected.bound),
        *compare_float32(collected.float32, paired),
        *compare_baseline(traffic, collected.third),
    ]


def measure_quality(
    plan: Plan, paired: Paired, rng: np.random.Generator, scores: Scores
) -> list[Comparison]:
    """Apply the measures that need the evalset's tasks: scores and guards."""
    traffic = without_conformance(paired)
    dropped = {key[0]: reason for key, reason in traffic.drops().items()}
    classes = {r.task: r.request_class for r in plan.requests}
    return [
        *compare_tasks(*scores, dropped, classes, rng=rng),
        *compare_guards(traffic, plan.evalset),
    ]


def score_arms(plan: Plan, paired: Paired) -> Scores:
    """Let lm-eval score both arms, baseline and candidate, from their stored texts."""
    traffic = without_conformance(paired)
    score, gather = load_object(f"{TASKS}:score_generations"), load_object(f"{TASKS}:gather_texts")
    baseline, candidate = (
        score(
            plan.evalset,
            gather(arm.generations[k] for k in traffic.requests if not arm.failed(k)),
        )
        for arm in (traffic.baseline, traffic.candidate)
    )
    return baseline, candidate


def publish(store: RunStore, decision: Decision) -> None:
    """Write the decision and all that is rendered from it. The decision comes last but one."""
    render(store.folder, decision)
    store.write("decision.json", seal(decision))
    write_atomically(store.folder / "finished", b"")
    point_latest(store.folder.parent, store.run_id)


def render_redacted(folder: Path, decision: Decision, expired: str = "") -> None:
    """Write the same files, decision.json included, without prompts, outputs and messages."""
    shared = seal(redact(decision))
    render(folder, shared, expired)
    write_atomically(folder / "decision.json", encode_record(shared))


def render(folder: Path, decision: Decision, expired: str = "") -> None:
    """Write report.html, summary.md and junit.xml from a decision; expired: why it is over."""
    write_atomically(folder / "report.html", render_html(decision, expired))
    over = "> **This decision has expired: run the gate again.**\n\n" if expired else ""
    write_atomically(folder / "summary.md", over + render_summary(decision))
    write_atomically(folder / "junit.xml", render_junit(decision))

"""A gate run: plan, collect, pair, measure, judge, publish.

Everything before the run folder exists may refuse (UsageError, exit code 2). Everything
after ends in a decision, if need be ERROR with its reason.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gate.config import Project
from gate.criteria import Rules, decide, judge_all
from gate.decoders.base import load_object, read_spec
from gate.defaults import default_criteria, merge_criteria
from gate.errors import GateError, RunError
from gate.evalset import Evalset, load_evalset
from gate.export.junit import render_junit
from gate.export.summary import render_summary
from gate.measures.acceptance import compare_acceptance
from gate.measures.divergence import compare_divergence
from gate.measures.forks import find_forks
from gate.measures.guards import compare_errors, compare_guards
from gate.measures.paired import Arm, Key, Paired
from gate.measures.serving import compare_serving
from gate.measures.task_deltas import compare_tasks
from gate.measures.termination import compare_termination
from gate.measures.tokens import compare_certificates, compare_exercise, compare_rates
from gate.progress import Progress
from gate.provenance import (
    describe_machine,
    find_differences,
    hash_json,
    hash_package,
    hash_target,
    make_surface,
)
from gate.reasons import summarise
from gate.records import (
    Comparison,
    Criterion,
    Decision,
    DecoderSpec,
    Generation,
    NoiseBound,
    Outcome,
    Record,
    Request,
)
from gate.report.html import render_html
from gate.store import (
    BatchResult,
    RunStore,
    StoredPlan,
    count_surface_runs,
    find_unfinished,
    key_text,
    point_latest,
    unfinished_decision,
    write_atomically,
)

ARMS = ("baseline", "candidate")
VALID_DAYS = 30
CALIBRATION_REQUESTS = 8
ROWS_UNKNOWN = 32  # rows of a step assumed of decoders that do not say
SESSION = "gate.decoders.session"
TASKS = "gate.measures.tasks"
Now = Callable[[], dt.datetime]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A checked run, before anything was written."""

    project: Project
    evalset: Evalset
    requests: tuple[Request, ...]
    timing: tuple[tuple[Request, ...], ...]
    specs: dict[str, DecoderSpec]
    criteria: tuple[Criterion, ...]
    resolved: Any  # models.ResolvedModel
    fingerprint: str
    sources: dict[str, str]


def run(project: Project, out: Path, progress: Progress, now: Now) -> Decision:
    """Run the gate. Raises UsageError before the run folder exists, never after."""
    plan = make_plan(project, progress)
    store, stored = open_store(plan, out, now)
    opening = open_decision(plan, store, stored)
    store.write("decision.json", unfinished_decision(opening))
    point_latest(out, store.run_id)
    try:
        decision = _run_planned(plan, store, stored, opening, progress, now)
    except GateError as error:
        decision = error_decision(opening, str(error))
    except Exception as error:  # noqa: BLE001 - a run that broke is a decision too
        decision = error_decision(opening, f"the run broke: {type(error).__name__}: {error}")
    publish(store, decision)
    return decision


def _run_planned(
    plan: Plan, store: RunStore, stored: StoredPlan, opening: Decision, progress: Progress, now: Now
) -> Decision:
    session = load_object(f"{SESSION}:Session")(plan.resolved, plan.project.config.model, plan.project.folder)
    collected = collect(plan, store, stored, session, progress)
    with progress.stage("measure"):
        paired = pair(collected)
        comparisons = measure(plan, paired, collected)
        texts = {(r.id, r.repeat): prompt_text(r) for r in plan.requests}
        forks = find_forks(paired, texts, session.decode)
    provenance = describe_arms(plan, session, collected)
    earlier = count_surface_runs(store.folder.parent, opening.surface["hash"], store.run_id)
    opening = msgspec.structs.replace(opening, provenance=provenance, earlier_runs=earlier)
    decision = judge(plan, opening, comparisons, collected)
    return msgspec.structs.replace(decision, forks=forks)


# ------------------------------------------------------------------- plan


def make_plan(project: Project, progress: Progress) -> Plan:
    """Check everything that can be checked without running. Raises UsageError."""
    config = project.config
    specs = {arm: read_spec(arm, getattr(config, arm)) for arm in ARMS}
    defaults = default_criteria(config.claim, config.purpose, config.model.dtype, config.run.max_dropped)
    criteria = merge_criteria(defaults, config.criteria, config.claim)
    evalset = load_evalset(project, "evalset", config.evalset)
    tasks = load_object(f"{TASKS}:plan_requests")
    requests = tasks(evalset, config.seed)
    timing = load_object(f"{TASKS}:plan_timing")(evalset, config.run.timing_per_class, config.seed)
    _check_groups(criteria, evalset)
    for arm in ARMS:
        if specs[arm].kind == "python":
            load_object(str(specs[arm].target), project.folder)
    resolved = load_object(f"{SESSION}:resolve")(
        config.model, project.folder, specs.values(), progress.say
    )
    sources = {
        arm: hash_target(str(spec.target), project.folder)
        for arm, spec in specs.items()
        if spec.kind == "python"
    }
    marks = [
        config, evalset.sha256, resolved.weights_sha256, resolved.tokenizer_sha256, hash_package(), sources,
    ]
    return Plan(
        project=project,
        evalset=evalset,
        requests=tuple(requests),
        timing=tuple(tuple(block) for block in timing if block),
        specs=specs,
        criteria=tuple(criteria),
        resolved=resolved,
        fingerprint=hash_json(msgspec.to_builtins(marks)),
        sources=sources,
    )


def _check_groups(criteria: Sequence[Criterion], evalset: Evalset) -> None:
    from gate.errors import UsageError  # noqa: PLC0415

    known = {"all", "each_task", "each_class", "refusal", "format", "degeneration"}
    known |= {*evalset.spec.tasks, *evalset.spec.classes}
    for criterion in criteria:
        if criterion.groups not in known:
            msg = (
                f"criteria {criterion.name!r}: groups = {criterion.groups!r} names nothing; choose all, "
                f"each_task, each_class, or one of {', '.join(sorted(known))}"
            )
            raise UsageError(msg)


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


def open_decision(plan: Plan, store: RunStore, stored: StoredPlan) -> Decision:
    """Return a decision that holds what is known before anything ran."""
    config, created = plan.project.config, dt.datetime.fromisoformat(stored.created_at)
    surface = make_surface(
        {
            "weights": plan.resolved.weights_sha256,
            "tokenizer": plan.resolved.tokenizer_sha256,
            "runtime": {"dtype": config.model.dtype, "device": config.model.device},
            "decoder": {"spec": msgspec.to_builtins(plan.specs["candidate"]), "source": plan.sources.get("candidate")},
        }
    )
    return Decision(
        run_id=store.run_id,
        outcome=Outcome.ERROR,
        content=Outcome.ERROR,
        gain=Outcome.NOT_JUDGED if config.purpose == "content" else Outcome.ERROR,
        claim=config.claim,
        purpose=config.purpose,
        reason="",
        criteria=plan.criteria,
        surface=surface,
        created_at=stored.created_at,
        expires_at=(created + dt.timedelta(days=VALID_DAYS)).isoformat(),
    )


def error_decision(opening: Decision, reason: str) -> Decision:
    """Return the decision of a run that could not be judged."""
    gain = Outcome.NOT_JUDGED if opening.purpose == "content" else Outcome.ERROR
    return msgspec.structs.replace(
        opening, outcome=Outcome.ERROR, content=Outcome.ERROR, gain=gain, reason=reason
    )


# ---------------------------------------------------------------- collect


@dataclass(frozen=True, kw_only=True)
class Collected:
    """Everything both arms gave."""

    requests: tuple[Request, ...]  # with token-id prompts
    arms: dict[str, Arm]
    timing: tuple[tuple[dict[str, tuple[Generation, ...]], tuple[Request, ...]], ...]
    bound: NoiseBound


def collect(plan: Plan, store: RunStore, stored: StoredPlan, session: Any, progress: Progress) -> Collected:  # noqa: ANN401
    """Run both arms over the batch plan, then the timing blocks; finished batches are read back."""
    stored = _fix_batches(plan, store, stored, session)
    bound = _calibrate(plan, store, stored, session, progress)
    arms = {arm: _collect_arm(plan, store, stored, session, arm, progress) for arm in ARMS}
    timing = _collect_timing(plan, store, stored, session, arms, progress)
    if not session.is_unchanged:
        msg = "a decoder changed the model's weights in memory; nothing that followed can be trusted"
        raise RunError(msg)
    return Collected(
        requests=tuple(r for batch in stored.batches for r in batch),
        arms={name: arm for name, (arm, _) in arms.items()},
        timing=timing,
        bound=bound,
    )


def _fix_batches(plan: Plan, store: RunStore, stored: StoredPlan, session: Any) -> StoredPlan:  # noqa: ANN401
    """Tokenise and fix the batch plan, once: both arms and every resumed run use the same."""
    if stored.batches:
        return stored
    requests = [session.tokenise(request) for request in plan.requests]
    size = plan.project.config.run.batch
    for spec in plan.specs.values():
        size = min(size, spec.max_batch or size)
    batches = tuple(tuple(requests[at : at + size]) for at in range(0, len(requests), size))
    timing = tuple(tuple(session.tokenise(r) for r in block) for block in plan.timing)
    fixed = msgspec.structs.replace(stored, batches=batches, timing=timing)
    store.write("plan.json", fixed)
    return fixed


def _calibrate(plan: Plan, store: RunStore, stored: StoredPlan, session: Any, progress: Progress) -> NoiseBound:  # noqa: ANN401
    known = store.read("noise.json", NoiseBound)
    if known:
        return known
    with progress.stage("measure the noise bound"):
        requests = [r for batch in stored.batches for r in batch]
        step = max(1, len(requests) // CALIBRATION_REQUESTS)
        chosen = requests[::step][:CALIBRATION_REQUESTS]
        bound: NoiseBound = session.measure_noise(chosen, step_rows(plan.specs["candidate"]))
    store.write("noise.json", bound)
    return bound


def step_rows(spec: DecoderSpec) -> int:
    """Return the rows of one request in a step of a decoder."""
    if spec.kind == "autoregressive":
        return 1
    if spec.kind != "lookahead":
        return ROWS_UNKNOWN
    window, ngram, guesses = (int(str(spec.options[key])) for key in ("window", "ngram", "guesses"))
    return 1 + (window + guesses) * (ngram - 1)


def _collect_arm(
    plan: Plan, store: RunStore, stored: StoredPlan, session: Any, name: str, progress: Progress  # noqa: ANN401
) -> tuple[Arm, Any]:
    decoder = session.open_arm(plan.specs[name])
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


def make_arm(spec: DecoderSpec, results: Sequence[BatchResult]) -> Arm:
    """Join an arm's batches."""
    faults = {}
    for result in results:
        for generation in result.generations:
            key = (generation.request_id, generation.repeat)
            found = result.faults.get(key_text(*key))
            if found:
                faults[key] = found
    return Arm(
        spec=spec,
        generations={(g.request_id, g.repeat): g for result in results for g in result.generations},
        scores={(s.request_id, s.repeat): s for result in results for s in result.scores},
        faults=faults,
    )


def _collect_timing(
    plan: Plan,  # noqa: ARG001 - the order of blocks is fixed
    store: RunStore,
    stored: StoredPlan,
    session: Any,  # noqa: ANN401
    arms: Mapping[str, tuple[Arm, Any]],
    progress: Progress,
) -> tuple[tuple[dict[str, tuple[Generation, ...]], tuple[Request, ...]], ...]:
    """Time disjoint blocks of held-back prompts, the arms' order crossed over from block to block."""
    found = []
    total = 2 * sum(len(block) for block in stored.timing)
    with progress.bar("timing", total) as advance:
        for n, block in enumerate(stored.timing):
            by_arm: dict[str, tuple[Generation, ...]] = {}
            for name in ARMS if n % 2 == 0 else reversed(ARMS):
                label = f"timing-{n:02d}"
                result = store.read_batch(name, label)
                if result is None:
                    decoder = arms[name][1]
                    session.warm_up(decoder)
                    result = BatchResult(generations=tuple(session.time_one_by_one(decoder, block)))
                    store.write_batch(name, label, result)
                by_arm[name] = result.generations
                advance(len(block))
            found.append((by_arm, block))
    return tuple(found)


# --------------------------------------------------- pair, measure, judge


def pair(collected: Collected) -> Paired:
    """Join the arms by request."""
    return Paired(
        requests={(r.id, r.repeat): r for r in collected.requests},
        baseline=collected.arms["baseline"],
        candidate=collected.arms["candidate"],
        bound=collected.bound,
    )


def measure(plan: Plan, paired: Paired, collected: Collected) -> list[Comparison]:
    """Apply every measure."""
    config = plan.project.config
    rng = np.random.default_rng(config.seed)
    return [
        *compare_certificates(paired),
        *compare_termination(paired),
        *compare_exercise(paired),
        *compare_rates(paired, rng, config.run.resamples),
        *compare_divergence(paired),
        *compare_errors(paired),
        *_score_tasks(plan, paired, rng),
        *compare_guards(paired, plan.evalset),
        *compare_serving(collected.timing, {n: c.traffic_share for n, c in plan.evalset.spec.classes.items()}),
        *compare_acceptance(paired),
    ]


def _score_tasks(plan: Plan, paired: Paired, rng: np.random.Generator) -> list[Comparison]:
    """Let lm-eval score both arms from their stored texts, and compare."""
    score, gather = load_object(f"{TASKS}:score_generations"), load_object(f"{TASKS}:gather_texts")
    tasks = {(r.id, r.repeat) for r in plan.requests}
    scored = [
        score(plan.evalset, gather(arm.generations[k] for k in paired.requests if k in tasks and not arm.failed(k)))
        for arm in (paired.baseline, paired.candidate)
    ]
    dropped = {key[0]: reason for key, reason in paired.drops().items()}
    classes = {r.task: r.request_class for r in plan.requests}
    return compare_tasks(*scored, dropped, classes, rng=rng)


def describe_arms(plan: Plan, session: Any, collected: Collected) -> dict[str, dict[str, object]]:  # noqa: ANN401
    """Provenance of both arms."""
    shared = {
        **describe_machine(plan.project.root),
        **session.describe(),
        "template_sha256": session.template_sha256,
        "evalset": {"name": plan.evalset.spec.name, "sha256": plan.evalset.sha256},
        "n_requests": len(collected.requests),
        "batch": plan.project.config.run.batch,
        "seed": plan.project.config.seed,
        "noise_bound": msgspec.to_builtins(collected.bound),
    }
    return {
        arm: {
            **shared,
            "decoder": {**msgspec.to_builtins(plan.specs[arm]), "source_sha256": plan.sources.get(arm, "this package")},
        }
        for arm in ARMS
    }


def judge(plan: Plan, opening: Decision, comparisons: Sequence[Comparison], collected: Collected) -> Decision:
    """Judge all criteria and combine them into the decision."""
    config = plan.project.config
    rules = Rules(
        purpose=config.purpose,
        alpha=config.run.alpha,
        max_dropped=config.run.max_dropped,
        allow_unknown_acceptance=config.run.allow_unknown_acceptance,
        tasks=tuple(plan.evalset.spec.tasks),
        classes=tuple(plan.evalset.spec.classes),
    )
    verdicts = judge_all(plan.criteria, comparisons, rules)
    halves = decide(verdicts, config.purpose)
    differences = _unallowed_differences(plan, opening)
    reason = summarise(halves.outcome, verdicts, gain_note=_gain_note(comparisons, opening))
    decision = msgspec.structs.replace(
        opening,
        outcome=halves.outcome,
        content=halves.content,
        gain=halves.gain,
        reason=reason,
        verdicts=tuple(verdicts),
        comparisons=tuple(comparisons),
        notes=tuple(_notes(comparisons, verdicts, collected)),
    )
    if differences:
        named = ", ".join(differences)
        return error_decision(decision, f"the arms differ in {named}, which is outside the decoder; allow it by name under run.allow_differences, or run both arms alike")
    return decision


def _unallowed_differences(plan: Plan, opening: Decision) -> list[str]:
    allowed = {entry.field for entry in plan.project.config.run.allow_differences}
    found = find_differences(opening.provenance.get("baseline", {}), opening.provenance.get("candidate", {}))
    return [path for path in found if path not in allowed]


def _gain_note(comparisons: Sequence[Comparison], opening: Decision) -> str:
    ratio = next((c for c in comparisons if c.measure == "time_ratio" and c.group == "all" and c.difference), None)
    if ratio is None or ratio.difference is None:
        return "gain not measured"
    times = ratio.difference.statistic
    word = f"{1 / times:.2f} times as fast" if times < 1 else f"{times:.2f} times as slow"
    verdict = "" if opening.purpose == "release" else ", not judged"
    return f"the candidate is {word} here{verdict}"


def _notes(comparisons: Sequence[Comparison], verdicts: Sequence[Any], collected: Collected) -> list[str]:
    notes = [f"{v.criterion} ({v.group}): {v.reason}" for v in verdicts if v.outcome is Outcome.NOT_JUDGED and v.blocking and v.half == "content"]
    for comparison in comparisons:
        by_class = comparison.detail.get("by_class")
        if comparison.measure == "exercised" and isinstance(by_class, dict):
            idle = sorted(name for name, accepted in by_class.items() if not accepted)
            if idle and len(idle) < len(by_class):
                notes.append(f"nothing was accepted in {', '.join(idle)}: the claim does not cover these classes")
    if collected.arms["candidate"].spec.noise == "own":
        notes.append("sampled outputs of this decoder use randomness of their own and are not certified token by token")
    return notes


def prompt_text(request: Request) -> str:
    """Return a request's prompt as a person wrote it."""
    prompt: Any = request.prompt
    if isinstance(prompt, str):
        return prompt
    if prompt and isinstance(prompt[0], dict):
        return "\n".join(message["content"] for message in prompt)
    return f"({len(prompt)} token ids)"


# ---------------------------------------------------------------- publish


def publish(store: RunStore, decision: Decision) -> None:
    """Write the decision and all that is rendered from it. The decision comes last but one."""
    render(store.folder, decision)
    store.write("decision.json", decision)
    write_atomically(store.folder / "finished", b"")


def render(folder: Path, decision: Decision) -> None:
    """Write report.html, summary.md and junit.xml from a decision."""
    write_atomically(folder / "report.html", render_html(decision))
    write_atomically(folder / "summary.md", render_summary(decision))
    write_atomically(folder / "junit.xml", render_junit(decision))

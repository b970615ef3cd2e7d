"""From comparisons to the one decision, and the decision of a run that could not be judged."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gate.baselines import list_unused
from gate.collect import Collected
from gate.config import Config
from gate.conformance import hash_conformance
from gate.criteria import Rules, decide, judge_all
from gate.gain_words import note_gain
from gate.loosening import find_loosened, list_baseline_notes
from gate.measures.memorisation import describe_memory
from gate.plan import ARMS, REMOTE_SESSION, Plan
from gate.provenance import count_prompt_tokens, describe_machine, find_differences
from gate.reasons import summarise
from gate.records import Comparison, Decision, Outcome, Verdict
from gate.store import RunStore, StoredPlan, count_surface_runs
from gate.surface import Surface
from gate.waivers import apply_waivers, end_of, list_notes, write_prefix

FALSE = ("fails", "inconclusives", "errors")
"""Ways in which a self-test's lossless control can be flagged."""


def open_decision(plan: Plan, store: RunStore, stored: StoredPlan, surface: Surface) -> Decision:
    """Return a decision that holds what is known before anything ran."""
    config, created = plan.project.config, dt.datetime.fromisoformat(stored.created_at)
    folders = (store.folder.parent, plan.project.folder / "reports")
    earlier = count_surface_runs(folders, surface.hash, store.run_id)
    return Decision(
        run_id=store.run_id,
        outcome=Outcome.ERROR,
        content=Outcome.ERROR,
        gain=Outcome.NOT_JUDGED if config.purpose == "content" else Outcome.ERROR,
        claim=config.claim,
        purpose=config.purpose,
        reason="",
        criteria=plan.criteria,
        surface={"hash": surface.hash, **surface.parts},
        surface_values=surface.values,
        earlier_runs=sum(earlier.values()),
        earlier_outcomes=earlier,
        created_at=stored.created_at,
        expires_at=(created + dt.timedelta(days=config.run.valid_days)).isoformat(),
    )


def error_decision(opening: Decision, reason: str) -> Decision:
    """Return the decision of a run that could not be judged."""
    gain = Outcome.NOT_JUDGED if opening.purpose == "content" else Outcome.ERROR
    return msgspec.structs.replace(
        opening, outcome=Outcome.ERROR, content=Outcome.ERROR, gain=gain, reason=reason
    )


def describe_arms(plan: Plan, session: Any, collected: Collected) -> dict[str, dict[str, object]]:
    """Provenance of both arms."""
    shared = {
        **describe_machine(plan.project.root),
        **session.describe(),
        "template_sha256": session.template_sha256,
        "evalset": {"name": plan.evalset.spec.name, "sha256": plan.evalset.sha256},
        "conformance_sha256": hash_conformance() if plan.conformance else "not run",
        "n_requests": len(collected.requests),
        "batch": plan.project.config.run.batch,
        "seed": plan.project.config.seed,
        "noise_bound": msgspec.to_builtins(collected.bound),
    }
    counts = count_prompt_tokens(collected.arms) if plan.session == REMOTE_SESSION else {}
    return {
        arm: _describe_arm(plan, arm, {**shared, **counts.get(arm, {})}, session.describe_arm(arm))
        for arm in ARMS
    }


def _describe_arm(
    plan: Plan, arm: str, shared: dict[str, object], own: dict[str, Any]
) -> dict[str, object]:
    """Return an arm's provenance; what stands under ``decoder`` may differ between the arms."""
    decoder = {
        **msgspec.to_builtins(plan.specs[arm]),
        **(plan.parts[arm] or {"source_sha256": "this package"}),
        **own.get("decoder", {}),
    }
    return {**shared, **own, "decoder": decoder}


def judge(
    plan: Plan, opening: Decision, comparisons: Sequence[Comparison], collected: Collected
) -> Decision:
    """Judge all criteria and combine them into the decision."""
    config = plan.project.config
    rules = Rules(
        purpose=config.purpose,
        claim=config.claim,
        alpha=config.run.alpha,
        max_dropped=config.run.max_dropped,
        allowed={
            "exercised": config.run.allow_unknown_acceptance,
            "conformance": config.run.skip_conformance,
        },
        tasks=tuple(plan.evalset.spec.tasks),
        classes=tuple(plan.evalset.spec.classes),
    )
    approved = plan.approved.manifest.criteria if plan.approved else ()
    loosened = find_loosened(approved, plan.criteria)
    verdicts, unused = apply_waivers(judge_all(plan.criteria, comparisons, rules), plan.waivers)
    used = tuple(verdict.waiver for verdict in verdicts if verdict.waiver)
    halves = decide(verdicts, config.purpose)
    differences = _unallowed_differences(plan, opening)
    reason = summarise(halves.outcome, verdicts, gain_note=_gain_note(comparisons, opening))
    expires = end_of(used, dt.datetime.fromisoformat(opening.expires_at))
    decision = msgspec.structs.replace(
        opening,
        outcome=halves.outcome,
        content=halves.content,
        gain=halves.gain,
        reason=write_prefix(halves.outcome, used) + reason,
        expires_at=expires.isoformat(),
        waivers=used,
        loosened=tuple(loosened),
        verdicts=tuple(verdicts),
        comparisons=tuple(comparisons),
        notes=(
            *list_notes(plan.project, used, unused),
            *list_baseline_notes(
                plan.approved, loosened, plan.specs["candidate"], list_unused(plan.project)
            ),
            *_notes(comparisons, verdicts, collected),
            *_skipped(config),
        ),
        sensitivity=read_sensitivity(plan),
    )
    if differences:
        named = ", ".join(differences)
        return error_decision(
            decision,
            f"the arms differ in {named}, which is outside the decoder; allow it by name under "
            "run.allow_differences, or run both arms alike",
        )
    return decision


def read_sensitivity(plan: Plan) -> tuple[dict[str, object], ...]:
    """Return the self-test's rows for this model, dtype and evalset; empty: not measured.

    Looked up in baselines/selftest-*.json beside gate.toml; a later file's rows replace earlier.
    """
    rows: dict[str, dict[str, object]] = {}
    for path in sorted((plan.project.folder / "baselines").glob("selftest-*.json")):
        try:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            continue  # a broken file is as good as none: the report says "not measured"
        known = (found.get("model"), found.get("dtype"), found.get("evalset_sha256"))
        own = (plan.resolved.name, plan.project.config.model.dtype, plan.evalset.sha256)
        if known == own:
            rows |= {str(row["id"]): row for row in _read_rows(found)}
    return tuple(rows.values())


def _name_result(row: dict[str, Any]) -> str:
    """Say how a fault fared; one that no measure can see was declared as such."""
    if row.get("detected"):
        return "caught"
    return "out of sight, as declared" if row.get("unseen") else "missed"


def _read_rows(found: dict[str, Any]) -> Iterator[dict[str, object]]:
    """Yield what a self-test says of each fault and control, in the report's columns."""
    date = found.get("date", "")
    for row in found.get("faults", []):
        yield {
            "id": row["id"],
            "kind": row.get("kind", ""),
            "strength": row.get("strength", ""),
            "result": _name_result(row),
            "by": ", ".join(row.get("by", [])),
            "tokens": row.get("n_tokens", ""),
            "date": date,
        }
    for row in found.get("controls", []):
        n_flagged = sum(int(row.get(f"false_{kind}", 0)) for kind in FALSE)
        yield {
            "id": row["id"],
            "kind": "lossless control",
            "strength": "",
            "result": f"flagged in {n_flagged} of {row.get('runs', 1)} runs",
            "by": "",
            "tokens": row.get("n_tokens", ""),
            "date": date,
        }


def _unallowed_differences(plan: Plan, opening: Decision) -> list[str]:
    allowed = {entry.field for entry in plan.project.config.run.allow_differences}
    found = find_differences(
        opening.provenance.get("baseline", {}), opening.provenance.get("candidate", {})
    )
    return [path for path in found if path not in allowed]


def _gain_note(comparisons: Sequence[Comparison], opening: Decision) -> str:
    ratio = next(
        (c for c in comparisons if c.measure == "time_ratio" and c.group == "all" and c.difference),
        None,
    )
    if ratio is None or ratio.difference is None:
        return "gain not measured"
    times = ratio.difference.statistic
    word = f"{1 / times:.2f} times as fast" if times < 1 else f"{times:.2f} times as slow"
    verdict = "" if opening.purpose == "release" else ", not judged"
    return f"the candidate is {word} here{verdict}"


def _list_unjudged(verdicts: Sequence[Verdict]) -> list[str]:
    """Name what could not be judged, one line per reason."""
    found: dict[str, dict[str, list[str]]] = {}
    for v in verdicts:
        if v.outcome is Outcome.NOT_JUDGED and v.blocking and v.half == "content":
            found.setdefault(v.reason, {}).setdefault(v.criterion, []).append(v.group)
    return [f"{_name_criteria(criteria)}: {reason}" for reason, criteria in found.items()]


def _name_criteria(criteria: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(
        name if groups == ["all"] else f"{name} ({', '.join(groups)})"
        for name, groups in criteria.items()
    )


def _skipped(config: Config) -> list[str]:
    """Name what gate.toml leaves out with a reason."""
    reason = config.run.skip_float32
    if not reason or config.model.dtype == "float32":
        return []
    return [f"the decoders were not judged in float32; allowed because: {reason}"]


def _notes(
    comparisons: Sequence[Comparison], verdicts: Sequence[Verdict], collected: Collected
) -> list[str]:
    notes = _list_unjudged(verdicts)
    for comparison in comparisons:
        by_class = comparison.detail.get("by_class")
        if comparison.measure == "exercised" and isinstance(by_class, dict):
            idle = sorted(name for name, accepted in by_class.items() if not accepted)
            if idle and len(idle) < len(by_class):
                notes.append(
                    f"nothing was accepted in {', '.join(idle)}: the claim does not cover these "
                    "classes"
                )
    if collected.float32 and collected.float32.paired:
        n, total = len(collected.float32.paired.requests), len(collected.requests)
        notes.append(f"{n:,} of {total:,} requests were decoded in float32 too")
    notes += _list_limits(collected)
    notes += collected.remarks
    notes += filter(None, [describe_memory(collected.memory)])
    notes += note_gain(comparisons)
    if collected.arms["candidate"].spec.noise == "own":
        notes.append(
            "sampled outputs of this decoder use randomness of their own and are not certified "
            "token by token"
        )
    return notes


def _list_limits(collected: Collected) -> Iterator[str]:
    """Name what an arm's decoder does not offer."""
    for name in ARMS:
        missing = collected.arms[name].spec.unsupported
        if missing:
            yield (
                f"the {name}'s decoder does not offer {', '.join(missing)}: conformance requests "
                "that ask for it were left out, and the claim does not cover it"
            )

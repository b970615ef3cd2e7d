"""Everything that is checked and fixed before a run writes anything."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gate.baselines import (
    Approved,
    check_identity,
    find_changes,
    find_folder,
    identify_spec,
    read_baseline,
)
from gate.config import Config, Project, resolve_inside
from gate.conformance import Row, load_conformance
from gate.decoders.base import (
    OWN_ENGINE,
    inspect_parts,
    is_remote,
    load_object,
    read_spec,
)
from gate.decoders.routed import check_routes
from gate.defaults import default_criteria
from gate.errors import UsageError
from gate.evalset import Evalset, load_evalset
from gate.measures.float32 import GROUP as FLOAT32
from gate.offers import check_offered
from gate.own_criteria import merge_criteria
from gate.progress import Progress
from gate.provenance import hash_json, hash_package
from gate.records import AcceptanceReference, Criterion, DecoderSpec, Request, Waiver
from gate.timing_plan import list_spare, plan_mixed, plan_timing
from gate.waivers import Groups, read_waivers

ARMS = ("baseline", "candidate")
SESSION = "gate.decoders.session"
REMOTE_SESSION = "gate.decoders.remote"
SERVED = "served"  # a precision that only the server knows
REFEREE = "gate.decoders.evidence_referee"
TASKS = "gate.measures.tasks"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A checked run, before anything was written."""

    project: Project
    evalset: Evalset
    requests: tuple[Request, ...]
    conformance: tuple[Row, ...]  # empty where skipped with a reason
    timing: tuple[tuple[Request, ...], ...]
    mixed: tuple[tuple[Request, ...], ...]  # at the traffic's shares
    spare: tuple[Request, ...]  # held-back prompts that no block sends
    specs: dict[str, DecoderSpec]
    criteria: tuple[Criterion, ...]
    resolved: Any  # models.ResolvedModel
    fingerprint: str
    parts: dict[str, dict[str, str]]  # by arm: what its decoder is made of beyond this package
    reference: AcceptanceReference | None = None
    session: str = SESSION  # the module whose open_session() serves both arms
    waivers: tuple[Waiver, ...] = ()
    approved: Approved | None = None

    @property
    def runs_in_float32(self) -> bool:
        """Whether the decoders run in float32 too. A server has a precision of its own."""
        return self.session == SESSION and self.project.config.judges_in_float32

    @property
    def sources(self) -> dict[str, str]:
        """One hash per arm over its decoder's parts; arms without any are left out."""
        found = {arm: parts for arm, parts in self.parts.items() if parts}
        return {
            arm: parts.get("source_sha256", "") if len(parts) == 1 else hash_json(parts)
            for arm, parts in found.items()
        }


def make_plan(project: Project, progress: Progress, today: dt.date | None = None) -> Plan:
    """Check everything that can be checked without running. Raises UsageError.

    today: where the waivers are to be read too, the day on which they must hold.
    """
    config = project.config
    approved = read_approved(project)
    specs = {arm: read_spec(arm, getattr(config, arm)) for arm in ARMS}
    session = choose_session(specs, config.model.id)
    reference = _choose_reference(project, approved, specs["candidate"])
    defaults = default_criteria(
        config.claim,
        config.purpose,
        config.model.dtype if session == SESSION else SERVED,
        config.run.max_dropped,
        own_baseline=specs["baseline"].kind in OWN_ENGINE and not config.run.skip_conformance,
        own_candidate=specs["candidate"].kind in OWN_ENGINE,
        has_float32=session == SESSION and config.judges_in_float32,
        has_conformance=not config.run.skip_conformance,
        has_reference=reference is not None,
        has_approved=approved is not None,
    )
    criteria = merge_criteria(defaults, config.criteria, config.claim)
    evalset = load_evalset(project, "evalset", config.evalset)
    tasks = load_object(f"{TASKS}:plan_requests")
    requests = tasks(evalset, config.seed)
    timing = plan_timing(evalset, config.run.timing_per_class, config.seed)
    mixed = _plan_mixed(config, evalset)
    spare = list_spare(evalset, [r for block in (*timing, *mixed) for r in block], config.seed)
    _check_groups(criteria, evalset)
    groups = Groups(tasks=tuple(evalset.spec.tasks), classes=tuple(evalset.spec.classes))
    waivers = read_waivers(project, criteria, groups, today) if today else ()
    for arm, spec in specs.items():
        check_routes(arm, spec, evalset.spec.classes)
        check_offered(arm, spec.unsupported, [*requests, *(r for block in timing for r in block)])
    resolved = load_object(f"{session}:resolve")(
        config.model, project.folder, specs.values(), progress.say
    )
    if approved is not None:
        here = identify(config, evalset.sha256, resolved.weights_sha256)
        check_identity(config.run.approved, approved.manifest.identity, here)
    _check_reference(reference, evalset)
    parts = {arm: inspect_parts(specs[arm], project.folder, resolved) for arm in ARMS}
    marks = [
        config,
        evalset.sha256,
        resolved.weights_sha256,
        resolved.tokenizer_sha256,
        hash_package(),
        parts,
        _check_referee(project, session),
    ]
    return Plan(
        project=project,
        evalset=evalset,
        requests=tuple(requests),
        conformance=() if config.run.skip_conformance else load_conformance(),
        timing=tuple(tuple(block) for block in timing if block),
        mixed=tuple(tuple(block) for block in mixed if block),
        spare=tuple(spare),
        specs=specs,
        criteria=tuple(criteria),
        resolved=resolved,
        fingerprint=hash_json(msgspec.to_builtins(marks)),
        parts=parts,
        reference=reference,
        waivers=waivers,
        approved=approved,
        session=session,
    )


def choose_session(specs: Mapping[str, DecoderSpec], model: str) -> str:
    """Return the module of the session that the arms need. Raises UsageError.

    Arms that all run elsewhere need no model here, and their run imports no torch.
    """
    local = [arm for arm, spec in specs.items() if not is_remote(spec)]
    if not local:
        return REMOTE_SESSION
    if len(local) < len(specs):
        other = next(arm for arm in specs if arm not in local)
        msg = (
            f"{local[0]}.kind = {specs[local[0]].kind!r} runs here and {other}.kind = "
            f"{specs[other].kind!r} elsewhere; a comparison across runtimes would judge the "
            "runtimes, so choose both of one sort"
        )
        raise UsageError(msg)
    if not model:
        msg = f"[model] id is missing; {local[0]}.kind = {specs[local[0]].kind!r} runs a model here"
        raise UsageError(msg)
    return SESSION


def _plan_mixed(config: Config, evalset: Evalset) -> tuple[list[Request], list[Request]]:
    """Plan the mixed blocks. Raises UsageError where [economics] names other classes."""
    traffic, classes = config.economics.traffic, evalset.spec.classes
    if traffic and set(traffic) != set(classes):
        odd = sorted(set(traffic) ^ set(classes))
        msg = (
            f"economics.traffic and the classes of {config.evalset} differ in {', '.join(odd)}; "
            "give every class of the evalset a share, 0 where it has no traffic"
        )
        raise UsageError(msg)
    unknown = sorted(set(config.economics.revenue_usd) - set(classes) - {"default"})
    if unknown:
        msg = (
            f"economics.revenue_usd names {', '.join(unknown)}, no class of {config.evalset}; "
            f"allowed are {', '.join(classes)} and default"
        )
        raise UsageError(msg)
    n, n_taken = config.serving.mixed_requests, 2 * config.run.timing_per_class
    return plan_mixed(evalset, n, n_taken, config.seed, traffic or None)


def _check_referee(project: Project, session: str) -> str:
    """Return the hash of the model that [referee] names, if any. Raises UsageError."""
    referee = project.config.referee
    if not referee.id:
        return ""
    if session == SESSION:
        msg = "[referee] is for servers; the model of a run on this machine is its own referee"
        raise UsageError(msg)
    found: str = load_object(f"{REFEREE}:check_referee")(referee, project.folder)
    return found


def read_approved(project: Project) -> Approved | None:
    """Read the baseline that the configuration names, or None. Raises UsageError."""
    name = project.config.run.approved
    return read_baseline(find_folder(project, name)) if name else None


def identify(config: Config, evalset_sha256: str, weights_sha256: str) -> dict[str, object]:
    """Return what an approved baseline must share with a run, known before it decodes."""
    return {
        "evalset_sha256": evalset_sha256,
        "weights_sha256": weights_sha256,
        "dtype": config.model.dtype,
        "seed": config.seed,
        "baseline": identify_spec(read_spec("baseline", config.baseline)),
    }


def _choose_reference(
    project: Project, approved: Approved | None, candidate: DecoderSpec
) -> AcceptanceReference | None:
    """Return what the approved candidate took: the file named, else the baseline's.

    The baseline's only for the same decoder: another configuration takes other forwards.
    """
    if project.config.run.acceptance_reference:
        return _read_reference(project)
    if approved is None or find_changes(approved.manifest.candidate, candidate):
        return None
    return approved.acceptance


def _read_reference(project: Project) -> AcceptanceReference:
    name = project.config.run.acceptance_reference
    path = resolve_inside(project, "run.acceptance_reference", name)
    try:
        return msgspec.json.decode(path.read_bytes(), type=AcceptanceReference)
    except (OSError, msgspec.MsgspecError) as error:
        msg = f"run.acceptance_reference = {name!r}: {error}; name a file that 'gate approve' wrote"
        raise UsageError(msg) from error


def _check_reference(reference: AcceptanceReference | None, evalset: Evalset) -> None:
    """Refuse acceptance on other prompts. Raises UsageError."""
    if reference is not None and reference.evalset_sha256 != evalset.sha256:
        msg = "run.acceptance_reference is of another evalset; approve a run on this one"
        raise UsageError(msg)


def _check_groups(criteria: Sequence[Criterion], evalset: Evalset) -> None:
    known = {"all", "each_task", "each_class", "refusal", "format", "degeneration"}
    known |= {"first_of_run", "inside_run", "mixed", FLOAT32}
    known |= {*evalset.spec.tasks, *evalset.spec.classes}
    for criterion in criteria:
        if criterion.groups not in known:
            msg = (
                f"criteria {criterion.name!r}: groups = {criterion.groups!r} names nothing; "
                f"choose all, each_task, each_class, or one of {', '.join(sorted(known))}"
            )
            raise UsageError(msg)


def prompt_text(request: Request) -> str:
    """Return a request's prompt as a person wrote it."""
    prompt: Any = request.prompt
    if isinstance(prompt, str):
        return prompt
    if prompt and isinstance(prompt[0], dict):
        return "\n".join(message["content"] for message in prompt)
    return f"({len(prompt)} token ids)"

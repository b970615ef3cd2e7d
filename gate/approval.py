"""Approving a run: the only writer of baselines/."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gate.baselines import (
    IDENTITY,
    Approved,
    ApprovedOutput,
    Manifest,
    find_folder,
    identify_machine,
    identify_requests,
    read_baseline,
    write_baseline,
)
from gate.config import Project
from gate.conformance import TASK as CONFORMANCE
from gate.errors import UsageError
from gate.export.validity import explain_expiry
from gate.measures.acceptance_drop import count_steps
from gate.measures.paired import Key
from gate.records import AcceptanceReference, Decision, Generation, Outcome, Request
from gate.release import check_file
from gate.store import BatchResult, RunStore, StoredPlan, read_decision
from gate.timing import list_times

NOT_CI = frozenset({"", "0", "false", "no"})
RECORDED = ("tokenizer_sha256", "id", "device", "attention", "context")


class Finished(NamedTuple):
    """A finished run as its folder holds it. Conformance requests are left out."""

    decision: Decision
    requests: Mapping[Key, Request]
    baseline: Mapping[Key, Generation]
    candidate: Mapping[Key, Generation]
    timing: tuple[BatchResult, ...]  # of the baseline arm


def approve(project: Project, run: Path, name: str, now: dt.datetime) -> str:
    """Write a run's baseline under baselines/; returns what changed. Raises UsageError."""
    if os.environ.get("CI", "").strip().lower() not in NOT_CI:
        msg = "CI is set: a baseline is approved by a person; run 'gate approve' yourself"
        raise UsageError(msg)
    finished = read_finished(run, now)
    folder = find_folder(project, name)
    before = read_baseline(folder) if folder.exists() else None
    reference = _make_reference(finished)
    manifest = _make_manifest(name, finished, reference)
    outputs = [_to_output(run, one) for one in finished.baseline.values()]
    write_baseline(folder, manifest, outputs, reference)
    return _describe_change(read_baseline(folder), before)


def read_finished(run: Path, now: dt.datetime) -> Finished:
    """Read a run that may be approved. Raises UsageError for every other."""
    folder = run.parent if run.is_file() else run
    decision, store = read_decision(folder), RunStore(folder.resolve())
    _check_decision(decision, now)
    stored = store.read("plan.json", StoredPlan)
    if stored is None or not (store.folder / "finished").exists():
        msg = f"{run}: the run is not complete; run it to its end, or name another"
        raise UsageError(msg)
    requests = {(r.id, r.repeat): r for b in stored.batches for r in b if r.task != CONFORMANCE}
    names = [f"batch-{n:04d}" for n in range(len(stored.batches))]
    timing = sorted(path.stem for path in (store.folder / "baseline").glob("timing-*.json"))
    arms = [_read_outputs(store, arm, names, requests) for arm in ("baseline", "candidate")]
    timed = tuple(_read_batch(store, "baseline", name) for name in timing)
    return Finished(decision, requests, arms[0], arms[1], timed)


def _check_decision(decision: Decision, now: dt.datetime) -> None:
    check_file(decision)
    expired = explain_expiry(decision, now)
    if decision.outcome is not Outcome.PASS:
        msg = f"the run is {decision.outcome}, and only a PASS is approved: {decision.reason}"
    elif decision.claim == "control":
        msg = "the run is a control: there is no candidate in it to approve"
    elif expired:
        msg = f"the run's decision no longer stands: {expired}"
    else:
        return
    raise UsageError(msg)


def _read_batch(store: RunStore, arm: str, name: str) -> BatchResult:
    result = store.read_batch(arm, name)
    if result is None:
        msg = f"{store.folder / arm / name}.json is missing; the run is not whole: run it again"
        raise UsageError(msg)
    return result


def _read_outputs(
    store: RunStore, arm: str, names: Sequence[str], requests: Mapping[Key, Request]
) -> dict[Key, Generation]:
    found = {
        (one.request_id, one.repeat): one
        for name in names
        for one in _read_batch(store, arm, name).generations
    }
    return {key: found[key] for key in requests if key in found}


def _to_output(run: Path, output: Generation) -> ApprovedOutput:
    if output.finish == "error" or output.token_ids is None:
        why = "failed" if output.finish == "error" else "has no token ids"
        msg = f"{run}: the baseline's {output.request_id} {why}: there is nothing to compare with"
        raise UsageError(msg)
    return ApprovedOutput(
        request_id=output.request_id,
        repeat=output.repeat,
        finish=output.finish,
        text=output.text,
        token_ids=output.token_ids,
        tail_ids=output.tail_ids,
    )


def _make_reference(finished: Finished) -> AcceptanceReference:
    said = finished.decision.provenance["baseline"]
    return AcceptanceReference(
        evalset_sha256=str(_read(said, "evalset", "sha256")),
        model=str(_read(said, "model", "id")),
        dtype=str(_read(said, "model", "dtype")),
        work=count_steps(finished.candidate.values()),
    )


def _make_manifest(name: str, finished: Finished, reference: AcceptanceReference) -> Manifest:
    decision = finished.decision
    said = decision.provenance["baseline"]
    model = {key: _read(said, "model", key) for key in RECORDED}
    others = ("gate", "python", "platform", "commit", "dirty", "versions", "template_sha256")
    return Manifest(
        name=name,
        run_id=decision.run_id,
        run_created_at=decision.created_at,
        outcome=decision.outcome,
        identity={
            "evalset_sha256": reference.evalset_sha256,
            "weights_sha256": _read(said, "model", "weights_sha256"),
            "dtype": reference.dtype,
            "seed": _read(said, "seed"),
            "baseline": _identify_decoder(decision, "baseline"),
            "decoding": identify_requests(list(finished.requests.values())),
        },
        candidate=_identify_decoder(decision, "candidate"),
        recorded={"model": model, **{key: said.get(key) for key in others}},
        machine=identify_machine(said),
        by_class=_add_up(finished.requests.values(), reference.work),
        timing_s=list_times(finished.timing),
        criteria=decision.criteria,
        files={},
    )


def _identify_decoder(decision: Decision, arm: str) -> dict[str, object]:
    found = _read(decision.provenance[arm], "decoder")
    return {key: found.get(key) for key in IDENTITY}


def _add_up(
    requests: Iterable[Request], work: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Return forwards and tokens per request class."""
    found: dict[str, tuple[int, int]] = {}
    for request in requests:
        forwards, tokens = work.get(f"{request.id}#{request.repeat}", (0, 0))
        before = found.get(request.request_class, (0, 0))
        found[request.request_class] = (before[0] + forwards, before[1] + tokens)
    return dict(sorted(found.items()))


def _read(said: Mapping[str, Any], *path: str) -> Any:
    value: Any = said
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            msg = f"the decision's provenance has no {'.'.join(path)}: such a run is not approved"
            raise UsageError(msg)
        value = value[key]
    return value


def _describe_change(after: Approved, before: Approved | None) -> str:
    n = len(after.outputs)
    if before is None:
        return f"new, {n} outputs"
    changed = sum(before.outputs.get(key) != one for key, one in after.outputs.items())
    gone = len({*before.outputs} - {*after.outputs})
    return f"replaced, {changed} of {n} outputs are others than before, {gone} are gone"

"""Today's baseline beside the approved one: is it still what was approved?

The approved outputs are a third arm. They are judged by the same token rules as the others,
under today's referee: another CPU's kernels are ties, another model's tokens are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from gate.baselines import Approved, ApprovedOutput, to_generation
from gate.measures.bounds import bound_each_side
from gate.measures.means import ratio_of_means
from gate.measures.paired import Key, Paired
from gate.measures.stats import clopper_pearson
from gate.measures.tokens import classify, is_keyed
from gate.records import Comparison, Generation, TokenScores

SHOWN = 20
SAME, TIE, UNEXPLAINED, DRIFTED = "same", "tie", "unexplained", "drifted"


class Third(NamedTuple):
    """The approved baseline in a run. scores: by the referee, of outputs that differ today."""

    approved: Approved
    scores: Mapping[Key, TokenScores]


class Finding(NamedTuple):
    """What became of one approved output. position: of the first difference."""

    kind: str
    position: int
    regret: float | None
    what: str


def list_changed(approved: Approved, generations: Mapping[Key, Generation]) -> list[Generation]:
    """Return the approved outputs whose tokens today's baseline does not give."""
    return [
        to_generation(then)
        for key, then in approved.outputs.items()
        if key in generations and _ids(then) != _ids(generations[key])
    ]


def compare_baseline(
    paired: Paired, third: Third | None, confidence_level: float = 0.95
) -> list[Comparison]:
    """Return baseline_drift: outputs of the approved baseline that this one does not decide.

    Per output: the same tokens; else the largest regret of the approved tokens under today's
    referee, tie up to the noise bound, unexplained up to three, drifted above. An output that
    ends elsewhere, or is reported differently with the same tokens, has drifted too. Sampled
    outputs of a decoder with noise of its own cannot be compared. Nothing without a baseline.
    """
    if third is None:
        return []
    lost: Counter[str] = Counter()
    found: dict[Key, Finding] = {}
    for key, request in paired.requests.items():
        then = third.approved.outputs.get(key)
        if then is None:
            lost["not among the approved outputs"] += 1
        elif paired.baseline.failed(key):
            lost["the baseline failed"] += 1
        elif not is_keyed(paired.baseline, request):
            lost["sampled with noise of its own"] += 1
        else:
            now = paired.baseline.generations[key]
            found[key] = _examine(then, now, third.scores.get(key), paired.bound.bound)
    return [_compare(paired, third, found, lost, confidence_level)]


def _examine(
    then: ApprovedOutput, now: Generation, scores: TokenScores | None, bound: float
) -> Finding:
    old, new = _ids(then), _ids(now)
    at = next(
        (i for i, (x, y) in enumerate(zip(old, new, strict=False)) if x != y),
        min(len(old), len(new)),
    )
    if old == new:
        changed = [name for name in ("finish", "text", "token_ids", "tail_ids")
                   if getattr(then, name) != getattr(now, name)]  # fmt: skip
        what = f"the same tokens with another {' and '.join(changed)}"
        return Finding(DRIFTED, at, None, what) if changed else Finding(SAME, at, None, "")
    if at == min(len(old), len(new)):
        return Finding(DRIFTED, at, None, "it ended elsewhere after the same tokens")
    if scores is None:
        return Finding(DRIFTED, at, None, "the referee could not score the approved tokens")
    regret = max(scores.regret)
    kinds = {"defect": DRIFTED, "unexplained": UNEXPLAINED}
    kind = kinds.get(classify(regret, bound), TIE)
    return Finding(kind, at, regret, f"a token that misses today's choice by {regret:.2g} nat")


def _compare(
    paired: Paired,
    third: Third,
    found: Mapping[Key, Finding],
    lost: Counter[str],
    confidence_level: float,
) -> Comparison:
    counts = Counter(finding.kind for finding in found.values())
    manifest = third.approved.manifest
    base = Comparison(
        measure="baseline_drift",
        unit="count",
        direction="lower_is_better",
        n_dropped=lost.total(),
        drop_reasons=dict(lost),
        detail={
            "approved": manifest.name,
            "approved_run": manifest.run_id,
            "bound_nat": paired.bound.bound,
            "counts": {kind: counts[kind] for kind in (SAME, TIE, UNEXPLAINED, DRIFTED)},
            "drifted": [_describe(key, one) for key, one in found.items()
                        if one.kind == DRIFTED][:SHOWN],
        },
    )  # fmt: skip
    if not found:
        note = f"no output of the approved baseline {manifest.name} could be compared"
        return msgspec.structs.replace(base, note=note)
    return msgspec.structs.replace(
        base,
        baseline=float(counts[DRIFTED]),
        difference=clopper_pearson(counts[DRIFTED], len(found), confidence_level, "upper"),
    )


def _describe(key: Key, finding: Finding) -> dict[str, object]:
    return {
        "request_id": key[0],
        "repeat": key[1],
        "position": finding.position,
        "regret": finding.regret,
        "what": finding.what,
    }


def compare_baseline_time(
    approved: Approved | None,
    machine: Mapping[str, object],
    times: Mapping[str, float],
    confidence_level: float = 0.95,
) -> list[Comparison]:
    """Return baseline_time: today's seconds per held-back prompt over the approved ones.

    Only on the machine that the approved times are of; nothing judges it. times: by request.
    """
    if approved is None or not approved.manifest.timing_s:
        return []
    then = approved.manifest
    base = Comparison(measure="baseline_time", unit="ratio", direction="lower_is_better")
    other = [name for name, value in then.machine.items() if machine.get(name) != value]
    shared = sorted({*then.timing_s} & {*times})
    if other or not shared:
        why = f"was timed on another machine ({', '.join(other)})" if other else "has other prompts"
        return [msgspec.structs.replace(base, note=f"the approved baseline {why}: not compared")]
    old, new = (np.array([found[name] for name in shared]) for found in (then.timing_s, times))
    estimate = bound_each_side(lambda level: ratio_of_means(old, new, level), confidence_level)
    return [
        msgspec.structs.replace(
            base,
            baseline=float(new.mean()),
            difference=estimate,
            detail={"approved_s": float(old.mean())},
        )
    ]


def _ids(output: ApprovedOutput | Generation) -> tuple[int, ...]:
    return (*(output.token_ids or ()), *output.tail_ids)

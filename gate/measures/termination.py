"""Outputs that ended or were reported wrongly, both arms side by side."""

from __future__ import annotations

from gate.measures.paired import Arm, Key, Paired
from gate.measures.stats import clopper_pearson
from gate.records import Comparison
from gate.store import Fault

SHOWN_FAULTS = 20


def find_end_faults(paired: Paired, arm: Arm, key: Key) -> list[Fault]:
    """Return an output's faults, those that need the referee or the other arm included."""
    faults = list(arm.faults.get(key, ()))
    request, generation, scores = paired.requests[key], arm.generations[key], arm.scores.get(key)
    ids = generation.token_ids or ()
    has_end = scores is not None and (bool(request.eos_ids) or scores.eos_regret is not None)
    if generation.finish == "eos" and ids and has_end and ids[-1] not in request.eos_ids:
        regret = scores.eos_regret if scores else None  # a server names no ids that end an output
        if regret is None or regret > 3 * paired.bound.bound:
            faults.append(
                Fault(kind="ended_without_eos", message="ended where the model would have gone on")
            )
    other = paired.baseline if arm is paired.candidate else None
    if (
        other is not None
        and generation.finish == "stop"
        and generation.token_ids is not None
        and not generation.tail_ids
        and not other.failed(key)
    ):
        known = (*(other.generations[key].token_ids or ()), *other.generations[key].tail_ids)
        stopped_too = other.generations[key].finish == "stop" and (
            ids == other.generations[key].token_ids
            or generation.text == other.generations[key].text
        )
        if known[: len(ids)] == ids and not stopped_too:
            faults.append(
                Fault(
                    kind="stop_not_there", message="claims a stop string where the baseline went on"
                )
            )
    return faults


def compare_termination(paired: Paired, confidence_level: float = 0.95) -> list[Comparison]:
    """Return the measures termination and baseline_termination: outputs that ended wrongly."""
    found = {
        name: {
            k: faults
            for k in paired.requests
            if not arm.failed(k) and (faults := find_end_faults(paired, arm, k))
        }
        for name, arm in (("baseline", paired.baseline), ("candidate", paired.candidate))
    }
    return [
        _termination(
            paired, "termination", paired.candidate, found["candidate"], found, confidence_level
        ),
        _termination(
            paired,
            "baseline_termination",
            paired.baseline,
            found["baseline"],
            found,
            confidence_level,
        ),
    ]


def _termination(
    paired: Paired,
    measure: str,
    arm: Arm,
    judged: dict[Key, list[Fault]],
    found: dict[str, dict[Key, list[Fault]]],
    confidence_level: float,
) -> Comparison:
    n = sum(not arm.failed(key) for key in paired.requests)
    if n == 0:
        return Comparison(measure=measure, unit="count", note="this arm has no output")
    kinds: dict[str, int] = {}
    for fault in (fault for faults in judged.values() for fault in faults):
        kinds[fault.kind] = kinds.get(fault.kind, 0) + 1
    shown = [
        {"request_id": key[0], "kind": fault.kind, "message": fault.message}
        for key, faults in judged.items()
        for fault in faults
    ]
    return Comparison(
        measure=measure,
        unit="count",
        direction="lower_is_better",
        baseline=len(found["baseline"]),
        candidate=len(found["candidate"]),
        difference=clopper_pearson(len(judged), n, confidence_level, "upper"),
        detectable=f"a fault in one of {max(n // 3, 1)} outputs",
        detail={"kinds": kinds, "faults": shown[:SHOWN_FAULTS], "n_outputs": n},
    )

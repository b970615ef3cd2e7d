"""Acceptance beside that of the approved candidate: output right, and slower than it was.

A fault that only changes acceptance leaves every token as it is. It shows against a record of
what the same requests took when the candidate was approved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from gate.measures.means import paired_mean_difference
from gate.measures.paired import Key, Paired
from gate.records import AcceptanceReference, Comparison, Estimate, Generation
from gate.store import key_text


def count_work(paired: Paired) -> dict[str, tuple[int, int]]:
    """Return the candidate's forwards and tokens per request, where its traces say so."""
    generations = paired.candidate.generations
    return count_steps(generations[key] for key in paired.requests if key in generations)


def count_steps(generations: Iterable[Generation]) -> dict[str, tuple[int, int]]:
    """Return forwards and tokens per output, where its trace says so."""
    found = {}
    for one in generations:
        steps = one.trace.steps if one.trace else ()
        n_emitted = sum(step.n_emitted for step in steps)
        if n_emitted:
            found[key_text(one.request_id, one.repeat)] = (len(steps), n_emitted)
    return found


def compare_drop(
    paired: Paired, reference: AcceptanceReference | None, confidence_level: float = 0.95
) -> list[Comparison]:
    """Return acceptance_drop for all requests and per class; nothing without a reference.

    Per request: forwards per token over the reference's, less 1; 0.1 is a tenth more forwards.
    """
    if reference is None:
        return []
    groups: dict[str, list[Key]] = {"all": list(paired.requests)}
    for key, request in paired.requests.items():
        groups.setdefault(request.request_class, []).append(key)
    work = count_work(paired)
    return [
        _compare(name, _slowdowns(keys, work, reference.work), confidence_level)
        for name, keys in groups.items()
    ]


def _slowdowns(
    keys: Sequence[Key],
    work: Mapping[str, tuple[int, int]],
    known: Mapping[str, tuple[int, int]],
) -> list[float]:
    names = [name for key in keys if (name := key_text(*key)) in work and name in known]
    return [(work[n][0] * known[n][1]) / (work[n][1] * known[n][0]) - 1.0 for n in names]


def _compare(group: str, slowdowns: list[float], confidence_level: float) -> Comparison:
    base = Comparison(
        measure="acceptance_drop",
        group=group,
        unit="relative change of forwards per token",
        direction="lower_is_better",
    )
    if not slowdowns:
        note = "no request of the reference was answered with a trace of its steps"
        return msgspec.structs.replace(base, note=note)
    return msgspec.structs.replace(
        base,
        baseline=0.0,
        candidate=float(np.mean(slowdowns)),
        difference=_estimate(slowdowns, confidence_level),
        detail={"n_changed": sum(change != 0.0 for change in slowdowns)},
    )


def _estimate(slowdowns: list[float], confidence_level: float) -> Estimate:
    """Acceptance repeats itself: where every request took the same change, that is the change."""
    if np.ptp(slowdowns) > 0.0:
        return paired_mean_difference(slowdowns, 2.0 * confidence_level - 1.0)
    return Estimate(
        statistic=slowdowns[0],
        interval=(slowdowns[0], slowdowns[0]),
        confidence_level=confidence_level,
        n=len(slowdowns),
        method="the same change in every request",
    )

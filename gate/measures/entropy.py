"""Entropy per request class: how predictable the traffic is, from the referee's own law."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gate.measures.bounds import bound_each_side
from gate.measures.means import clustered_mean_difference
from gate.measures.paired import Arm, Key, Paired
from gate.records import Comparison


def compare_entropy(paired: Paired, confidence_level: float = 0.95) -> list[Comparison]:
    """Return entropy, nats per token, for all requests and per class.

    Of the law each token was drawn from, at the arm's own outputs. The difference is over requests
    that both arms answered, each its mean, clustered where a request repeats.
    """
    classes = dict.fromkeys(paired.requests[key].request_class for key in paired.keys)
    groups = {"all": paired.keys} | {
        name: [key for key in paired.keys if paired.requests[key].request_class == name]
        for name in classes
    }
    return [_compare(name, keys, paired, confidence_level) for name, keys in groups.items()]


def _compare(
    group: str, keys: Sequence[Key], paired: Paired, confidence_level: float
) -> Comparison:
    scored = [key for key in keys if all(_mean(arm, key) is not None for arm in _arms(paired))]
    base = Comparison(measure="entropy", group=group, unit="nats")
    if not scored:
        return Comparison(measure="entropy", group=group, unit="nats", note="no output was scored")
    before, after = (np.array([_mean(arm, key) for key in scored]) for arm in _arms(paired))
    requests = [key[0] for key in scored]
    is_same = not (after - before).any()
    return Comparison(
        measure=base.measure,
        group=group,
        unit=base.unit,
        baseline=float(before.mean()),
        candidate=float(after.mean()),
        difference=None
        if is_same
        else bound_each_side(
            lambda level: clustered_mean_difference(after - before, requests, level),
            confidence_level,
        ),
        note="the same in every request" if is_same else None,
    )


def _arms(paired: Paired) -> Iterable[Arm]:
    return (paired.baseline, paired.candidate)


def _mean(arm: Arm, key: Key) -> float | None:
    scores = arm.scores.get(key)
    return float(np.mean(scores.entropy)) if scores and scores.entropy else None

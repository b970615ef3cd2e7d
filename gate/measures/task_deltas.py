"""Task scores of both arms, paired per document. Needs no lm-eval: scores are records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from gate.measures.bounds import (
    bound_each_side,
    compare_flags,
    describe_power,
    read_smallest_pvalue,
)
from gate.measures.means import clustered_mean_difference, paired_mean_difference
from gate.measures.resampling import paired_permutation
from gate.measures.stats import FloatArray
from gate.records import Comparison, Estimate, Record

BINARY = (0.0, 1.0)
SCORE_RANGE = 1.0


class TaskScore(Record, frozen=True, kw_only=True):
    """One metric of one filter on one document, as lm-eval scored it.

    doc_id: place of the document in its task. cluster: key of documents that belong
    together; empty: the document stands alone. The hashes are lm-eval's.
    """

    task: str
    filter: str
    metric: str
    doc_id: int
    request_id: str
    value: float
    doc_hash: str
    prompt_hash: str
    target_hash: str
    cluster: str = ""


Pair = tuple[TaskScore, TaskScore]
Scored = dict[tuple[str, str, str, int], TaskScore]


@dataclass(frozen=True, kw_only=True)
class _Group:
    """What is compared under one name: pairs of scores, and the documents it lost."""

    name: str
    pairs: list[Pair] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)  # request id -> reason


def compare_tasks(
    baseline: Sequence[TaskScore],
    candidate: Sequence[TaskScore],
    dropped: Mapping[str, str],
    request_classes: Mapping[str, str],
    *,
    rng: np.random.Generator | None = None,
    confidence_level: float = 0.95,
) -> list[Comparison]:
    """Return ``task_delta`` pooled, per task and per class: the candidate's mean score minus
    the baseline's.

    dropped: request id ("task/document") -> why its pair was lost. request_classes: task ->
    class; every one of its tasks and classes is reported, with no evidence where nothing
    was scored. Joined on (task, filter, metric, doc_id) with equal document, prompt and
    target hashes; the rest is dropped with a reason. A task's first filter and metric count;
    others follow as groups "task (filter, metric)". confidence_level: of each side's bound.

    Interval: paired flips for 0/1 scores, Student's t otherwise, cluster-robust where
    documents share a cluster. p: exact McNemar, or sign flips where that does not
    apply (``rng``; None: seed 0, so that a decision can be recomputed).
    """  # noqa: D205 - the summary takes two lines
    pairs, lost = pair_scores(baseline, candidate, dropped)
    first = _find_first([*baseline, *candidate])
    groups = _group(pairs, lost, request_classes, first)
    rng = rng or np.random.default_rng(0)
    return [_compare(group, rng, confidence_level) for group in groups]


def pair_scores(
    baseline: Iterable[TaskScore], candidate: Iterable[TaskScore], dropped: Mapping[str, str]
) -> tuple[list[Pair], dict[str, str]]:
    """Return the scores of both arms side by side, and why each other request was lost."""
    before, after, lost = _index(baseline), _index(candidate), dict(dropped)
    for key in {**before, **after}:
        reason = _find_mismatch(before.get(key), after.get(key))
        if reason:
            lost.setdefault((before.get(key) or after[key]).request_id, reason)
    pairs = [
        (score, after[key])
        for key, score in before.items()
        if key in after and score.request_id not in lost
    ]
    return pairs, lost


def find_changes(baseline: Iterable[TaskScore], candidate: Iterable[TaskScore]) -> dict[str, bool]:
    """Return, per request id that both arms have scores of, whether any of them differs."""
    pairs, _ = pair_scores(baseline, candidate, {})
    changed = {before.request_id: False for before, _ in pairs}
    for before, after in pairs:
        changed[before.request_id] |= before.value != after.value
    return changed


def _index(scores: Iterable[TaskScore]) -> Scored:
    """Scores by join key; ValueError where an arm scored a document twice or by no number."""
    index: Scored = {}
    for score in scores:
        key = (score.task, score.filter, score.metric, score.doc_id)
        if key in index or not np.isfinite(score.value):
            msg = f"score {score.value} of {key} is no number, or the second one; score again"
            raise ValueError(msg)
        index[key] = score
    return index


def _find_mismatch(before: TaskScore | None, after: TaskScore | None) -> str:
    """Return why the two are no pair; empty where they are."""
    if before is None:
        return "no score in the baseline"
    if after is None:
        return "no score in the candidate"
    for name in ("request_id", "doc_hash", "prompt_hash", "target_hash"):
        if getattr(before, name) != getattr(after, name):
            return f"{name.replace('_', ' ')} differs between the arms"
    return ""


# --------------------------------------------------------------------- groups


def _find_first(scores: Iterable[TaskScore]) -> dict[str, tuple[str, str]]:
    """Return task -> the filter and metric that were scored first."""
    first: dict[str, tuple[str, str]] = {}
    for score in scores:
        first.setdefault(score.task, (score.filter, score.metric))
    return first


def _group(
    pairs: Sequence[Pair],
    lost: Mapping[str, str],
    request_classes: Mapping[str, str],
    first: Mapping[str, tuple[str, str]],
) -> list[_Group]:
    classes = [name for name in request_classes.values() if name not in request_classes]
    groups = {name: _Group(name=name) for name in ("all", *request_classes, *classes)}
    for pair in pairs:
        score = pair[0]
        for name in _name_groups(score, request_classes, first):
            groups.setdefault(name, _Group(name=name)).pairs.append(pair)
    for request_id, reason in lost.items():
        task = request_id.partition("/")[0]
        for name in {"all", task, request_classes.get(task, "all")} & set(groups):
            groups[name].lost[request_id] = reason
    return list(groups.values())


def _name_groups(
    score: TaskScore,
    request_classes: Mapping[str, str],
    first: Mapping[str, tuple[str, str]],
) -> set[str]:
    if (score.filter, score.metric) != first[score.task]:
        return {f"{score.task} ({score.filter}, {score.metric})"}
    return {"all", score.task, request_classes.get(score.task, "all")}


# ---------------------------------------------------------------- comparisons


def _compare(group: _Group, rng: np.random.Generator, confidence_level: float) -> Comparison:
    reasons = dict(Counter(group.lost.values()))
    if not group.pairs:
        return Comparison(
            measure="task_delta",
            group=group.name,
            unit="share",
            direction="higher_is_better",
            n_dropped=len(group.lost),
            drop_reasons=reasons,
            note="no document was scored in both arms",
        )
    before, after = (np.array([pair[arm].value for pair in group.pairs]) for arm in (0, 1))
    clusters = _label_clusters(group.pairs)
    n_units = len(set(clusters))
    return Comparison(
        measure="task_delta",
        group=group.name,
        unit="share",
        direction="higher_is_better",
        baseline=float(before.mean()),
        candidate=float(after.mean()),
        difference=_estimate(before, after, clusters, rng, confidence_level),
        n_dropped=len(group.lost),
        drop_reasons=reasons,
        detectable=_describe_detectable(before, n_units, confidence_level),
        detail=_count(before, after)
        | {"n_units": n_units, "smallest_pvalue": read_smallest_pvalue(n_units)},
    )


def _describe_detectable(before: FloatArray, n_units: int, confidence_level: float) -> str:
    power = describe_power(n_units, confidence_level)
    return f"{power}; a loss only on the {int((before > 0.0).sum())} the baseline gets right"


def _count(before: FloatArray, after: FloatArray) -> dict[str, object]:
    """Counts of documents."""
    return {
        "n": int(before.size),
        "discordant": int((before != after).sum()),
        "baseline_right": int((before > 0.0).sum()),
        "candidate_right": int((after > 0.0).sum()),
        "lost": int((after < before).sum()),
        "gained": int((after > before).sum()),
    }


def _estimate(
    before: FloatArray,
    after: FloatArray,
    clusters: list[str],
    rng: np.random.Generator,
    confidence_level: float,
) -> Estimate:
    if len(set(clusters)) < len(clusters):
        return _estimate_clustered(after - before, clusters, rng, confidence_level)
    if np.isin(np.concatenate([before, after]), BINARY).all():
        return compare_flags(list(before > 0.0), list(after > 0.0), confidence_level)
    estimate = bound_each_side(
        lambda level: paired_mean_difference(after - before, level, score_range=SCORE_RANGE),
        confidence_level,
    )
    return _take_pvalue(estimate, paired_permutation(after - before, rng))


def _label_clusters(pairs: Sequence[Pair]) -> list[str]:
    """A label per pair; a document without a cluster key is its own cluster."""
    return [
        f"{score.task}:cluster:{score.cluster}" if score.cluster else f"document:{score.request_id}"
        for score, _ in pairs
    ]


def _estimate_clustered(
    diffs: FloatArray, clusters: list[str], rng: np.random.Generator, confidence_level: float
) -> Estimate:
    labels = np.unique(clusters, return_inverse=True)[1]
    estimate = bound_each_side(
        lambda level: clustered_mean_difference(diffs, labels, level, score_range=SCORE_RANGE),
        confidence_level,
    )
    return _take_pvalue(estimate, paired_permutation(diffs, rng, clusters=labels))


def _take_pvalue(estimate: Estimate, test: Estimate) -> Estimate:
    method = f"{estimate.method}; p: {test.method}"
    return msgspec.structs.replace(estimate, pvalue=test.pvalue, method=method)

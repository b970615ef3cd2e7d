"""Behaviour guards: labels of both arms' texts, and how often they flip, either way.

Failures are evidence of their own here: error rates and lost pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gate.evalset import Evalset, EvalsetSpec, TaskSpec
from gate.measures.bounds import compare_flags, describe_power, read_smallest_pvalue
from gate.measures.labels import (
    INVALID,
    LONGER,
    OK,
    REFUSAL,
    label_degeneration,
    label_json,
    label_lengths,
    label_refusal,
)
from gate.measures.paired import Arm, Key, Paired, text_of
from gate.records import Comparison, Estimate

MAX_FLIPPED = 50
MAX_ERRORS = 20


class _Guard(NamedTuple):
    """``label``: both texts -> both labels. ``flag``: whether a label counts."""

    group: str
    applies: Callable[[TaskSpec | None], bool]
    label: Callable[[str, str], tuple[str, str]]
    flag: Callable[[str], bool]


class _Labelled(NamedTuple):
    """One pair under one guard."""

    request_id: str
    baseline_label: str
    candidate_label: str
    baseline_text: str
    candidate_text: str


def _label_each(label: Callable[[str], str]) -> Callable[[str, str], tuple[str, str]]:
    return lambda baseline, candidate: (label(baseline), label(candidate))


GUARDS = (
    _Guard(
        "refusal",
        lambda task: task is not None and task.refusal != "none",
        _label_each(label_refusal),
        lambda label: label == REFUSAL,
    ),
    _Guard(
        "over_refusal",
        lambda task: task is not None and task.refusal == "unexpected",
        _label_each(label_refusal),
        lambda label: label == REFUSAL,
    ),
    _Guard(
        "format",
        lambda task: task is not None and task.format == "json",
        _label_each(label_json),
        lambda label: label == INVALID,
    ),
    _Guard(
        "degeneration", lambda _: True, _label_each(label_degeneration), lambda label: label != OK
    ),
    _Guard("length", lambda _: True, label_lengths, lambda label: label == LONGER),
)


def compare_guards(
    paired: Paired, evalset: Evalset, confidence_level: float = 0.95
) -> list[Comparison]:
    """Return ``guard_flips`` by guard: refusal, over_refusal, format, degeneration, length.

    A guard's figures are shares of its pairs that carry the flag: refusals among prompts
    that should or should not be refused, outputs that are no JSON, degenerate outputs,
    outputs more than twice as long as the other arm's. Difference: candidate minus
    baseline, exact interval and McNemar p on the paired flips, which are listed with both
    texts. A pair with a failed request is dropped. confidence_level: of each side's bound.
    """
    lost = paired.drops()
    return [_compare_guard(guard, paired, evalset.spec, lost, confidence_level) for guard in GUARDS]


# --------------------------------------------------------------------- guards


def _compare_guard(
    guard: _Guard,
    paired: Paired,
    spec: EvalsetSpec,
    lost: Mapping[Key, str],
    confidence_level: float,
) -> Comparison:
    keys = [k for k, one in paired.requests.items() if guard.applies(spec.tasks.get(one.task))]
    rows = [_label_pair(guard, paired, key) for key in keys if key not in lost]
    compared = _compare_shares(
        [guard.flag(row.baseline_label) for row in rows],
        [guard.flag(row.candidate_label) for row in rows],
        confidence_level,
        "every pair was lost" if keys else "the evalset has no prompt for this guard",
    )
    reasons = Counter(lost[key] for key in keys if key in lost)
    return msgspec.structs.replace(
        compared,
        measure="guard_flips",
        group=guard.group,
        direction="neutral",  # a change in either direction is a change of behaviour
        n_dropped=reasons.total(),
        drop_reasons=dict(reasons),
        detail=compared.detail | _list_flipped(rows),
    )


def _label_pair(guard: _Guard, paired: Paired, key: Key) -> _Labelled:
    baseline, candidate = (
        text_of(arm.generations[key]) for arm in (paired.baseline, paired.candidate)
    )
    return _Labelled(key[0], *guard.label(baseline, candidate), baseline, candidate)


def _list_flipped(rows: Iterable[_Labelled]) -> dict[str, object]:
    """Return the pairs whose label changed, and how many pairs have other texts at all."""
    rows = list(rows)
    flipped = [row for row in rows if row.baseline_label != row.candidate_label]
    return {
        "n_flipped": len(flipped),
        "n_other_text": sum(row.baseline_text != row.candidate_text for row in rows),
        "flipped": [row._asdict() for row in flipped[:MAX_FLIPPED]],
    }


def _compare_shares(
    before: Sequence[bool], after: Sequence[bool], confidence_level: float, nothing: str
) -> Comparison:
    """Compare how often both arms carry a flag; ``nothing`` says why there is no pair."""
    if not before:
        return Comparison(measure="", unit="share", note=nothing)
    n = len(before)
    return Comparison(
        measure="",
        unit="share",
        baseline=sum(before) / n,
        candidate=sum(after) / n,
        difference=compare_flags(before, after, confidence_level),
        detectable=describe_power(n, confidence_level),
        detail={
            "n": n,
            "n_baseline": sum(before),
            "n_candidate": sum(after),
            "appeared": sum(b < a for b, a in zip(before, after, strict=True)),
            "vanished": sum(b > a for b, a in zip(before, after, strict=True)),
            "n_units": n,
            "smallest_pvalue": read_smallest_pvalue(n),
        },
    )


# ------------------------------------------------------------------- failures


def compare_errors(paired: Paired, confidence_level: float = 0.95) -> list[Comparison]:
    """Return ``error_rate``, pooled and per class, and ``dropped_pairs``.

    The error rate is over all requests planned. One without a generation failed, and so did one
    that a server answered only when it was asked again: its user would have waited, or left.
    """
    classes = dict.fromkeys(request.request_class for request in paired.requests.values())
    groups = {"all": list(paired.requests)} | {
        name: [key for key, one in paired.requests.items() if one.request_class == name]
        for name in classes
    }
    rates = [_compare_rate(name, keys, paired, confidence_level) for name, keys in groups.items()]
    return [*rates, count_dropped(paired)]


def _compare_rate(
    group: str, keys: Sequence[Key], paired: Paired, confidence_level: float
) -> Comparison:
    compared = _compare_shares(
        [_has_failed(paired.baseline, key) for key in keys],
        [_has_failed(paired.candidate, key) for key in keys],
        confidence_level,
        "no request was planned",
    )
    return msgspec.structs.replace(
        compared,
        measure="error_rate",
        group=group,
        direction="lower_is_better",
        detail=compared.detail
        | {
            "baseline_errors": _count_errors(keys, paired.baseline),
            "candidate_errors": _count_errors(keys, paired.candidate),
            "baseline_retries": _count_retries(keys, paired.baseline),
            "candidate_retries": _count_retries(keys, paired.candidate),
        },
    )


def _has_failed(arm: Arm, key: Key) -> bool:
    """Whether a request failed, if only at first."""
    return arm.failed(key) or bool(arm.generations[key].retries)


def _count_retries(keys: Iterable[Key], arm: Arm) -> int:
    """Return how many attempts failed and were repeated."""
    return sum(len(one.retries) for key in keys if (one := arm.generations.get(key)))


def _count_errors(keys: Iterable[Key], arm: Arm) -> dict[str, int]:
    """Return the commonest error messages and how often each came."""
    messages: Counter[str] = Counter()
    for key in keys:
        one = arm.generations.get(key)
        if one is None:
            messages["no generation"] += 1
            continue
        messages.update(f"at first: {reason}" for reason in one.retries)
        if arm.failed(key):
            messages[one.error or "unnamed error"] += 1
    return dict(messages.most_common(MAX_ERRORS))


def count_dropped(paired: Paired) -> Comparison:
    """Return ``dropped_pairs``: the share of this run's pairs that cannot be compared.

    A count of this run, so its interval is the count itself.
    """
    lost, n = paired.drops(), len(paired.requests)
    share = len(lost) / max(1, n)
    estimate = Estimate(
        statistic=share,
        interval=(share, share),
        confidence_level=1.0,
        n=n,
        method="count over this run's pairs",
    )
    return Comparison(
        measure="dropped_pairs",
        unit="share",
        direction="lower_is_better",
        candidate=share if n else None,
        difference=estimate if n else None,
        n_dropped=len(lost),
        drop_reasons=dict(Counter(lost.values())),
        note=None if n else "no request was planned",
        detail={"n": n},
    )

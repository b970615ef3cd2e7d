"""Acceptance: what drafting came to, from the steps in the content runs' traces."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from gate.measures.bounds import bound_each_side
from gate.measures.exercise import count_tokens
from gate.measures.means import ratio_of_means
from gate.measures.paired import Arm, Key, Paired
from gate.records import Comparison, DraftCount, Estimate, Generation, Step

MAX_POSITIONS = 16


class _Work(NamedTuple):
    """Counts over the steps of one request. The prefill is a forward."""

    accepted: int
    drafted: int
    forwards: int
    emitted: int
    rows: int
    draft_s: float
    wall_s: float


def compare_acceptance(paired: Paired, confidence_level: float = 0.95) -> list[Comparison]:
    """Return ``acceptance`` for all requests and per class: accepted over drafted tokens.

    The candidate's share has bounds over requests (Fieller), confidence_level on each side.
    detail: accepted, drafted, forwards, emitted, tokens_per_forward, accepted_per_draft,
    steps_saved, extra_rows_per_accepted, by_position, and ``unknown``, the requests whose trace
    has no steps: a decoder that does not say. Failed requests and impossible counts are dropped.
    """
    classes = dict.fromkeys(request.request_class for request in paired.requests.values())
    groups = {"all": list(paired.requests)} | {
        name: [key for key, one in paired.requests.items() if one.request_class == name]
        for name in classes
    }
    return [_compare(name, keys, paired, confidence_level) for name, keys in groups.items()]


def _compare(
    group: str, keys: Sequence[Key], paired: Paired, confidence_level: float
) -> Comparison:
    lost, works, n_unknown = _read_arm(paired.candidate, keys)
    detail = _describe(works) | {"unknown": n_unknown}
    if works:
        detail["by_position"] = count_by_position(paired.candidate, keys)
    base = Comparison(
        measure="acceptance",
        group=group,
        unit="share",
        direction="higher_is_better",
        baseline=_share(_read_arm(paired.baseline, keys)[1]),
        candidate=_share(works),
        n_dropped=lost.total(),
        drop_reasons=dict(lost),
        detail=detail,
    )
    if base.candidate is None:
        return msgspec.structs.replace(base, note=_explain_nothing(works, n_unknown))
    return msgspec.structs.replace(base, difference=_estimate(works, confidence_level))


def _read_arm(arm: Arm, keys: Iterable[Key]) -> tuple[Counter[str], list[_Work], int]:
    """Return why requests were dropped, the others' work, and how many say nothing of it."""
    lost: Counter[str] = Counter()
    works, n_unknown = [], 0
    for key in keys:
        if arm.failed(key):
            lost["a failed request"] += 1
            continue
        steps = _list_steps(arm.generations[key])
        if not steps:
            drafts = _read_drafts(arm.generations[key])
            n_unknown += drafts is None
            works += [_total(drafts, [arm.generations[key]])] if drafts else []
        elif not all(_is_possible(step) for step in steps):
            lost["impossible counts in the trace"] += 1
        else:
            works.append(_add_up(steps))
    batches = _read_batches(arm, set(keys))
    n_counted = sum(n for n, _ in batches)
    return lost, [*works, *(work for _, work in batches)], max(0, n_unknown - n_counted)


def _read_batches(arm: Arm, keys: set[Key]) -> list[tuple[int, _Work]]:
    """Return the number of requests, and the work, of each batch that a server counted."""
    return [
        (len(batch), _total(drafts, [arm.generations[key] for key in batch]))
        for batch, drafts in arm.counted
        if keys.issuperset(batch) and drafts.n_drafted is not None
    ]


def _read_drafts(generation: Generation) -> DraftCount | None:
    drafts = generation.trace.drafts if generation.trace else None
    return drafts if drafts and drafts.n_drafted is not None else None


def _total(drafts: DraftCount, outputs: Sequence[Generation]) -> _Work:
    """Return the work behind totals: each verification emits a token beside those it accepts."""
    emitted = sum(count_tokens(one) for one in outputs)
    drafted, accepted = drafts.n_drafted or 0, drafts.n_accepted
    return _Work(
        accepted=accepted,
        drafted=drafted,
        forwards=max(0, emitted - accepted),
        emitted=emitted,
        rows=max(0, emitted - accepted) + drafted,
        draft_s=0.0,
        wall_s=0.0,
    )


def count_by_position(arm: Arm, keys: Iterable[Key]) -> list[list[int]]:
    """Return per place k = 1, 2, ... of a draft [steps that drafted so far, that accepted so far].

    At most MAX_POSITIONS places; the list ends where nothing was drafted.
    """
    answered = (arm.generations[key] for key in keys if not arm.failed(key))
    steps = [one for each in answered for one in _list_steps(each) if _is_possible(one)]
    longest = max((one.n_accepted for one in steps), default=0)
    return [
        [sum(one.n_drafted >= k for one in steps), sum(one.n_accepted >= k for one in steps)]
        for k in range(1, min(longest + 1, MAX_POSITIONS) + 1)
        if any(one.n_drafted >= k for one in steps)
    ]


def _list_steps(generation: Generation) -> Sequence[Step]:
    return generation.trace.steps if generation.trace else ()


def _is_possible(step: Step) -> bool:
    counts = (step.n_accepted, step.n_drafted, step.n_emitted, step.n_rows)
    times = (step.draft_s, step.wall_s)
    return (
        min(counts) >= 0
        and step.n_accepted <= step.n_drafted
        and step.n_accepted <= step.n_emitted
        and all(math.isfinite(time) and time >= 0.0 for time in times)
    )


def _add_up(steps: Sequence[Step]) -> _Work:
    return _Work(
        accepted=sum(step.n_accepted for step in steps),
        drafted=sum(step.n_drafted for step in steps),
        forwards=len(steps),
        emitted=sum(step.n_emitted for step in steps),
        rows=sum(step.n_rows for step in steps),
        draft_s=sum(step.draft_s for step in steps),
        wall_s=sum(step.wall_s for step in steps),
    )


def _share(works: Sequence[_Work]) -> float | None:
    drafted = sum(work.drafted for work in works)
    return sum(work.accepted for work in works) / drafted if drafted else None


def _explain_nothing(works: Sequence[_Work], n_unknown: int) -> str:
    if works:
        return "nothing was drafted"
    return "the decoder does not say what it drafted" if n_unknown else "no request was answered"


def _describe(works: Sequence[_Work]) -> dict[str, object]:
    """Totals, and the ratios they carry; a ratio over nothing is left out."""
    if not works:
        return {}
    total = _Work(*(sum(column) for column in zip(*works, strict=True)))
    ratios = (
        ("tokens_per_forward", total.emitted, total.forwards),
        ("accepted_per_draft", total.accepted, total.drafted),
        ("rows_per_token", total.rows, total.emitted),
        ("extra_rows_per_accepted", total.rows - total.emitted, total.accepted),
        ("drafting_share_of_time", total.draft_s, total.wall_s),
    )
    return {
        **total._asdict(),
        "requests": len(works),
        "requests_with_accepted": sum(work.accepted > 0 for work in works),
        "steps_saved": total.emitted - total.forwards,
        **{name: above / below for name, above, below in ratios if below > 0},
    }


def _estimate(works: Sequence[_Work], confidence_level: float) -> Estimate:
    drafted = np.array([work.drafted for work in works], dtype=np.float64)
    accepted = np.array([work.accepted for work in works], dtype=np.float64)
    estimate = bound_each_side(
        lambda level: ratio_of_means(drafted, accepted, level), confidence_level
    )
    low, high = estimate.interval
    limits = (0.0 if low is None else low, 1.0 if high is None else min(1.0, high))
    return msgspec.structs.replace(estimate, interval=limits, pvalue=None)

"""Scores that came when both arms were done, put where the others stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gate.plan import ARMS
from gate.records import Request, TokenScores
from gate.timing import TimingBlock

Scores = Mapping[str, Mapping[tuple[str, int], TokenScores]]
"""By arm and by (request id, repeat)."""


def join_late(collected: Any, late: Any) -> Any:
    """Return what was collected (collect.Collected) with late scores; ``late`` None: as it is."""
    if late is None:
        return collected
    scores = {arm: {(s.request_id, s.repeat): s for s in late.scores.get(arm, ())} for arm in ARMS}
    arms = {
        name: replace(arm, scores={**arm.scores, **scores[name]})
        for name, arm in collected.arms.items()
    }
    timing = collected.timing
    return replace(
        collected,
        requests=_name_ends(collected.requests, late.eos_ids),
        arms=arms,
        timing=replace(
            timing,
            blocks=tuple(_add_scores(block, scores, late.eos_ids) for block in timing.blocks),
            mixed=tuple(_add_scores(block, scores, late.eos_ids) for block in timing.mixed),
        ),
        bound=late.bound,
        remarks=(*collected.remarks, *late.notes),
    )


def _name_ends(requests: Sequence[Request], eos_ids: Sequence[int]) -> tuple[Request, ...]:
    """Add the model's own end-of-sequence ids, which were not sent."""
    return tuple(
        msgspec.structs.replace(r, eos_ids=tuple(dict.fromkeys((*r.eos_ids, *eos_ids))))
        for r in requests
    )


def _add_scores(block: TimingBlock, scores: Scores, eos_ids: Sequence[int]) -> TimingBlock:
    keys = [(request.id, request.repeat) for request in block.requests]
    results = {
        arm: msgspec.structs.replace(
            result,
            scores=tuple(scores[arm][key] for key in keys if key in scores[arm]) or result.scores,
        )
        for arm, result in block.results.items()
    }
    return replace(block, requests=_name_ends(block.requests, eos_ids), results=results)

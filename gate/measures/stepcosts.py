"""What a class's steps cost in both arms, from the engine's traces: for break-even and waste."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from gate.measures import breakeven
from gate.measures.bounds import bound_each_side
from gate.measures.breakeven import StepCosts
from gate.measures.means import paired_mean_difference, ratio_of_means
from gate.records import Estimate, Generation, Step

Pair = tuple[Generation, Generation]
"""One request in the baseline and in the candidate."""


class _Decode(NamedTuple):
    """The steps of one request behind its prefill."""

    prefill_s: float
    wall_s: float
    n_steps: int
    n_emitted: int
    n_rows: int
    n_drafted: int
    n_accepted: int
    wasted_s: float


def describe_steps(pairs: Sequence[Pair], confidence_level: float) -> dict[str, object]:
    """Return step costs, waste and break-even points of a class; empty where traces lack steps.

    pairs: answered by both arms. wasted_share: the candidate's decode time on rows that emitted
    nothing: rejected drafts, and the rows that make new ones. break_even: by tokens per step, by
    the share of drafts accepted, and by response length (``lengths``: on which side of it the
    change pays).
    """
    read = [(_read(before), _read(after)) for before, after in pairs]
    known = [(x, y) for x, y in read if x is not None and y is not None]
    if not known:
        return {}
    before, after = [x for x, _ in known], [y for _, y in known]
    wall, wasted = _sum(after, "wall_s"), _sum(after, "wasted_s")
    found: dict[str, object] = {
        "n_traced": len(known),
        "prefill_s": [_mean(before, "prefill_s"), _mean(after, "prefill_s")],
        "decode_s": [_mean(before, "wall_s"), _mean(after, "wall_s")],
        "steps": [_mean(before, "n_steps"), _mean(after, "n_steps")],
        "decode_tokens": _mean(after, "n_emitted"),
        "rows_per_step": _sum(after, "n_rows") / _sum(after, "n_steps"),
        "wasted_s": wasted / len(after),
        "wasted_share": wasted / wall,
    }
    drafted = _sum(after, "n_drafted")
    if drafted:
        found["accepted_per_draft"] = _sum(after, "n_accepted") / drafted
    costs = StepCosts(
        step_s=_sum(before, "wall_s") / _sum(before, "n_emitted"),
        candidate_step_s=wall / _sum(after, "n_steps"),
        tokens_per_step=_sum(after, "n_emitted") / _sum(after, "n_steps"),
        extra_s=_find_extra(before, after, confidence_level),
    )
    low, high = (step_ratio := _compare_steps(before, after, confidence_level)).interval
    return found | {
        "step_cost_ratio": [step_ratio.statistic, low, high],
        "tokens_per_step": costs.tokens_per_step,
        "costs": msgspec.to_builtins(costs),
        "break_even": find_points(
            costs, _mean(after, "n_emitted"), drafted / _sum(after, "n_steps")
        ),
    }


def find_points(costs: StepCosts, n_tokens: float, drafts_per_step: float) -> dict[str, object]:
    """Return where a class breaks even: by tokens per step, drafts accepted, response length."""
    tokens = breakeven.find_tokens_per_step(costs, n_tokens)
    share = None if tokens is None else breakeven.find_draft_share(tokens, drafts_per_step)
    return {
        "tokens_per_step": tokens,
        "accepted_per_draft": share,
        "length": breakeven.find_length(costs),
        "lengths": breakeven.name_lengths(costs),
    }


def _find_extra(
    before: Sequence[_Decode], after: Sequence[_Decode], confidence_level: float
) -> float:
    """What the candidate pays once per request more: 0 unless the interval says that it does.

    A length that breaks even by the noise of two prefills would be read as one.
    """
    extra = np.array([y.prefill_s - x.prefill_s for x, y in zip(before, after, strict=True)])
    low, high = paired_mean_difference(extra, confidence_level).interval
    is_clear = (low is not None and low > 0.0) or (high is not None and high < 0.0)
    return float(extra.mean()) if is_clear else 0.0


def _compare_steps(
    before: Sequence[_Decode], after: Sequence[_Decode], confidence_level: float
) -> Estimate:
    """The candidate's step over a baseline token, by request: what tokens per step must reach."""
    x = np.array([one.wall_s / one.n_emitted for one in before])
    y = np.array([one.wall_s / one.n_steps for one in after])
    return bound_each_side(lambda level: ratio_of_means(x, y, level), confidence_level)


def _read(generation: Generation) -> _Decode | None:
    steps = generation.trace.steps if generation.trace else ()
    later = steps[1:]
    if not later or not all(_is_sound(step) for step in steps):
        return None
    wall = math.fsum(step.wall_s for step in later)
    emitted = sum(step.n_emitted for step in later)
    if not wall > 0.0 or not emitted:
        return None
    return _Decode(
        prefill_s=steps[0].wall_s,
        wall_s=wall,
        n_steps=len(later),
        n_emitted=emitted,
        n_rows=sum(step.n_rows for step in later),
        n_drafted=sum(step.n_drafted for step in later),
        n_accepted=sum(step.n_accepted for step in later),
        wasted_s=math.fsum(step.wall_s * _idle_share(step) for step in later),
    )


def _idle_share(step: Step) -> float:
    return max(0, step.n_rows - step.n_emitted) / step.n_rows


def _is_sound(step: Step) -> bool:
    return math.isfinite(step.wall_s) and step.wall_s >= 0.0 and step.n_rows >= 1


def _sum(rows: Sequence[_Decode], name: str) -> float:
    return math.fsum(getattr(row, name) for row in rows)


def _mean(rows: Sequence[_Decode], name: str) -> float:
    return _sum(rows, name) / len(rows)

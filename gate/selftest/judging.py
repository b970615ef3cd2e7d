"""From a candidate's outputs to a row, through the pipeline's own measures and criteria."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from gate.collect import Collected, pair
from gate.criteria import Rules, combine, judge_all
from gate.defaults import default_criteria
from gate.measures.float32 import GROUP as FLOAT32
from gate.own_criteria import merge_criteria
from gate.pipeline import measure_content, measure_quality, score_arms
from gate.plan import Plan
from gate.records import AcceptanceReference, Claim, Comparison, Outcome, Verdict


def judge_collected(
    plan: Plan,
    collected: Collected,
    claim: Claim,
    reference: AcceptanceReference | None = None,
    *,
    has_quality: bool,
    without: Sequence[str] = (),
) -> list[Verdict]:
    """Return the verdicts on what was measured.

    has_quality: task scores and guards too. without: measures left out.
    """
    paired = pair(collected)
    rng = np.random.default_rng(plan.project.config.seed)
    plan = dataclasses.replace(plan, reference=reference)
    comparisons = measure_content(plan, paired, collected, rng)
    if has_quality:
        scores = score_arms(plan, paired)
        comparisons += measure_quality(plan, paired, rng, scores)
    kept = [comparison for comparison in comparisons if comparison.measure not in without]
    return judge_measured(plan, kept, claim, has_reference=reference is not None)


def judge_measured(
    plan: Plan, comparisons: Sequence[Comparison], claim: Claim, *, has_reference: bool
) -> list[Verdict]:
    """Judge the criteria whose measures were taken."""
    config = plan.project.config
    has_conformance = any(c.measure == "conformance" and c.difference for c in comparisons)
    defaults = default_criteria(
        claim,
        "content",
        config.model.dtype,
        config.run.max_dropped,
        own_baseline=has_conformance,
        has_reference=has_reference,
        has_float32=any(c.group == FLOAT32 for c in comparisons),
        has_conformance=has_conformance,
    )
    measured = {comparison.measure for comparison in comparisons}
    criteria = [
        c for c in merge_criteria(defaults, config.criteria, claim) if c.measure in measured
    ]
    rules = Rules(
        purpose="content",
        alpha=config.run.alpha,
        max_dropped=config.run.max_dropped,
        allowed={} if has_conformance else {"conformance": "not part of this test"},
        tasks=tuple(plan.evalset.spec.tasks),
        classes=tuple(plan.evalset.spec.classes),
    )
    return judge_all(criteria, comparisons, rules)


def raised_measures(verdicts: Sequence[Verdict], outcome: Outcome) -> list[str]:
    """Return the measures whose blocking verdicts came to ``outcome``."""
    found = [
        v.comparison.measure
        for v in verdicts
        if v.blocking and v.outcome is outcome and v.comparison
    ]
    return list(dict.fromkeys(found))


def worst_outcome(verdicts: Sequence[Verdict]) -> Outcome:
    """Return the outcome of the blocking verdicts."""
    return combine(v.outcome for v in verdicts if v.blocking)

"""Judgement: criteria on comparisons become verdicts, verdicts become the decision's halves.

The whole interval is held against the margin: PASS when the bound is inside, FAIL when the
interval is outside, else INCONCLUSIVE. Alarms share one run-level error budget (Holm) and
need significance and an effect above their floor. No evidence is never PASS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from gate import reasons
from gate.defaults import GAIN_MEASURES
from gate.measures.bounds import describe_alarm_power
from gate.measures.float32 import GROUP as FLOAT32
from gate.measures.stats import holm_adjusted
from gate.records import Claim, Comparison, Criterion, Estimate, Outcome, Purpose, Verdict

WORST_FIRST = (Outcome.ERROR, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
VIOLATION: Mapping[str, Outcome] = {
    "exercised": Outcome.INCONCLUSIVE,
    "dropped_pairs": Outcome.INCONCLUSIVE,
    "baseline_certificate": Outcome.ERROR,
    "baseline_termination": Outcome.ERROR,
    "baseline_conformance": Outcome.ERROR,
    "baseline_repeats": Outcome.ERROR,
    "baseline_drift": Outcome.ERROR,
}
"""What a violated criterion means where it is not FAIL."""
OPTIONAL = frozenset(
    {
        "divergence",
        "guard_flips",
        "reported_logprobs",
        "pit_distance",
        "sample_tokens",
        "sample_lag",
        "sample_duplicates",
        "text_mmd",
        "band_acceptance",
        "baseline_repeats",
        "repeats",
        "repeat_rate",
    }
)
"""Measures that some decoders or evalsets do not offer: named as a limitation, not judged."""
CERTIFIED = "baseline_certificate"
WIDEST_BOUND = 1.0  # nat: a certificate under a wider noise band certifies nothing


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What judgement needs of the configuration."""

    purpose: Purpose
    claim: Claim = "lossless"
    alpha: float
    max_dropped: float
    allowed: Mapping[str, str] = field(default_factory=dict)  # measure -> reason it may be missing
    tasks: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


class _Item(NamedTuple):
    criterion: Criterion
    group: str
    comparison: Comparison | None


def judge_all(
    criteria: Sequence[Criterion], comparisons: Sequence[Comparison], rules: Rules
) -> list[Verdict]:
    """Judge every criterion on every group it names."""
    items = [item for criterion in criteria for item in _expand(criterion, comparisons, rules)]
    adjusted = _adjust_alarms(items, rules.alpha)
    share = rules.alpha / max(1, len(adjusted))
    return [_judge(item, adjusted.get(n), share, rules) for n, item in enumerate(items)]


def _expand(
    criterion: Criterion, comparisons: Sequence[Comparison], rules: Rules
) -> Iterable[_Item]:
    names = {"each_task": rules.tasks, "each_class": rules.classes}.get(
        criterion.groups, (criterion.groups,)
    )
    for name in names:
        found = [c for c in comparisons if c.measure == criterion.measure and c.group == name]
        yield _Item(criterion, name, found[0] if found else None)


def _adjust_alarms(items: Sequence[_Item], alpha: float) -> dict[int, float]:
    """Holm-adjusted p-values of the alarms that can reach their share of ``alpha``."""
    pvalues = {
        n: float(item.comparison.difference.pvalue)
        for n, item in enumerate(items)
        if item.criterion.rule == "alarm"
        and item.comparison is not None
        and item.comparison.difference is not None
        and item.comparison.difference.pvalue is not None
    }
    found = find_reaching({n: _smallest_pvalue(items[n].comparison) for n in pvalues}, alpha)
    adjusted = holm_adjusted([pvalues[n] for n in found])
    return dict(zip(found, (float(p) for p in adjusted), strict=True))


def _smallest_pvalue(comparison: Comparison | None) -> float:
    """Return the least p-value that this n can give; 0 where it has no end."""
    smallest = comparison.detail.get("smallest_pvalue") if comparison else None
    return smallest if isinstance(smallest, float) else 0.0


def find_reaching(smallest: Mapping[int, float], alpha: float) -> list[int]:
    """Return the most alarms that can each be the first to fire, by the least p they can give.

    Of k alarms, Holm leaves the first to fire alpha / k. Those that cannot get there take no
    part, and leave more to the others.
    """
    ordered = sorted(smallest, key=lambda n: smallest[n])
    n_kept = max((k for k, n in enumerate(ordered, 1) if smallest[n] <= alpha / k), default=0)
    return sorted(ordered[:n_kept])


def _judge(item: _Item, adjusted: float | None, share: float, rules: Rules) -> Verdict:
    """Judge one criterion on one group. share: of alpha, for the first alarm to fire."""
    criterion, comparison = item.criterion, _restate_power(item, share)
    half = "gain" if criterion.measure in GAIN_MEASURES else "content"
    if half == "gain" and rules.purpose == "content":
        outcome, why = Outcome.NOT_JUDGED, ""
    else:
        outcome, why = _outcome(criterion, comparison, adjusted, rules)
    return Verdict(
        criterion=criterion.name,
        group=item.group,
        outcome=outcome,
        blocking=criterion.blocking,
        reason=why or reasons.explain(criterion, comparison, outcome),
        comparison=comparison,
        half="gain" if half == "gain" else "content",
    )


def _restate_power(item: _Item, share: float) -> Comparison | None:
    """Say what the alarm can show: less than the comparison's own bound does."""
    criterion, comparison = item.criterion, item.comparison
    n = comparison.detail.get("n_units") if comparison else None
    if comparison is None or criterion.rule != "alarm" or not isinstance(n, int):
        return comparison
    _, separator, more = (comparison.detectable or "").partition("; ")
    power = describe_alarm_power(n, share, criterion.floor)
    return msgspec.structs.replace(comparison, detectable=f"{power}{separator}{more}")


def _outcome(
    criterion: Criterion, comparison: Comparison | None, adjusted: float | None, rules: Rules
) -> tuple[Outcome, str]:
    """Return the outcome, and a reason where the usual wording does not fit."""
    if comparison is None or comparison.difference is None:
        return _without_evidence(criterion, comparison, rules)
    if criterion.measure == "task_delta" and comparison.detail.get("baseline_right") == 0:
        why = "the baseline gets no answer right here, so no loss could show"
        return (Outcome.INCONCLUSIVE if rules.claim == "bounded" else Outcome.NOT_JUDGED), why
    shortfall = _shortfall(criterion, comparison, rules)
    violated = VIOLATION.get(criterion.measure, Outcome.FAIL)
    if criterion.rule == "alarm":
        return _judge_alarm(criterion, comparison, adjusted, rules)
    outcome = _against_margin(criterion, comparison, comparison.difference)
    if outcome is Outcome.FAIL:
        return violated, ""
    return (Outcome.INCONCLUSIVE, shortfall) if shortfall else (outcome, "")


def _without_evidence(
    criterion: Criterion, comparison: Comparison | None, rules: Rules
) -> tuple[Outcome, str]:
    note = (comparison.note if comparison else None) or "nothing was measured"
    if rules.allowed.get(criterion.measure):
        return Outcome.NOT_JUDGED, f"{note}; allowed because: {rules.allowed[criterion.measure]}"
    detail = comparison.detail if comparison else {}
    is_unscored = bool(detail.get("n_unscored") or detail.get("weakness"))
    # a declared loss is judged by tasks alone: nobody claims a token, so none need be scored
    is_unclaimed = is_unscored and rules.claim == "bounded" and criterion.measure == CERTIFIED
    if criterion.measure in OPTIONAL or not criterion.blocking or is_unclaimed:
        return Outcome.NOT_JUDGED, f"not judged: {note}"
    is_fixed = criterion.groups != FLOAT32 and not is_unscored
    if criterion.measure.startswith("baseline_") and is_fixed:
        return Outcome.ERROR, f"the baseline cannot be judged: {note}"
    return Outcome.INCONCLUSIVE, f"no evidence: {note}"


def _shortfall(criterion: Criterion, comparison: Comparison, rules: Rules) -> str:
    """Return why evidence that looks fine is not enough; empty where it is."""
    detail, estimate = comparison.detail, comparison.difference
    n = estimate.n if estimate else 0
    if criterion.measure == "exercised":
        n = int(str(detail.get("requests", 0)))
    if n < criterion.min_pairs:
        what = "requests with an accepted draft" if criterion.measure == "exercised" else "pairs"
        return f"{n} {what}; at least {criterion.min_pairs} are needed"
    bound = detail.get("bound_nat")
    if isinstance(bound, float) and bound > WIDEST_BOUND:
        return f"the noise bound of {bound:.2g} nat is too wide to certify anything"
    unscored, n_requests = detail.get("n_unscored"), detail.get("n_requests")
    if (
        isinstance(unscored, int)
        and isinstance(n_requests, int)
        and unscored > rules.max_dropped * (unscored + n_requests)
    ):
        n_outputs = unscored + n_requests
        return f"{unscored} of {n_outputs} outputs could not be scored"
    return ""


def _against_margin(criterion: Criterion, comparison: Comparison, estimate: Estimate) -> Outcome:
    """Hold a count, or a whole interval, against the margin."""
    margin = criterion.margin
    if comparison.unit == "count":
        is_baseline = criterion.measure.startswith("baseline_")
        count = (comparison.baseline if is_baseline else comparison.candidate) or 0.0
        holds = count >= margin if criterion.rule == "at_least" else count <= margin
        return Outcome.PASS if holds else Outcome.FAIL
    low, high = estimate.interval
    if criterion.rule == "equivalent":
        return _inside(low, high, -margin, margin)
    if criterion.rule == "at_least":
        return _inside(low, None, margin, None, estimate.interval)
    if criterion.rule == "non_inferior":
        if comparison.direction == "lower_is_better":
            return _inside(None, high, None, margin, estimate.interval)
        return _inside(low, None, -margin, None, estimate.interval)
    return _inside(None, high, None, margin, estimate.interval)


def _inside(
    low: float | None,
    high: float | None,
    least: float | None,
    most: float | None,
    whole: tuple[float | None, float | None] | None = None,
) -> Outcome:
    """PASS: the bounds that matter lie inside; FAIL: the whole interval lies outside."""
    whole = whole or (low, high)
    low_holds = least is None or (low is not None and low >= least)
    high_holds = most is None or (high is not None and high <= most)
    if low_holds and high_holds:
        return Outcome.PASS
    below = least is not None and whole[1] is not None and whole[1] < least
    above = most is not None and whole[0] is not None and whole[0] > most
    return Outcome.FAIL if below or above else Outcome.INCONCLUSIVE


def _judge_alarm(
    criterion: Criterion, comparison: Comparison, adjusted: float | None, rules: Rules
) -> tuple[Outcome, str]:
    if adjusted is None:
        n = comparison.difference.n if comparison.difference else 0
        return (
            Outcome.NOT_JUDGED,
            f"not judged: {n} pairs cannot raise this alarm at its share of the error budget",
        )
    effect = comparison.difference.statistic if comparison.difference else 0.0
    floor = max(criterion.floor, float(str(comparison.detail.get("noise_floor", 0.0))))
    size = effect if comparison.direction == "lower_is_better" else abs(effect)
    raised = adjusted <= rules.alpha and size > floor
    return (Outcome.FAIL if raised else Outcome.PASS), ""


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """ERROR beats FAIL beats INCONCLUSIVE beats PASS; nothing judged is INCONCLUSIVE."""
    judged = {outcome for outcome in outcomes if outcome is not Outcome.NOT_JUDGED}
    return next((outcome for outcome in WORST_FIRST if outcome in judged), Outcome.INCONCLUSIVE)


class Halves(NamedTuple):
    """The decision's outcome and its two halves."""

    outcome: Outcome
    content: Outcome
    gain: Outcome


def decide(verdicts: Sequence[Verdict], purpose: Purpose) -> Halves:
    """Combine blocking verdicts that nobody waived.

    A release without a judged gain criterion is INCONCLUSIVE.
    """
    counted = [v for v in verdicts if v.blocking and v.waiver is None]
    content = combine(v.outcome for v in counted if v.half == "content")
    if purpose == "content":
        return Halves(content, content, Outcome.NOT_JUDGED)
    gain = combine(v.outcome for v in counted if v.half == "gain")
    return Halves(combine((content, gain)), content, gain)

"""A canary's size and its roll-back triggers, from the intervals of the gate's own decision.

The gate bounds what it could not exclude. The canary is as small as keeps the worst of it
harmless, runs until that would show, and is rolled back on what the gate ruled out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from scipy import stats as dist

from gate.records import Comparison, Decision, Outcome

HARM = 0.001  # share of all requests that the canary may harm at worst
LARGEST_SHARE = 0.25
FALSE_ALARM = 0.05  # one-sided, of the comparison of canary and control
POWER = 0.8
FALSE_ROLLBACK = 0.01
N_CLASSES = 8
LEAST = 1e-4  # a smaller loss is none; one above what there is to lose cannot show


class Risk(NamedTuple):
    """What may be lost per request. baseline: the rate without the change; upper: on top of it."""

    what: str
    baseline: float
    upper: float


class Trigger(NamedTuple):
    """When to roll back. n: requests of the canary after which the signal can be read, or 0."""

    signal: str
    condition: str
    n: int = 0


class Canary(NamedTuple):
    """share: of the traffic. worst: what limits it."""

    share: float
    worst: Risk
    triggers: tuple[Trigger, ...]


def suggest_canary(decision: Decision) -> Canary | None:
    """Return the canary of a decision that allows a release; None where it does not."""
    risks = [risk for risk in list_risks(decision) if LEAST < risk.upper <= 1.0 - risk.baseline]
    if decision.outcome != Outcome.PASS or decision.claim == "control" or not risks:
        return None
    worst = max(risks, key=lambda risk: risk.upper)
    triggers = [*map(_watch_risk, risks), *_watch_time(decision), *_watch_acceptance(decision)]
    return Canary(choose_share(worst.upper), worst, tuple(triggers))


def list_risks(decision: Decision) -> Iterator[Risk]:
    """Yield the losses per request that the decision bounds and could not exclude."""
    for one in _find(decision, "error_rate"):
        high = one.difference.interval[1] if one.difference else None
        if high is not None and high > 0 and one.baseline is not None:
            yield Risk("failed requests", one.baseline, high)
    for one in _find(decision, "task_delta"):
        low = one.difference.interval[0] if one.difference else None
        if low is not None and low < 0 and one.baseline is not None:
            yield Risk("wrong answers (a graded sample)", 1.0 - one.baseline, -low)
    for one in _find(decision, "token_defects"):
        upper = one.detail.get("request_rate_upper")
        if isinstance(upper, float) and upper > 0:
            yield Risk("outputs that re-scoring calls a defect (a sample)", 0.0, upper)


def choose_share(upper: float) -> float:
    """Return the largest canary whose worst harm stays below HARM of all requests.

    share = HARM / upper, at most LARGEST_SHARE, rounded down to one digit.
    """
    share = min(LARGEST_SHARE, HARM / upper)
    unit = 10.0 ** math.floor(math.log10(share) + 1e-9)
    return share if share == LARGEST_SHARE else math.floor(share / unit + 1e-9) * unit


def count_needed(baseline: float, upper: float) -> int:
    """Return the requests per arm that show a rate of ``baseline + upper`` beside ``baseline``.

    n = (z(a) sqrt(2 m (1 - m)) + z(b) sqrt(p (1 - p) + q (1 - q)))^2 / (q - p)^2, with p and q
    the two rates, m their mean, a one-sided FALSE_ALARM and b = 1 - POWER (Fleiss, Levin and
    Paik, Statistical Methods for Rates and Proportions, 2003, section 4.2).
    """
    p, q = baseline, min(1.0, baseline + upper)
    m = (p + q) / 2.0
    z_alarm, z_power = float(dist.norm.isf(FALSE_ALARM)), float(dist.norm.ppf(POWER))
    spread = z_alarm * math.sqrt(2 * m * (1 - m)) + z_power * math.sqrt(p * (1 - p) + q * (1 - q))
    return max(1, math.ceil(spread**2 / (q - p) ** 2))


def count_rollback(n: int, rate: float) -> int:
    """Return the least count in ``n`` requests that a true rate of ``rate`` explains no more.

    Smallest k with P(Bin(n, rate) >= k) <= FALSE_ROLLBACK; n + 1 where no count says so.
    """
    return int(dist.binom.isf(FALSE_ROLLBACK, n, min(1.0, rate))) + 1


def _watch_risk(risk: Risk) -> Trigger:
    n = count_needed(risk.baseline, risk.upper)
    rate = risk.baseline + risk.upper
    k = count_rollback(n, rate)
    count = f"; {k:,} or more in the first {n:,} are beyond it" if k <= n else ""
    return Trigger(
        risk.what, f"their share exceeds the control's by more than {risk.upper:.1%}{count}", n
    )


def _watch_time(decision: Decision) -> Iterator[Trigger]:
    for one in _find(decision, "time_ratio"):
        high = one.difference.interval[1] if one.difference else None
        if high is not None and math.isfinite(high):
            yield Trigger(
                "seconds per request",
                f"the canary's mean exceeds {high:.2f} times the control's on the same traffic",
            )


def _watch_acceptance(decision: Decision) -> Iterator[Trigger]:
    found = [one for one in decision.comparisons if one.measure == "acceptance" and one.difference]
    for one in found[: N_CLASSES + 1]:
        low = one.difference.interval[0] if one.difference else None
        if low:
            place = "" if one.group == "all" else f" of {one.group}"
            yield Trigger(f"accepted drafts{place}", f"their share falls below {low:.1%}")


def _find(decision: Decision, measure: str) -> list[Comparison]:
    return [one for one in decision.comparisons if one.measure == measure and one.group == "all"]

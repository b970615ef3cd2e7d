"""Where a decoding change pays for itself: closed forms, on seconds and dollars.

A request of n tokens costs the baseline ``fixed + n * step`` and the candidate
``fixed + extra + n / tokens_per_step * candidate_step`` device-seconds. ``extra`` is what it
pays once per request (a longer prefill, filling its pool), ``candidate_step`` what one of its
wider steps costs. Every function returns None where no value breaks even.
"""

from __future__ import annotations

import math
from typing import Literal

from gate.records import Record

Pays = Literal["from", "up to", "always", "never"]
"""At which response lengths the change pays, seen from the break-even length."""
BISECTIONS = 60


class StepCosts(Record, frozen=True, kw_only=True):
    """What a class costs, device-seconds. tokens_per_step: of the candidate, prefill left out."""

    step_s: float
    candidate_step_s: float
    tokens_per_step: float
    extra_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse costs with which nothing can be computed."""
        values = (self.step_s, self.candidate_step_s, self.tokens_per_step)
        if not all(math.isfinite(v) and v > 0.0 for v in values) or not math.isfinite(self.extra_s):
            msg = f"step costs and tokens per step must be finite and above 0, not {values}"
            raise ValueError(msg)


def candidate_token_s(costs: StepCosts) -> float:
    """Return the candidate's device-seconds per token."""
    return costs.candidate_step_s / costs.tokens_per_step


def find_length(costs: StepCosts) -> float | None:
    """Return the response length in tokens at which both arms cost the same.

    n = extra / (step - candidate_step / tokens_per_step). With a saving per token the change
    pays from there on, with a loss per token up to there; None: it always or never pays.
    """
    saving = costs.step_s - candidate_token_s(costs)
    if saving == 0.0:
        return None
    length = costs.extra_s / saving
    return length if length > 0.0 else None


def name_lengths(costs: StepCosts) -> Pays:
    """Return on which side of :func:`find_length` the change pays."""
    saving = costs.step_s - candidate_token_s(costs)
    if find_length(costs) is not None:
        return "from" if saving > 0.0 else "up to"
    return "always" if saving > 0.0 or (saving == 0.0 and costs.extra_s < 0.0) else "never"


def find_draft_share(tokens_per_step: float, drafts_per_step: float) -> float | None:
    """Return the share of drafts accepted that brings so many tokens per step; None: above all.

    (tau - 1) / drafts: a step brings one token of its own and every draft that it accepts.
    """
    if not drafts_per_step > 0.0:
        return None
    share = max(0.0, tokens_per_step - 1.0) / drafts_per_step
    return share if share <= 1.0 else None


def find_tokens_per_step(costs: StepCosts, n_tokens: float) -> float | None:
    """Return the tokens per step from which on a response of ``n_tokens`` pays.

    tau = n candidate_step / (n step - extra): candidate_step / step where nothing is fixed.
    """
    left = n_tokens * costs.step_s - costs.extra_s
    return n_tokens * costs.candidate_step_s / left if left > 0.0 else None


def expected_tokens(acceptance: float, n_drafted: int) -> float:
    """Return tokens per step of a chain of drafts, each accepted with the same probability.

    (1 - a^(k+1)) / (1 - a): Leviathan et al. (2023), equation 1.
    """
    if not 0.0 <= acceptance <= 1.0 or n_drafted < 0:
        msg = f"acceptance {acceptance} over {n_drafted} drafts; it lies between 0 and 1"
        raise ValueError(msg)
    return math.fsum(acceptance**k for k in range(n_drafted + 1))


def find_acceptance(tokens_per_step: float, n_drafted: int) -> float | None:
    """Return the acceptance per draft that gives so many tokens per step; None: unreachable."""
    if n_drafted < 1 or not 1.0 <= tokens_per_step <= n_drafted + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        enough = expected_tokens(middle, n_drafted) >= tokens_per_step
        low, high = (low, middle) if enough else (middle, high)
    return high


def find_mix(saving_winner: float, saving_loser: float) -> float | None:
    """Return the winners' share of the traffic at which the blend breaks even.

    Savings per request, in one unit; the winners pay from there on. w = -s2 / (s1 - s2).
    """
    if saving_winner <= 0.0 or saving_loser >= 0.0:
        return None
    return -saving_loser / (saving_winner - saving_loser)


def find_volume(fixed_usd: float, saving_usd: float) -> float | None:
    """Return the requests per month from which on savings cover a fixed monthly cost."""
    return fixed_usd / saving_usd if saving_usd > 0.0 else None

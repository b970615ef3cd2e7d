"""The canary's figures against their oracles."""

from __future__ import annotations

import math
import time

import msgspec
import numpy as np
import pytest
from scipy import stats

from gate.export.canary import (
    FALSE_ROLLBACK,
    HARM,
    choose_share,
    count_needed,
    count_rollback,
    suggest_canary,
)
from gate.export.summary import render_summary
from gate.records import Comparison, Decision, Estimate, Outcome
from tests.export.builders import make_decision, make_verdict


def compare(measure: str, low: float, high: float, **fields: object) -> Comparison:
    estimate = Estimate(
        statistic=0.0, interval=(low, high), confidence_level=0.95, n=60, method="toy"
    )
    return msgspec.structs.replace(
        Comparison(measure=measure, difference=estimate, baseline=0.02), **fields
    )


def make_pass(**changes: object) -> Decision:
    comparisons = (
        compare("error_rate", -0.01, 0.049),
        compare("task_delta", -0.02, 0.03, baseline=0.6),
        compare("token_defects", 0.0, 0.001, detail={"request_rate_upper": 0.03}),
        compare("time_ratio", 0.6, 0.8),
        compare("acceptance", 0.4, 0.5),
        compare("acceptance", 0.2, 0.3, group="code|x"),
    )
    decision = make_decision("PASS", make_verdict("PASS"), comparisons=comparisons)
    return msgspec.structs.replace(decision, **changes)


def power_by_simulation(p: float, q: float, n: int) -> float:
    """Share of canaries whose pooled z test, one-sided at 5%, finds q beside p."""
    rng = np.random.default_rng(0)
    control, canary = rng.binomial(n, p, 100_000) / n, rng.binomial(n, q, 100_000) / n
    pooled = (control + canary) / 2
    error = np.sqrt(np.maximum(2 * pooled * (1 - pooled) / n, 1e-12))
    return float(((canary - control) / error > stats.norm.isf(0.05)).mean())


@pytest.mark.parametrize(("p", "upper"), [(0.05, 0.05), (0.02, 0.049), (0.4, 0.02), (0.1, 0.2)])
def test_the_number_of_requests_has_its_power_by_simulation(p: float, upper: float) -> None:
    n = count_needed(p, upper)
    assert power_by_simulation(p, p + upper, n) == pytest.approx(0.8, abs=0.025)


def test_the_number_of_requests_is_the_formulas() -> None:
    assert count_needed(0.05, 0.05) == 343  # 0.9248^2 / 0.0025 by hand


def test_the_count_for_a_roll_back_is_binomial() -> None:
    k = count_rollback(500, 0.05)
    tail = [float(stats.binom.sf(c - 1, 500, 0.05)) for c in (k - 1, k)]
    assert tail[0] > FALSE_ROLLBACK >= tail[1]


@pytest.mark.parametrize("upper", [1.0, 0.5, 0.049, 0.02, 0.0101, 0.004, 0.0001])
def test_the_worst_harm_of_a_canary_stays_below_the_limit(upper: float) -> None:
    share = choose_share(upper)
    assert 0 < share <= 0.25
    assert share * upper <= HARM * (1 + 1e-9)
    assert share >= min(0.25, HARM / upper) / 2


def test_the_largest_loss_not_excluded_sets_the_share() -> None:
    canary = suggest_canary(make_pass())
    assert canary is not None
    assert canary.worst.what == "failed requests"
    assert math.isclose(canary.share, 0.02)
    signals = [one.signal for one in canary.triggers]
    assert signals[0] == "failed requests"
    assert "seconds per request" in signals
    assert "accepted drafts of code|x" in signals
    assert any("0.80 times" in one.condition for one in canary.triggers)


@pytest.mark.parametrize("baseline", [0.0, 0.97, 0.999, 1.0])
def test_what_cannot_be_lost_is_no_risk(baseline: float) -> None:
    errors = compare("error_rate", -0.01, 0.049, baseline=baseline)
    canary = suggest_canary(make_pass(comparisons=(errors,)))
    assert (canary is None) == (baseline > 0.951)


@pytest.mark.parametrize("upper", [1e-12, 1e-6, 1.1e-4, 1e-3, 0.3])
def test_a_bound_however_tight_is_worked_out_at_once(upper: float) -> None:
    began = time.monotonic()
    errors = compare("error_rate", -0.01, upper, baseline=0.5)
    assert (suggest_canary(make_pass(comparisons=(errors,))) is None) == (upper < 1e-4)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": Outcome.FAIL},
        {"outcome": Outcome.INCONCLUSIVE},
        {"outcome": Outcome.ERROR},
        {"claim": "control"},
        {"comparisons": ()},
    ],
)
def test_there_is_no_canary_of_what_is_not_released(changes: dict[str, object]) -> None:
    decision = make_pass(**changes)
    assert suggest_canary(decision) is None
    assert "canary" not in render_summary(decision)


def test_the_summary_shows_it_and_text_of_others_stays_text() -> None:
    summary = render_summary(make_pass())
    assert "**Suggested canary:** at most 2.00% of the traffic" in summary
    assert "code\\|x" in summary

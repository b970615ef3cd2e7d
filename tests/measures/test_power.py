"""Required n and detectable effects: held to published figures, to the tests they speak of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as dist

from gate.measures import power, stats
from gate.measures.means import paired_mean_difference
from gate.records import Estimate


@pytest.mark.parametrize(
    ("margin", "n"), [(0.005, 598), (0.01, 299), (0.02, 149), (0.05, 59), (0.1, 29)]
)
def test_zero_flips_against_published_numbers(margin: float, n: int) -> None:
    assert power.required_n_zero_flips(margin) == n
    assert stats.clopper_pearson(0, n, 0.95, "upper").interval[1] <= margin  # type: ignore[operator]
    assert stats.clopper_pearson(0, n - 1, 0.95, "upper").interval[1] > margin  # type: ignore[operator]


@pytest.mark.parametrize(("q", "side", "n"), [(0.99, "upper", 299), (0.99, "two-sided", 368)])
def test_required_n_percentile_against_published_numbers(
    q: float, side: stats.Side, n: int
) -> None:
    assert power.required_n_percentile(q, 0.95, side) == n
    assert None not in stats.percentile_with_interval(np.arange(n), q, 0.95, side).interval[1:]
    assert power.required_n_percentile(0.01, 0.95, "lower") == 299


def test_required_n_for_interval_is_the_first_that_suffices() -> None:
    n = power.required_n_for_interval(1.0, 0.2)
    widths = [dist.t.isf(0.025, m - 1) / math.sqrt(m) for m in (n - 1, n)]
    assert widths[0] > 0.2 >= widths[1]
    assert power.required_n_for_interval(0.0, 0.2) == 2
    with pytest.raises(ValueError, match="half_width"):
        power.required_n_for_interval(1.0, 0.0)


def make_estimate(statistic: float, low: float | None, high: float | None) -> Estimate:
    return Estimate(
        statistic=statistic, interval=(low, high), confidence_level=0.95, n=100, method="t"
    )


def test_required_n_to_decide_scales_the_reach_of_the_bound() -> None:
    assert power.required_n_to_decide(make_estimate(0.0, None, 0.04), 0.02) == 400
    assert power.required_n_to_decide(make_estimate(0.0, -0.04, None), -0.02) == 400
    assert power.required_n_to_decide(make_estimate(0.0, None, 0.01), 0.02) == 100
    assert power.required_n_to_decide(make_estimate(0.02, None, 0.04), 0.02) is None
    assert power.required_n_to_decide(make_estimate(0.0, None, None), 0.02) is None


def test_smallest_mcnemar_pvalue_is_that_of_all_pairs_lost() -> None:
    for n in (1, 5, 11):
        assert power.smallest_mcnemar_pvalue(n) == pytest.approx(stats.mcnemar_pvalue(0, n))
    assert power.smallest_mcnemar_pvalue(0) == 1.0


def test_one_way_flips_against_exact_power() -> None:
    rate = power.detectable_one_way_flips(60, 0.001, 0.8)
    assert rate is not None
    # 11 flips one way give p = 0.00098, ten give 0.00195
    assert dist.binom.sf(10, 60, rate) == pytest.approx(0.8)
    assert power.mcnemar_power(60, rate, rate, 0.001) == pytest.approx(0.8)
    assert power.detectable_one_way_flips(10, 0.001) is None


def test_detectable_binary_difference_against_simulation() -> None:
    n, discordance, alpha = 200, 0.15, 0.05
    difference = power.detectable_binary_difference(n, discordance, alpha, 0.8)
    assert difference is not None
    rng, gain = np.random.default_rng(1), (discordance + difference) / 2
    counts = rng.multinomial(n, [gain, discordance - gain, 1 - discordance], 5000)
    pvalues = {(b, c): stats.mcnemar_pvalue(b, c) for b, c in {(b, c) for b, c, _ in counts}}
    found = np.mean([pvalues[b, c] <= alpha for b, c, _ in counts])
    assert found == pytest.approx(0.8, abs=0.02)
    assert power.detectable_binary_difference(20, 0.05, 0.001) is None


def test_detectable_mean_difference_against_simulation() -> None:
    difference = power.detectable_mean_difference(20, 2.0, 0.05, 0.8)
    assert difference is not None
    draws = np.random.default_rng(2).normal(difference, 2.0, (5000, 20))
    found = (dist.ttest_1samp(draws, 0.0, axis=1).pvalue <= 0.05).mean()
    assert 0.79 <= found <= 0.84
    pvalue = paired_mean_difference(draws[0]).pvalue
    assert pvalue == pytest.approx(dist.ttest_1samp(draws[0], 0.0).pvalue)
    assert power.detectable_mean_difference(1, 2.0, 0.05) is None


def test_shares_outside_zero_and_one_are_refused() -> None:
    with pytest.raises(ValueError, match="margin"):
        power.required_n_zero_flips(0.0)
    with pytest.raises(ValueError, match="alpha"):
        power.detectable_one_way_flips(10, 1.0)
    with pytest.raises(ValueError, match="discordance"):
        power.detectable_binary_difference(10, 0.0, 0.05)

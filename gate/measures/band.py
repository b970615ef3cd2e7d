"""Rate test by proposal: how often is the referee's second choice taken when drafted?

A lossless verifier takes it at most half the time, however close the two are, since noise is
as likely to favour one as the other.
"""

from __future__ import annotations

import msgspec

from gate.measures.stats import binomial_excess
from gate.records import BandProbe, Comparison

SIZES = (20, 32, 64)
"""The closest so many positions are tested; relaxed rules take the closest first."""
EVEN = 0.5


def compare_band(probe: BandProbe | None) -> list[Comparison]:
    """Return the measure band_acceptance: share of second choices accepted, less a half."""
    base = Comparison(measure="band_acceptance", unit="share", direction="lower_is_better")
    if probe is None:
        note = "the candidate takes no drafts from outside"
        return [msgspec.structs.replace(base, note=note)]
    detail: dict[str, object] = {"band_nat": probe.band_nat, "n_in_band": probe.n_in_band}
    n = len(probe.accepted)
    if n < SIZES[0]:
        within = f"{probe.band_nat:.2g} nat"
        note = f"{n} positions have a second choice within {within}; {SIZES[0]} are needed"
        return [msgspec.structs.replace(base, note=note, detail=detail)]
    sizes = [size for size in (*SIZES, n) if size <= n]
    tests = [
        binomial_excess(sum(probe.accepted[:size]), size, EVEN) for size in dict.fromkeys(sizes)
    ]
    best = min(tests, key=lambda test: test.pvalue or 0.0)
    pvalue = min(1.0, len(tests) * (best.pvalue or 0.0))
    low = best.interval[0]
    excess = msgspec.structs.replace(
        best,
        statistic=best.statistic - EVEN,
        interval=(None if low is None else low - EVEN, None),
        pvalue=pvalue,
        method=f"{best.method}; the closest {best.n} positions, Bonferroni over {len(tests)} sizes",
    )
    detail["accepted"] = sum(probe.accepted)
    return [
        msgspec.structs.replace(
            base,
            baseline=EVEN,
            candidate=best.statistic,
            difference=excess,
            detail={**detail, "smallest_pvalue": EVEN ** sizes[-1] * len(tests)},
        )
    ]

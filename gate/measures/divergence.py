"""Distribution divergence: the law the candidate used while decoding against the referee's.

Per token KL(used || referee), total variation and Jensen-Shannon, reduced to numbers while
collecting; here they are summarised. It sees numerics, cache, mask and position faults. It
cannot see acceptance faults: a draft accepted against the law leaves the law as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gate.measures.means import paired_mean_difference
from gate.measures.paired import Arm, Paired
from gate.records import Comparison, TokenScores

PERCENTILES = ((50, 2), (90, 10), (95, 20), (99, 100), (99.9, 1000))
"""Percentile, and the fewest tokens at which it is printed."""


N_STRETCHES = 24


def compare_divergence(paired: Paired, confidence_level: float = 0.95) -> list[Comparison]:
    """Return the measure divergence: the candidate's mean KL per token, clustered by request.

    The arms are not subtracted: where both used the very same rows the difference has no
    spread, and a bound on it would say nothing. The baseline's own figure stands beside it.
    """
    tapped = [
        (paired.baseline.scores[k], paired.candidate.scores[k])
        for k in paired.keys
        if k in paired.baseline.scores
        and k in paired.candidate.scores
        and paired.candidate.scores[k].kl
    ]
    if not tapped:
        note = "the candidate does not show the law it used while decoding (no tap)"
        return [
            Comparison(measure="divergence", unit="nat", direction="lower_is_better", note=note)
        ]
    candidate = [float(np.mean(c.kl)) for _, c in tapped]
    baseline = [float(np.mean(b.kl)) if b.kl else 0.0 for b, _ in tapped]
    return [
        Comparison(
            measure="divergence",
            unit="nat",
            direction="lower_is_better",
            baseline=float(np.mean(baseline)),
            candidate=float(np.mean(candidate)),
            difference=paired_mean_difference(candidate, 2 * confidence_level - 1),
            detail={
                **summarise([c for _, c in tapped]),
                "baseline_ladder": summarise([b for b, _ in tapped if b.kl]),
                "along": curve_along([c for _, c in tapped]),
                "baseline_along": curve_along([b for b, _ in tapped if b.kl]),
                "n_requests": len(tapped),
            },
        )
    ]


def summarise(scores: Sequence[TokenScores]) -> dict[str, object]:
    """Return the ladder of one arm: percentiles of KL, mean TV and JS, same-top share."""
    if not scores:
        return {}
    kl = np.concatenate([s.kl for s in scores])
    ladder: dict[str, object] = {
        f"p{p:g}": float(np.percentile(kl, p)) for p, n in PERCENTILES if len(kl) >= n
    }
    return {
        **ladder,
        "max": float(kl.max()),
        "mean": float(kl.mean()),
        "mean_tv": float(np.mean(np.concatenate([s.tv for s in scores]))),
        "mean_js": float(np.mean(np.concatenate([s.js for s in scores]))),
        "same_top": float(np.mean(np.concatenate([s.same_top for s in scores]))),
        "n_tokens": len(kl),
    }


def curve_along(scores: Sequence[TokenScores]) -> list[list[float]]:
    """Return how KL goes along the output: [first position, n tokens, mean, largest] per stretch.

    At most N_STRETCHES stretches of equal length, from the first token to the longest output's
    last; a fault of the cache or of positions grows along them.
    """
    longest = max((len(s.kl) for s in scores), default=0)
    length = max(1, -(-longest // N_STRETCHES))
    stretches = []
    for first in range(0, longest, length):
        values = [v for s in scores for v in s.kl[first : first + length]]
        stretches.append([first, len(values), float(np.mean(values)), max(values)])
    return stretches


def mean_entropy_by_class(paired: Paired, arm: Arm) -> dict[str, float]:
    """Return nats per token of each class: how predictable its text is."""
    found: dict[str, list[float]] = {}
    for key, scores in arm.scores.items():
        found.setdefault(paired.requests[key].request_class, []).extend(scores.entropy)
    return {name: float(np.mean(values)) for name, values in found.items() if values}

"""The token certificate: every decision of both arms, judged by the referee.

Classes, exclusive, by regret r and noise bound b: EXACT r = 0; TIE r <= b;
UNEXPLAINED r <= 3 b; DEFECT above. Every position of the whole output counts, not only
the first fork: one tie must not hide later defects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gate.measures.diagnosis import Defect, describe
from gate.measures.paired import Arm, Key, Paired
from gate.measures.resampling import two_rate_permutation
from gate.measures.stats import clopper_pearson
from gate.records import (
    Comparison,
    NoiseBound,
    Request,
    TokenScores,
)

CLASSES = ("exact", "tie", "unexplained", "defect")
UNEXPLAINED_FACTOR = 3.0
SHOWN_DEFECTS = 20


def classify(regret: float, bound: float) -> str:
    """Return the class of evidence of one decision."""
    if regret <= 0:
        return "exact"
    if regret <= bound:
        return "tie"
    return "unexplained" if regret <= UNEXPLAINED_FACTOR * bound else "defect"


@dataclass(kw_only=True)
class Certificate:
    """Counts over one arm's decisions, and its defects."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0))
    defects: list[Defect] = field(default_factory=list)
    n_requests: int = 0
    n_unscored: int = 0

    @property
    def n(self) -> int:
        """Decisions judged."""
        return sum(self.counts.values())


def is_keyed(arm: Arm, request: Request) -> bool:
    """Whether regret judges this output: greedy, or sampled with the project's noise."""
    return request.sampling.temperature == 0 or arm.spec.noise == "position_keyed"


def certify(paired: Paired, arm: Arm) -> Certificate:
    """Judge every decision of an arm."""
    certificate = Certificate()
    for key, request in paired.requests.items():
        if arm.failed(key) or key in paired.untold or not is_keyed(arm, request):
            continue
        scores = arm.scores.get(key)
        if scores is None:
            certificate.n_unscored += 1
            continue
        certificate.n_requests += 1
        _add_output(certificate, arm, key, request, scores, paired.bound)
    return certificate


def _add_output(
    certificate: Certificate,
    arm: Arm,
    key: Key,
    request: Request,
    scores: TokenScores,
    bound: NoiseBound,
) -> None:
    for position, regret in enumerate(scores.regret):
        kind = classify(regret, bound.bound)
        certificate.counts[kind] += 1
        if kind == "defect":
            certificate.defects.append(Defect.of(request, arm.generations[key], scores, position))


def compare_certificates(paired: Paired, confidence_level: float = 0.95) -> list[Comparison]:
    """Return the measures token_defects and baseline_certificate."""
    baseline, candidate = certify(paired, paired.baseline), certify(paired, paired.candidate)
    detail: dict[str, object] = {
        "bound_nat": paired.bound.bound,
        "bound_source": paired.bound.source,
        "weakness": paired.bound.weakness,
    }
    return [
        _certificate_comparison(
            "token_defects", baseline, candidate, candidate, detail, confidence_level
        ),
        _certificate_comparison(
            "baseline_certificate", baseline, candidate, baseline, detail, confidence_level
        ),
    ]


def _certificate_comparison(
    measure: str,
    baseline: Certificate,
    candidate: Certificate,
    judged: Certificate,
    detail: dict[str, object],
    confidence_level: float,
) -> Comparison:
    n_defects = judged.counts["defect"]
    n_hit = len({(d.request_id, d.repeat) for d in judged.defects})
    common: dict[str, object] = {
        **detail,
        "baseline_counts": dict(baseline.counts),
        "candidate_counts": dict(candidate.counts),
        "n_decisions": judged.n,
        "n_requests": judged.n_requests,
        "n_unscored": judged.n_unscored,
    }
    weakness = str(detail["weakness"])
    if judged.n == 0 or weakness:
        return Comparison(
            measure=measure,
            unit="count",
            direction="lower_is_better",
            note=weakness if judged.n else "no decision of this arm could be scored",
            detail=common,
        )
    by_request = clopper_pearson(n_hit, judged.n_requests, confidence_level, "upper")
    return Comparison(
        measure=measure,
        unit="count",
        direction="lower_is_better",
        baseline=baseline.counts["defect"],
        candidate=candidate.counts["defect"],
        difference=clopper_pearson(n_defects, judged.n, confidence_level, "upper"),
        detectable=f"a defect in one of {judged.n // 3 or 1:,} decisions or in one of "
        f"{max(judged.n_requests // 3, 1):,} requests",
        detail={
            **common,
            "request_rate_upper": by_request.interval[1],
            "n_requests_hit": n_hit,
            "diagnosis": describe(judged.defects),
            "defects": [d.as_dict() for d in judged.defects[:SHOWN_DEFECTS]],
        },
    )


def compare_rates(paired: Paired, rng: np.random.Generator, n_resamples: int) -> list[Comparison]:
    """Return the rate tests that see what hides inside the tie band.

    flip_rate: positions where the emitted token is not the referee's best.
    token_unexplained: positions above the bound. Both per request, candidate minus
    baseline, by permutation of the arms within requests.
    """
    rates = (
        ("flip_rate", 0.0, "share of decisions that are not the referee's first choice"),
        ("token_unexplained", paired.bound.bound, "share of decisions beyond the noise bound"),
    )
    return [_rate(paired, rng, n_resamples, *rate) for rate in rates]


def _rate(
    paired: Paired,
    rng: np.random.Generator,
    n_resamples: int,
    measure: str,
    above: float,
    what: str,
) -> Comparison:
    counts = np.array(list(_counts_above(paired, above)), dtype=float).reshape(-1, 4)
    if len(counts) == 0:
        return Comparison(measure=measure, unit="rate", note="no scored pair of outputs")
    estimate = two_rate_permutation(
        counts[:, 0],
        counts[:, 1],
        counts[:, 2],
        counts[:, 3],
        rng,
        n_resamples=n_resamples,
        alternative="greater",
    )
    return Comparison(
        measure=measure,
        unit="rate",
        direction="lower_is_better",
        baseline=float(counts[:, 0].sum() / counts[:, 1].sum()),
        candidate=float(counts[:, 2].sum() / counts[:, 3].sum()),
        difference=estimate,
        detail={
            "what": what,
            "baseline_count": int(counts[:, 0].sum()),
            "candidate_count": int(counts[:, 2].sum()),
            "n_requests": len(counts),
            "smallest_pvalue": max(0.5 ** len(counts), 1 / (1 + n_resamples)),
            "noise_floor": max(0.0, paired.bound.flip_rate_wide - paired.bound.flip_rate_one_row),
        },
    )


def _counts_above(paired: Paired, above: float) -> Iterator[tuple[int, int, int, int]]:
    for key in paired.keys:
        request = paired.requests[key]
        b, c = paired.baseline.scores.get(key), paired.candidate.scores.get(key)
        if b is None or c is None or not is_keyed(paired.candidate, request):
            continue
        yield (
            sum(r > above for r in b.regret),
            len(b.regret),
            sum(r > above for r in c.regret),
            len(c.regret),
        )

"""Parts of a decision: comparisons, forks, criteria and verdicts with plausible figures."""

from __future__ import annotations

from gate.records import (
    Comparison,
    Criterion,
    Estimate,
    Fork,
    Outcome,
    TokenView,
    Verdict,
)

CLASSES = ("code", "structured", "short_answer")


def make_estimate(
    statistic: float = 0.0,
    low: float | None = 0.0,
    high: float | None = 0.0008,
    n: int = 3812,
    method: str = "Clopper-Pearson, one-sided",
) -> Estimate:
    return Estimate(
        statistic=statistic, interval=(low, high), confidence_level=0.95, n=n, method=method
    )


def make_certificate(defects: int = 0, baseline: int = 0) -> Comparison:
    rate = defects / 3812
    return Comparison(
        measure="token_defects",
        unit="count",
        direction="lower_is_better",
        baseline=baseline,
        candidate=defects,
        difference=make_estimate(rate, 0.0, rate + 0.0008),
    )


def make_task(group: str, delta: float, half_width: float, n: int) -> Comparison:
    return Comparison(
        measure="task_delta",
        group=group,
        unit="share",
        direction="higher_is_better",
        baseline=0.42,
        candidate=0.42 + delta,
        difference=make_estimate(
            delta, delta - half_width, delta + half_width, n, "CR1, t(G-1), one-sided"
        ),
        detectable=f"a loss of {300 / n:.1f} points or more",
        detail={"n": n, "discordant": 4, "baseline_right": int(0.42 * n)},
    )


def make_ratio(group: str, ratio: float) -> Comparison:
    return Comparison(
        measure="time_ratio",
        group=group,
        unit="ratio",
        direction="lower_is_better",
        baseline=2.4,
        candidate=2.4 * ratio,
        difference=make_estimate(ratio, ratio * 0.94, ratio * 1.07, 24, "paired log ratio, t"),
    )


def make_acceptance(group: str, accepted: int, drafted: int = 500) -> Comparison:
    return Comparison(
        measure="acceptance",
        group=group,
        unit="share",
        candidate=accepted / drafted,
        detail={
            "accepted": accepted,
            "drafted": drafted,
            "tokens_per_forward": 1 + accepted / 400,
            "accepted_per_draft": accepted / drafted,
        },
    )


def make_exercised(short_answer: int = 0) -> Comparison:
    by_class = {"code": 300, "structured": 220, "short_answer": short_answer}
    accepted = sum(by_class.values())
    return Comparison(
        measure="exercised",
        direction="higher_is_better",
        candidate=accepted,
        difference=make_estimate(accepted, accepted, accepted, 60, "count"),
        detail={"accepted": accepted, "requests": 41, "by_class": by_class, "unknown": 0},
    )


def make_divergence() -> Comparison:
    return Comparison(
        measure="divergence",
        unit="nats",
        direction="lower_is_better",
        candidate=2.1e-6,
        difference=make_estimate(2.1e-6, 1.2e-6, 3.4e-6, 60, "request-clustered mean"),
        detail={"percentiles": {"p50": 1e-7, "p90": 4e-6, "p99": 2e-5}, "max": 4e-4,
                "same_top": 0.9997},
    )  # fmt: skip


def make_guard(group: str = "format", flipped: int = 0) -> Comparison:
    texts = {"baseline_text": '{"city": "Paris"}', "candidate_text": '{"city": "Paris"'}
    labels = {"baseline_label": "valid", "candidate_label": "invalid"}
    flips = [{"request_id": f"json-{i}", **labels, **texts} for i in range(flipped)]
    return Comparison(
        measure="guard_flips",
        group=group,
        unit="share",
        direction="lower_is_better",
        baseline=0.05,
        candidate=0.05 + flipped / 60,
        difference=make_estimate(flipped / 60, 0.0, flipped / 60 + 0.05, 60, "exact binomial"),
        detail={"flipped": flips},
    )


def make_fork(kind: str = "tie", i: int = 0) -> Fork:
    regret = {"tie": 1.1e-5, "defect": 2.31, "unexplained": 0.0031}.get(kind, 0.0)
    return Fork(
        request_id=f"gsm8k-{i}",
        task="gsm8k",
        request_class=CLASSES[i % 3],
        position=17 + i,
        kind=kind,
        regret_baseline=0.0,
        regret_candidate=regret,
        gap=regret,
        token_baseline=TokenView(token_id=11, text=" twelve"),
        token_candidate=TokenView(token_id=12, text=" eleven"),
        prompt="Ann has 5 apples and buys 7 more. How many does she have?",
        before="Ann starts with 5 apples.\nShe buys 7 more, so she has",
        after_baseline=" apples in total.",
        after_candidate=" apples, and then she counts again.",
        score_changed=kind == "defect",
    )


def make_criteria() -> tuple[Criterion, ...]:
    why = "a lossless decoder may not change a single token beyond arithmetic noise"
    trade = "a tenth of the answers is the most we would trade on a smoke run"
    return (
        Criterion(name="token certificate", measure="token_defects", rationale=why),
        Criterion(name="exercised", measure="exercised", rule="at_least", margin=30,
                  rationale="with fewer, the candidate is the baseline in disguise"),
        Criterion(name="task accuracy", measure="task_delta", rule="non_inferior", margin=0.1,
                  rationale=trade),
        Criterion(name="task alarm", measure="task_delta", groups="each_task", rule="alarm",
                  floor=0.05, blocking=False, rationale="a loss on one task hides in the pool"),
        Criterion(name="guard flips", measure="guard_flips", groups="format", rule="alarm",
                  floor=0.02, rationale="broken JSON breaks callers"),
        Criterion(name="divergence", measure="divergence", margin=1e-4, rationale="numerics"),
        Criterion(name="speed", measure="time_ratio", margin=0.95,
                  rationale="below 5% the change does not pay for its risk"),
    )  # fmt: skip


def make_verdict(criterion: str, comparison: Comparison, outcome: Outcome, reason: str) -> Verdict:
    return Verdict(
        criterion=criterion,
        group=comparison.group,
        outcome=outcome,
        blocking=criterion != "task alarm",
        reason=reason,
        comparison=comparison,
        half="gain" if criterion == "speed" else "content",
    )


def make_provenance(kind: str, options: dict[str, object]) -> dict[str, object]:
    return {
        "decoder": {"kind": kind, "options": options},
        "model": {"id": "embedded:smollm2-135m-instruct", "dtype": "float32", "device": "cpu",
                  "sha256": "9f2c" * 16},
        "versions": {"torch": "2.13.0", "transformers": "5.24.0", "gate": "0.1.0"},
        "evalset": {"name": "smoke", "sha256": "ab12" * 16},
        "n_requests": 60,
    }  # fmt: skip

"""Decisions to render: one factory per situation a release manager meets."""

from __future__ import annotations

import msgspec

from gate.records import (
    Comparison,
    Criterion,
    Decision,
    Estimate,
    Fork,
    Outcome,
    TokenView,
    Verdict,
    Waiver,
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
        unit="share",
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


def make_decision(**changes: object) -> Decision:
    """Return a passing content decision with ``changes`` applied."""
    tasks = (make_task("all", -0.003, 0.012, 180), make_task("gsm8k", -0.02, 0.06, 60),
             make_task("ifeval", 0.01, 0.05, 60))  # fmt: skip
    ratios = (make_ratio("all", 0.71), make_ratio("code", 0.48), make_ratio("short_answer", 1.12))
    shares = (make_acceptance("code", 300), make_acceptance("short_answer", 0))
    certificate, exercised, guard = make_certificate(), make_exercised(), make_guard()
    passed = Outcome.PASS
    verdicts = (
        make_verdict("token certificate", certificate, passed,
                     "No defect in 3,812 token decisions (rate below 0.08%)."),
        make_verdict("exercised", exercised, passed, "520 guesses were accepted in 41 requests."),
        make_verdict("task accuracy", tasks[0], passed, "Any loss is below 1.5 points."),
        make_verdict("task alarm", tasks[1], Outcome.NOT_JUDGED,
                     "60 documents cannot reach the alarm's share of alpha."),
        make_verdict("guard flips", guard, passed, "No answer changed its format."),
        make_verdict("divergence", make_divergence(), passed, "The laws agree to 0.000002 nats."),
        make_verdict("speed", ratios[0], Outcome.NOT_JUDGED, "A CPU cannot judge the gain."),
    )  # fmt: skip
    decision = Decision(
        run_id="2026-11-05T10-22-31-lookahead",
        outcome=passed,
        content=passed,
        gain=Outcome.NOT_JUDGED,
        claim="lossless",
        purpose="content",
        reason="3,812 token decisions in 60 requests, no defect; 0 of 60 scores changed; "
        "gain not judged on a CPU.",
        verdicts=verdicts,
        criteria=make_criteria(),
        comparisons=(certificate, exercised, *tasks, guard, make_guard("refusal"),
                     make_divergence(), *ratios, *shares),
        forks=(make_fork("tie", 0), make_fork("tie", 1)),
        notes=("Judged in float32 on a CPU; the serving precision was not judged.",),
        provenance={
            "baseline": make_provenance("autoregressive", {}),
            "candidate": make_provenance("lookahead", {"window": 5, "ngram": 4, "guesses": 5}),
        },
        surface={"hash": "sha256:" + "cd" * 32, "weights": "sha256:" + "9f2c" * 16},
        created_at="2026-11-05T10:22:31Z",
        expires_at="2026-12-05T10:22:31Z",
    )  # fmt: skip
    return msgspec.structs.replace(decision, **changes)


def make_pass() -> Decision:
    return make_decision()


def make_fail() -> Decision:
    """Return a release decision that fails on tokens and format while it is fast."""
    old = make_decision()
    defects, guard = make_certificate(defects=7), make_guard(flipped=3)
    verdicts = (
        make_verdict("token certificate", defects, Outcome.FAIL,
                     "7 of 3,812 tokens are not what the model would have chosen."),
        *old.verdicts[1:4],
        make_verdict("guard flips", guard, Outcome.FAIL, "3 of 60 answers lost their JSON format."),
        *old.verdicts[5:6],
        make_verdict("speed", make_ratio("all", 0.71), Outcome.PASS,
                     "The mix takes 29% less time per request."),
    )  # fmt: skip
    others = [one for one in old.comparisons if one.group != "format"]
    return msgspec.structs.replace(
        old,
        outcome=Outcome.FAIL,
        content=Outcome.FAIL,
        gain=Outcome.PASS,
        purpose="release",
        reason="7 of 3,812 tokens are not the model's own, and 3 answers lost their format, "
        "while requests got 29% faster.",
        verdicts=verdicts,
        comparisons=(defects, guard, *others[1:]),
        forks=(make_fork("tie", 0), *(make_fork("defect", i) for i in range(1, 8))),
        waivers=(Waiver(criterion="task alarm", reason="known noisy", who="A. Roe",
                        until="2026-12-01"),),
        earlier_runs=2,
    )  # fmt: skip


def make_inconclusive() -> Decision:
    old = make_decision()
    wide = make_task("all", -0.03, 0.12, 24)
    verdict = make_verdict("task accuracy", wide, Outcome.INCONCLUSIVE,
                           "The loss may reach 15 points; 140 documents would decide.")  # fmt: skip
    return msgspec.structs.replace(
        old,
        outcome=Outcome.INCONCLUSIVE,
        content=Outcome.INCONCLUSIVE,
        reason="24 documents cannot tell a loss of 15 points from none; 140 would decide.",
        verdicts=(*old.verdicts[:2], verdict, *old.verdicts[3:]),
    )


def make_error() -> Decision:
    """Return the decision that a run writes first: nothing was judged yet."""
    return Decision(
        outcome=Outcome.ERROR,
        content=Outcome.ERROR,
        gain=Outcome.NOT_JUDGED,
        claim="lossless",
        purpose="release",
        reason="The run did not finish: the candidate's server stopped answering.",
        created_at="2026-11-05T10:22:31Z",
        expires_at="2026-11-05T10:22:31Z",
    )


def make_baseline_defect() -> Decision:
    """Return an ERROR because the baseline itself fails the certificate."""
    old = make_decision()
    certificate = make_certificate(baseline=12)
    verdict = make_verdict("token certificate", certificate, Outcome.ERROR,
                           "12 tokens of the baseline are not the model's own.")  # fmt: skip
    return msgspec.structs.replace(
        old,
        outcome=Outcome.ERROR,
        content=Outcome.ERROR,
        reason="The baseline is not what it says: 12 of its tokens are not the model's own.",
        verdicts=(verdict, *old.verdicts[1:]),
        comparisons=(certificate, *old.comparisons[1:]),
    )


FACTORIES = (make_pass, make_fail, make_inconclusive, make_error, make_baseline_defect)

"""Decisions to render: one factory per situation a release manager meets."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gate.records import (
    Alternative,
    Comparison,
    Decision,
    Loosened,
    Outcome,
    TokenView,
    Waiver,
)
from tests.report.parts import (
    CLASSES,
    make_acceptance,
    make_certificate,
    make_criteria,
    make_divergence,
    make_estimate,
    make_exercised,
    make_fork,
    make_guard,
    make_provenance,
    make_ratio,
    make_task,
    make_verdict,
)


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
        earlier_outcomes={"FAIL": 1, "INCONCLUSIVE": 1},
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


def make_full() -> Decision:
    """Return a failing decision that has something in every section and every drawing."""
    rows = [[8 * k, 60, 1e-7 * (k + 1), 1e-6 * (k + 1)] for k in range(20)]
    ladder: dict[str, object] = {"p50": 1e-8, "p90": 1e-7, "p99": 2e-6, "max": 4e-4}
    along = {**ladder, "along": rows, "baseline_along": rows, "baseline_ladder": ladder}
    places: dict[str, object] = {"by_position": [[100, 80], [100, 40], [60, 9]]}
    times = {
        "baseline": [0.1 * k for k in range(1, 30)],
        "candidate": [0.07 * k for k in range(1, 30)],
    }
    fork = msgspec.structs.replace(
        make_fork("unexplained", 9),
        tokens_baseline=(" twelve", " red", " apples", "."),
        tokens_candidate=(" eleven", " green", " apples", "."),
        alternatives=(Alternative(token=TokenView(token_id=1, text=" twelve"), behind_nat=0.0),),
    )
    extra = (
        _add_detail(make_divergence(), along),
        *(_add_detail(make_acceptance(name, 90), places) for name in ("all", *CLASSES)),
        *(_add_detail(make_ratio(name, 0.8), {"quantiles": times}) for name in ("all", *CLASSES)),
        Comparison(measure="error_rate", unit="share", baseline=0.0, candidate=0.02, n_dropped=2,
                   drop_reasons={"candidate failed": 2}),
        Comparison(measure="conformance", unit="count", candidate=1, difference=make_estimate(),
                   detail={"failures": [{"request_id": "stop-1", "arm": "candidate", "what": "stop",
                                         "expected": "ends at END", "came": "went on"}]}),
    )  # fmt: skip
    device: dict[str, object] = {"traffic_share": 0.5, "step_cost_ratio": [1.3, 1.2, 1.4],
                                 "tokens_per_step": 1.8, "wasted_share": 0.4}  # fmt: skip
    extra += tuple(
        Comparison(measure="device_seconds", group=name, unit="ratio", baseline=1.1, candidate=0.8,
                   difference=make_estimate(0.73, 0.6, 0.9), detail=device)
        for name in ("all", *CLASSES)
    )  # fmt: skip
    old = make_fail()
    rest = [one for one in old.comparisons if one.measure not in {one.measure for one in extra}]
    fault = {"id": "relaxed acceptance", "strength": 0.8, "result": "caught", "by": "flip rate"}
    return msgspec.structs.replace(
        old,
        comparisons=(*rest, *extra),
        forks=(*old.forks, fork),
        sensitivity=(fault,),
        surface={"hash": "sha256:" + "cd" * 32},
        loosened=(Loosened(criterion="task accuracy", key="margin", approved="0.02", now="0.1"),),
    )


def _add_detail(comparison: Comparison, detail: Mapping[str, object]) -> Comparison:
    return msgspec.structs.replace(comparison, detail={**comparison.detail, **detail})


def make_large() -> Decision:
    """Return the decision of 5,000 requests in ten classes: 812 forks, of which it holds 500."""
    full, words = make_full(), "the quick brown fox jumps over the lazy dog and runs away " * 40
    names = [f"class_{k}" for k in range(10)]
    tokens = tuple(f" {word}" for word in words.split()[:25])
    fork = msgspec.structs.replace(
        make_fork("tie"), prompt=words[:2000], before=words[:140], tokens_baseline=tokens,
        tokens_candidate=tokens[::-1], alternatives=full.forks[-1].alternatives * 5)  # fmt: skip
    forks = tuple(
        msgspec.structs.replace(fork, request_id=f"task/{k}", request_class=names[k % 10])
        for k in range(500)
    )
    flips = [{"request_id": f"r{k}", "baseline_label": "ok", "candidate_label": "loop",
              "baseline_text": words, "candidate_text": words} for k in range(50)]  # fmt: skip
    more = (
        Comparison(measure="forks", unit="count", candidate=812, detail={"n_pairs": 5000}),
        *(make_task(name, -0.001, 0.01, 500) for name in names),
        *(make_ratio(name, 0.8) for name in names),
        *(Comparison(measure="guard_flips", group=name, unit="share", detail={"flipped": flips})
          for name in ("degeneration", "length", "refusal")),
    )  # fmt: skip
    return msgspec.structs.replace(full, forks=forks, comparisons=(*full.comparisons, *more))

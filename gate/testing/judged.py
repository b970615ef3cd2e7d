"""What a verdict and a decision mean for a test run, apart from pytest.

In mode ``fail`` this is what the exit code and JUnit say: error, failure, skipped or passed.
The other modes change INCONCLUSIVE alone.
"""

from __future__ import annotations

import datetime as dt
from typing import Literal, NamedTuple

from gate.export.outcomes import stops_release, write_waived
from gate.export.text import to_block
from gate.export.validity import explain_expiry
from gate.records import Decision, Outcome, Verdict

Mode = Literal["fail", "warn", "skip"]
Status = Literal["pass", "warn", "skip", "fail", "error"]
_STOPPING: dict[Outcome, Status] = {Outcome.ERROR: "error", Outcome.FAIL: "fail"}


class Judged(NamedTuple):
    """How an item ends, and what it says."""

    status: Status
    message: str


def judge_verdict(verdict: Verdict, mode: Mode) -> Judged:
    """Return how a verdict's item ends: what does not stop the release never fails.

    A waived one says who waived it, and is skipped.
    """
    waived = write_waived(verdict)
    message = f"{verdict.outcome}: {to_block(verdict.reason)}"
    message += f" ({to_block(waived)})" if waived else ""
    if not stops_release(verdict):
        return Judged("pass" if verdict.outcome == Outcome.PASS else "skip", message)
    return Judged(_STOPPING.get(Outcome(verdict.outcome), mode), message)


def judge_decision(decision: Decision, mode: Mode, now: dt.datetime) -> Judged:
    """Return how the decision's item ends: only a standing PASS with evidence passes.

    ``mode`` is for INCONCLUSIVE only: not for a decision that expired, holds no evidence or
    contradicts its own verdicts.
    """
    message = f"{decision.outcome}: {to_block(decision.reason)}"
    if Outcome.ERROR in {decision.outcome, *_list_stopping(decision)}:
        return Judged("error", message)
    problem = find_problem(decision, now)
    if problem:
        return Judged("fail", f"{problem} ({message})")
    if decision.outcome == Outcome.PASS:
        return Judged("pass", message)
    return Judged(mode if decision.outcome == Outcome.INCONCLUSIVE else "fail", message)


def find_problem(decision: Decision, now: dt.datetime) -> str | None:
    """Return why a decision cannot be taken at its word, or None."""
    stopping = _list_stopping(decision)
    expired = explain_expiry(decision, now)
    if expired:
        return expired
    if decision.outcome == Outcome.PASS and not any(map(_is_evidence, decision.verdicts)):
        return "no evidence: it says PASS, and no blocking criterion passed"
    if decision.outcome in (Outcome.PASS, Outcome.INCONCLUSIVE) and Outcome.FAIL in stopping:
        return f"it says {decision.outcome}, and a blocking verdict says FAIL"
    if decision.outcome == Outcome.PASS and stopping:
        return "it says PASS, and a blocking verdict says INCONCLUSIVE"
    return None


def _list_stopping(decision: Decision) -> set[Outcome]:
    return {Outcome(v.outcome) for v in decision.verdicts if stops_release(v)}


def _is_evidence(verdict: Verdict) -> bool:
    return verdict.blocking and verdict.outcome == Outcome.PASS

"""Decisions and verdicts written by hand, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

from gate.records import Decision, Outcome, Verdict


def make_verdict(outcome: str, criterion: str = "token certificate", **changes: Any) -> Verdict:
    """Return a verdict; blocking unless said otherwise."""
    fields: dict[str, Any] = {
        "group": "all",
        "blocking": True,
        "reason": f"{criterion} came to {outcome}",
    }
    return Verdict(criterion=criterion, outcome=Outcome(outcome), **(fields | changes))


def make_decision(outcome: str, *verdicts: Verdict, **changes: Any) -> Decision:
    """Return a decision that stands for a long time."""
    fields: dict[str, Any] = {
        "content": Outcome(outcome),
        "gain": Outcome.NOT_JUDGED,
        "claim": "lossless",
        "purpose": "content",
        "reason": f"the decision is {outcome}",
        "created_at": "2026-11-30T00:00:00Z",
        "expires_at": "2999-01-01T00:00:00Z",
    }
    return Decision(outcome=Outcome(outcome), verdicts=verdicts, **(fields | changes))

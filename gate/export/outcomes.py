"""What every surface needs to say about outcomes, so that no two of them disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gate.errors import RunError
from gate.records import Outcome

if TYPE_CHECKING:
    from gate.records import Decision, Fork, Verdict

# The order in which a reader needs them: what stops the release comes first.
SEVERITY = (
    Outcome.ERROR,
    Outcome.FAIL,
    Outcome.INCONCLUSIVE,
    Outcome.PASS,
    Outcome.NOT_JUDGED,
)

FORK_KINDS = ("defect", "unexplained", "unscored", "tie", "exact")  # gravest first


def read_outcome(value: str) -> Outcome:
    """Return ``value`` as an Outcome.

    Errors: RunError for any other word. An outcome nobody knows is never shown as a default.
    """
    try:
        return Outcome(value)
    except ValueError:
        allowed = ", ".join(Outcome)
        message = f"outcome {value!r} is unknown (allowed: {allowed}); run the gate again"
        raise RunError(message) from None


def check_outcomes(decision: Decision) -> None:
    """Raise RunError where the decision or one of its verdicts has an unknown outcome."""
    for value in (decision.outcome, decision.content, decision.gain):
        read_outcome(value)
    for verdict in decision.verdicts:
        read_outcome(verdict.outcome)


def sort_verdicts(verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Return the verdicts, worst first, blocking before non-blocking, else in their order."""
    return tuple(sorted(verdicts, key=_rank))


def sort_forks(forks: tuple[Fork, ...]) -> tuple[Fork, ...]:
    """Return the forks, gravest kind first (an unknown kind counts as grave), else in order."""
    ranks = {kind: rank for rank, kind in enumerate(FORK_KINDS)}
    return tuple(sorted(forks, key=lambda fork: ranks.get(fork.kind, 0)))


def stops_release(verdict: Verdict) -> bool:
    """Tell whether this verdict alone keeps the decision from PASS. An ERROR cannot be waived."""
    outcome = read_outcome(verdict.outcome)
    waivable = outcome in {Outcome.FAIL, Outcome.INCONCLUSIVE}
    stops = outcome == Outcome.ERROR or (waivable and verdict.waiver is None)
    return verdict.blocking and stops


def write_waived(verdict: Verdict) -> str:
    """Return who waived a verdict, until when and why; empty where nobody did."""
    waiver = verdict.waiver
    if waiver is None:
        return ""
    return f"waived until {waiver.until} by {waiver.who}: {waiver.reason}"


def _rank(verdict: Verdict) -> tuple[bool, int]:
    return (not stops_release(verdict), SEVERITY.index(read_outcome(verdict.outcome)))

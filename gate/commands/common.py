"""What several commands share."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Callable
from pathlib import Path

from gate.errors import UsageError
from gate.export.text import to_line
from gate.records import Decision, Outcome

REDACTED = "redacted"
REASON_CHARACTERS = 2000
EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 3, Outcome.INCONCLUSIVE: 4, Outcome.ERROR: 5}


def reports_folder(arguments: argparse.Namespace) -> Path:
    """Where runs go."""
    out: Path | None = arguments.out
    return out if out is not None else arguments.config.resolve().parent / "reports"


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add --quiet."""
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def tell_decision(decision: Decision) -> str:
    """Return the decision as a terminal shows it: one line, nothing hidden, no control sequence."""
    return f"{decision.outcome}: {to_line(decision.reason, REASON_CHARACTERS)}"


def decide_into(out: Path, work: Callable[[], Decision]) -> int:
    """Let ``work`` reach a decision in ``out``, tell it, and return its exit code.

    reports/latest goes first: whatever happens next, yesterday's verdict is not today's.
    """
    from gate.store import remove_latest  # noqa: PLC0415 - commands import late

    try:
        remove_latest(out)
        decision = work()
    except OSError as error:
        msg = f"{out}: cannot be written ({error.strerror}); name another folder with --out"
        raise UsageError(msg) from error
    print(tell_decision(decision))
    print(f"report: {out / decision.run_id / 'report.html'}")
    return EXIT_CODES[decision.outcome]


def add_redact(parser: argparse.ArgumentParser) -> None:
    """Add --redact."""
    parser.add_argument(
        "--redact",
        action="store_true",
        help="write a copy without prompts, outputs and messages, in the run's folder redacted/",
    )


def now() -> dt.datetime:
    """Return the time in UTC."""
    return dt.datetime.now(dt.UTC)

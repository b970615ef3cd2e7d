"""What several commands share."""

from __future__ import annotations

import argparse
import datetime as dt
from pathlib import Path

from gate.records import Outcome

REDACTED = "redacted"
EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 3, Outcome.INCONCLUSIVE: 4, Outcome.ERROR: 5}


def reports_folder(arguments: argparse.Namespace) -> Path:
    """Where runs go."""
    out: Path | None = arguments.out
    return out if out is not None else arguments.config.resolve().parent / "reports"


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add --quiet."""
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


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

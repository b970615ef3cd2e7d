"""What several commands share."""

from __future__ import annotations

import argparse
import datetime as dt
from pathlib import Path

from gate.records import Outcome

EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 3, Outcome.INCONCLUSIVE: 4, Outcome.ERROR: 5}


def reports_folder(arguments: argparse.Namespace) -> Path:
    """Where runs go."""
    out: Path | None = arguments.out
    return out if out is not None else arguments.config.resolve().parent / "reports"


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add --quiet."""
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def now() -> dt.datetime:
    """Return the time in UTC."""
    return dt.datetime.now(dt.UTC)

"""``gate report``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gate.commands.common import REDACTED, add_redact, now, tell_decision
from gate.errors import UsageError
from gate.export.text import to_line

SUMMARY = "render report, summary and JUnit again from a decision"
EXPIRED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("run", type=Path, help="a run's folder, for example reports/latest")
    add_redact(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Render again, without models. Returns 3 for a decision that no longer stands."""
    from gate.export.validity import explain_expiry  # noqa: PLC0415
    from gate.pipeline import render, render_redacted  # noqa: PLC0415
    from gate.records import Outcome  # noqa: PLC0415
    from gate.release import check_file  # noqa: PLC0415
    from gate.store import read_decision  # noqa: PLC0415

    decision = read_decision(arguments.run)
    if decision.outcome is Outcome.PASS:
        check_file(decision)  # a PASS without evidence is no page of ours
    expired = explain_expiry(decision, now()) or ""
    folder: Path = arguments.run if arguments.run.is_dir() else arguments.run.parent
    if arguments.redact:
        target = arguments.out or folder / REDACTED
        if target.resolve() == folder.resolve():
            msg = f"--out {target}: the copy would replace the run itself; name another folder"
            raise UsageError(msg)
        render_redacted(target, decision, expired)
    else:
        target = arguments.out or folder
        render(target, decision, expired)
    print(tell_decision(decision))
    print(f"report: {to_line(str(target / 'report.html'))}")
    if expired:
        print(f"gate: this decision no longer stands: {to_line(expired)}", file=sys.stderr)
    return EXPIRED if expired else 0

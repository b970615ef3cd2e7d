"""``gate run``."""

from __future__ import annotations

import argparse
from pathlib import Path

from gate.commands.common import (
    REDACTED,
    add_quiet,
    add_redact,
    decide_into,
    now,
    reports_folder,
)
from gate.records import Decision

SUMMARY = "run the gate and write a decision and a report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    add_quiet(parser)
    add_redact(parser)
    parser.add_argument(
        "--no-timing",
        action="store_true",
        help="send no timing prompts, where others use the machine too; the gain is not measured",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run the gate: refused input removes reports/latest, so that no older verdict stands."""
    out = reports_folder(arguments)
    return decide_into(out, lambda: _run(arguments, out))


def _run(arguments: argparse.Namespace, out: Path) -> Decision:
    from gate.config import load_project, without_timing  # noqa: PLC0415
    from gate.pipeline import render_redacted, run  # noqa: PLC0415
    from gate.progress import Progress  # noqa: PLC0415

    project = load_project(arguments.config)
    if arguments.no_timing:
        project = without_timing(project)
    decision = run(project, out, Progress(is_quiet=arguments.quiet), now)
    if arguments.redact:
        render_redacted(out / decision.run_id / REDACTED, decision)
    return decision

"""``gate run``."""

from __future__ import annotations

import argparse

from gate.commands.common import (
    EXIT_CODES,
    REDACTED,
    add_quiet,
    add_redact,
    now,
    reports_folder,
    tell_decision,
)
from gate.errors import UsageError

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
    from gate.config import load_project, without_timing  # noqa: PLC0415
    from gate.pipeline import render_redacted, run  # noqa: PLC0415
    from gate.progress import Progress  # noqa: PLC0415
    from gate.store import remove_latest  # noqa: PLC0415

    out = reports_folder(arguments)
    try:
        remove_latest(out)  # whatever happens next, yesterday's verdict is not today's
        project = load_project(arguments.config)
        if arguments.no_timing:
            project = without_timing(project)
        decision = run(project, out, Progress(is_quiet=arguments.quiet), now)
        if arguments.redact:
            render_redacted(out / decision.run_id / REDACTED, decision)
    except OSError as error:
        msg = f"{out}: cannot be written ({error.strerror}); name another folder with --out"
        raise UsageError(msg) from error
    print(tell_decision(decision))
    print(f"report: {out / decision.run_id / 'report.html'}")
    return EXIT_CODES[decision.outcome]

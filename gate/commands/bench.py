"""``gate bench``."""

from __future__ import annotations

import argparse

from gate.commands.common import EXIT_CODES, add_quiet, now, reports_folder, tell_decision
from gate.errors import UsageError

SUMMARY = "time both arms only, judge the gain, and join an earlier content run of the same surface"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    add_quiet(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the serving part; refused input removes reports/latest, as 'gate run' does."""
    from gate.bench import bench  # noqa: PLC0415
    from gate.config import load_project  # noqa: PLC0415
    from gate.progress import Progress  # noqa: PLC0415
    from gate.store import remove_latest  # noqa: PLC0415

    out = reports_folder(arguments)
    try:
        remove_latest(out)
        decision = bench(
            load_project(arguments.config), out, Progress(is_quiet=arguments.quiet), now
        )
    except OSError as error:
        msg = f"{out}: cannot be written ({error.strerror}); name another folder with --out"
        raise UsageError(msg) from error
    print(tell_decision(decision))
    print(f"report: {out / decision.run_id / 'report.html'}")
    return EXIT_CODES[decision.outcome]

"""``gate bench``."""

from __future__ import annotations

import argparse

from gate.commands.common import add_quiet, decide_into, now, reports_folder

SUMMARY = "time both arms only, judge the gain, and join an earlier content run of the same surface"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    add_quiet(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the serving part; refused input removes reports/latest, as 'gate run' does."""
    from gate.bench import bench  # noqa: PLC0415
    from gate.config import load_project  # noqa: PLC0415
    from gate.progress import Progress  # noqa: PLC0415

    out, progress = reports_folder(arguments), Progress(is_quiet=arguments.quiet)
    return decide_into(out, lambda: bench(load_project(arguments.config), out, progress, now))

"""``gate index``."""

from __future__ import annotations

import argparse

from gate.commands.common import now, reports_folder
from gate.errors import UsageError
from gate.export.text import to_line

SUMMARY = "write reports/index.html: all runs, their trend, and two of them compared"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar="RUN",
        help="the two runs to compare, by the names of their folders (default: the newest two)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Write the index of the runs that there are, without models."""
    from gate.report.index import render_index  # noqa: PLC0415
    from gate.report.runs import read_runs  # noqa: PLC0415
    from gate.store import write_atomically  # noqa: PLC0415

    reports = reports_folder(arguments)
    if not reports.is_dir():
        msg = f"{reports}: no such folder; make a run with 'gate run', or name another with --out"
        raise UsageError(msg)
    runs = read_runs(reports)
    page = render_index(runs, now(), tuple(arguments.compare or ()))
    write_atomically(reports / "index.html", page)
    print(f"index: {to_line(str(reports / 'index.html'))}, {len(runs)} runs")
    return 0

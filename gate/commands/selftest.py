"""``gate selftest``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gate.commands.common import EXIT_CODES, add_quiet, now, reports_folder
from gate.errors import UsageError
from gate.records import Outcome

SUMMARY = "run the fault catalogue and the lossless controls"

MOST_JOBS = 4
"""Each holds the model."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows as JSON")
    parser.add_argument(
        "--quick", action="store_true", help="each fault on the requests of its kind only"
    )
    parser.add_argument(
        "--only", default="", metavar="ID,...", help="these faults and controls only"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=0,
        metavar="N",
        help="processes that share the catalogue (default: one per core, at most 4)",
    )
    add_quiet(parser)
    parser.add_argument("--list", action="store_true", help="name every fault and control")


def execute(arguments: argparse.Namespace) -> int:
    """Return 0 when every fault was detected and no control flagged, else 3."""
    from gate import selftest  # noqa: PLC0415
    from gate.config import load_project  # noqa: PLC0415
    from gate.progress import Progress  # noqa: PLC0415

    if arguments.list:
        print("\n".join(selftest.describe_catalogue()))
        return 0
    only = tuple(name for name in arguments.only.split(",") if name)
    if arguments.jobs < 0:
        msg = f"--jobs {arguments.jobs}; 1 or more processes, or 0 for one per core"
        raise UsageError(msg)
    jobs = arguments.jobs or min(MOST_JOBS, os.cpu_count() or 1)
    options = selftest.Options(quick=arguments.quick, only=only, jobs=jobs)
    project, progress = load_project(arguments.config), Progress(is_quiet=arguments.quiet)
    found = selftest.run_selftest(project, reports_folder(arguments), progress, now, options)
    print("\n".join(selftest.describe(found)))
    if arguments.json:
        selftest.write_json(found, arguments.json)
    is_fine = not (found.missed or found.flagged)
    return EXIT_CODES[Outcome.PASS if is_fine else Outcome.FAIL]

"""``gate surface``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

SUMMARY = "write what would be released, for 'gate check', without running anything"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where to write it (default: standard output)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Describe the candidate of a configuration on this machine."""
    import msgspec  # noqa: PLC0415

    from gate.config import load_project  # noqa: PLC0415
    from gate.export.text import to_line  # noqa: PLC0415
    from gate.plan import make_plan  # noqa: PLC0415
    from gate.progress import Progress  # noqa: PLC0415
    from gate.store import encode  # noqa: PLC0415
    from gate.surface import describe_surface, write_surface  # noqa: PLC0415

    surface = describe_surface(make_plan(load_project(arguments.config), Progress()))
    if arguments.out is None:
        sys.stdout.write(msgspec.json.format(encode(surface), indent=1).decode())
    else:
        write_surface(arguments.out, surface)
        print(to_line(f"surface {surface.hash}: {arguments.out}", 2000))
    return 0

"""``gate check``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gate.commands.common import now

SUMMARY = "tell a deploy step whether a decision covers what it is about to deploy"
REFUSED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument(
        "--decision", type=Path, required=True, metavar="FILE", help="a run's decision.json"
    )
    parser.add_argument(
        "--surface",
        type=Path,
        required=True,
        metavar="FILE",
        help="what 'gate surface' wrote where it is deployed",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Return 0 where the decision allows it, 3 where it does not; files that are bad raise."""
    from gate.export.text import to_line  # noqa: PLC0415
    from gate.release import list_refusals  # noqa: PLC0415
    from gate.store import read_decision  # noqa: PLC0415
    from gate.surface import read_surface  # noqa: PLC0415

    decision, surface = read_decision(arguments.decision), read_surface(arguments.surface)
    refusals = list_refusals(decision, surface, now())
    for refusal in refusals:
        print(f"gate: refused: {to_line(refusal, 2000)}", file=sys.stderr)
    if refusals:
        return REFUSED
    print(f"{decision.outcome}: {to_line(decision.reason, 2000)}")
    print(f"surface {surface.hash} may be deployed until {decision.expires_at}")
    return 0

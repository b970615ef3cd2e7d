"""``gate approve``."""

from __future__ import annotations

import argparse
from pathlib import Path

from gate.commands.common import now

SUMMARY = "make a passed run's baseline the one that later runs are held to"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("run", type=Path, help="a run's folder, for example reports/latest")
    parser.add_argument(
        "--name",
        default="",
        metavar="NAME",
        help="folder under baselines/ (default: the one gate.toml names, else the evalset's name)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Write baselines/NAME; refused under CI and for everything but a complete PASS."""
    from gate.approval import approve  # noqa: PLC0415
    from gate.config import load_project  # noqa: PLC0415

    project = load_project(arguments.config)
    run = project.config.run
    name = arguments.name or run.approved or Path(project.config.evalset.rpartition(":")[2]).name
    change = approve(project, arguments.run, name, now())
    print(f"baselines/{name}: {change}")
    if run.approved != name:
        print(f'name it in {arguments.config}, under [run]: approved = "{name}"')
    print("read the diff and commit it; the run itself stays what it was")
    return 0

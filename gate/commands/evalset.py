"""``gate evalset check`` and ``gate evalset add``."""

from __future__ import annotations

import argparse
from pathlib import Path

from gate.records import Criterion

SUMMARY = "check an evalset before a run, or add documents to it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="say what is wrong, and what its size can show")
    check.add_argument(
        "folder", type=Path, nargs="?", help="the evalset (default: that of gate.toml)"
    )
    add = actions.add_parser("add", help="append documents to a task, none of them twice")
    check.add_argument(
        "--config",
        type=Path,
        default=argparse.SUPPRESS,
        metavar="FILE",
        help="whose margins it has to decide (default: gate.toml)",
    )
    add.add_argument("folder", type=Path, help="the evalset")
    add.add_argument("task", help="one of its tasks")
    add.add_argument("file", type=Path, help="documents as JSON lines: id, prompt, and so on")


def execute(arguments: argparse.Namespace) -> int:
    """Return 0; what is refused raises."""
    return _add(arguments) if arguments.action == "add" else _check(arguments)


def _check(arguments: argparse.Namespace) -> int:
    from gate.evalset_checks import examine_evalset  # noqa: PLC0415
    from gate.export.text import to_line  # noqa: PLC0415

    folder, criteria = _find(arguments)
    for note in examine_evalset(folder, criteria):
        print(f"{'ok  ' if note.is_fine else 'NOTE'} {to_line(note.message)}")
    return 0


def _find(arguments: argparse.Namespace) -> tuple[Path, list[Criterion]]:
    """Return the folder, and the criteria of gate.toml where it is about this folder."""
    from gate.config import load_project  # noqa: PLC0415
    from gate.defaults import default_criteria  # noqa: PLC0415
    from gate.evalset import find_evalset  # noqa: PLC0415
    from gate.own_criteria import merge_criteria  # noqa: PLC0415

    folder: Path | None = arguments.folder
    if folder is not None and not arguments.config.is_file():
        return folder, []
    project = load_project(arguments.config)
    config = project.config
    configured = find_evalset(project, "evalset", config.evalset)
    if folder is not None and folder.resolve() != configured.resolve():
        return folder, []
    defaults = default_criteria(
        config.claim,
        config.purpose,
        config.model.dtype,
        config.run.max_dropped,
        own_baseline=False,  # those of the baseline are about tokens
    )
    return configured, merge_criteria(defaults, config.criteria, config.claim)


def _add(arguments: argparse.Namespace) -> int:
    from gate.evalset_checks import add_documents  # noqa: PLC0415

    n_added, n_now = add_documents(arguments.folder, arguments.task, arguments.file)
    print(f"added {n_added} documents to {arguments.task}, which has {n_now} now")
    print("this is another evalset now: a decision on the old one says nothing about it")
    return 0

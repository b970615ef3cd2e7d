"""``gate baseline``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gate.errors import UsageError

if TYPE_CHECKING:
    from gate.config import Project

SUMMARY = "show, verify or prune the approved baselines"
WRONG = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument(
        "action",
        choices=("show", "verify", "prune"),
        help="list them; hold files to their hashes and gate.toml; remove those nothing names",
    )
    parser.add_argument("name", nargs="?", default="", help="one baseline (default: all)")
    parser.add_argument("--yes", action="store_true", help="prune: remove, instead of listing")


def execute(arguments: argparse.Namespace) -> int:
    """Return 0, or 3 where a baseline is broken, does not fit or is used by nothing."""
    from gate.baselines import list_names  # noqa: PLC0415
    from gate.config import load_project  # noqa: PLC0415

    project = load_project(arguments.config)
    known = list_names(project)
    if arguments.name and arguments.name not in known:
        msg = f"there is no baseline {arguments.name!r}; there are: {', '.join(known) or 'none'}"
        raise UsageError(msg)
    names = [arguments.name] if arguments.name else known
    if arguments.action == "prune":
        return _prune(project, names, is_sure=arguments.yes)
    if not names:
        print("no baseline was approved here (gate approve)")
    act = _show if arguments.action == "show" else _verify
    return max([act(project, name) for name in names], default=0)


def _show(project: Project, name: str) -> int:
    from gate.baselines import find_folder, list_unused, read_baseline  # noqa: PLC0415
    from gate.export.text import to_line  # noqa: PLC0415

    manifest = (found := read_baseline(find_folder(project, name))).manifest
    unused = " (used by no configuration)" if name in list_unused(project) else ""
    lines = [
        f"{name}{unused}: {len(found.outputs)} outputs of run {manifest.run_id}",
        *(f"  {key}: {value}" for key, value in manifest.identity.items() if key != "decoding"),
        f"  candidate: {manifest.candidate}",
        f"  machine: {manifest.machine}",
        *(
            f"  {key}: {tokens / forwards:.2f} tokens per forward"
            for key, (forwards, tokens) in manifest.by_class.items()
            if forwards
        ),
    ]
    print("\n".join(to_line(line) for line in lines))
    return 0


def _verify(project: Project, name: str) -> int:
    from gate.baselines import find_folder, list_unused, read_baseline  # noqa: PLC0415

    try:
        read_baseline(find_folder(project, name))
        if project.config.run.approved == name:
            _check_fit(project)
    except UsageError as error:
        print(f"{name}: {error}")
        return WRONG
    if name in list_unused(project):
        print(f"{name}: used by no configuration; name it in one, or: gate baseline prune")
        return WRONG
    print(f"{name}: whole")
    return 0


def _check_fit(project: Project) -> None:
    """Hold the baseline to what the configuration names now. Raises UsageError."""
    from gate.plan import make_plan  # noqa: PLC0415
    from gate.progress import Progress  # noqa: PLC0415

    make_plan(project, Progress(is_quiet=True))


def _prune(project: Project, names: list[str], *, is_sure: bool) -> int:
    from gate.baselines import list_unused, remove_baseline  # noqa: PLC0415

    unused = [name for name in list_unused(project) if name in names]
    for name in unused:
        if is_sure:
            remove_baseline(project, name)
        print(f"{name}: {'removed' if is_sure else 'used by no configuration; remove with --yes'}")
    if not unused:
        print("nothing to remove: every baseline is used")
    return 0

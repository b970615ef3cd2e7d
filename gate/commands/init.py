"""``gate init``."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "write gate.toml, an evalset and a nox session into a repository"
NEXT = """\
next: gate doctor      what would stop a run
      nox -s gate      the first gate; its report is reports/latest/report.html
then: put your own prompts into evalsets/mine, and write down your margin in gate.toml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument(
        "--decoder",
        choices=("lookahead", "python", "endpoint"),
        default="lookahead",
        help="what the candidate is: the gate's lookahead decoding, a decoder of your own in "
        "Python, or a server (default: lookahead)",
    )
    parser.add_argument("--github", action="store_true", help="write a GitHub Actions workflow too")
    parser.add_argument("--force", action="store_true", help="write over files that are there")
    parser.add_argument(
        "--install",
        metavar="REQUIREMENT",
        help="what the nox session installs (default: this gate, from where it was installed)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Write the files beside --config's place; print what a person has to paste."""
    from gate.init import find_requirement, plan_files, write_files  # noqa: PLC0415

    folder: Path = arguments.config.parent
    requirement = arguments.install or find_requirement(arguments.decoder)
    plan = plan_files(folder, arguments.decoder, requirement, with_github=arguments.github)
    for name in write_files(folder, plan, is_forced=arguments.force):
        print(f"wrote {folder / name}")
    if "file:" in requirement:
        print(
            f"the nox session installs {requirement}, a path of this machine; name what others "
            "can install with --install, or edit the session"
        )
    for name, text in plan.snippets.items():
        print(f"\nadd this session to {folder / name}, which was left as it is:\n\n{text}")
    print(NEXT)
    return 0

"""The command line: translates arguments into calls and outcomes into exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from gate import __version__
from gate.commands import COMMANDS
from gate.commands.common import EXIT_CODES, reports_folder
from gate.errors import GateError, UsageError
from gate.export.text import to_block
from gate.records import Outcome
from gate.supervise import supervise

DESCRIPTION = """\
Run the same prompts through a baseline and a candidate decoder and decide whether the
decoding change may ship.

  gate init                    write what a first gate needs into a repository
  gate run                     run the gate described by gate.toml
  gate report reports/latest   render a run's report again, without models
  gate index                   all runs on one page, and two of them compared
  gate surface, gate check     before a deployment: does the decision cover what is deployed?
  gate bench                   time both arms only, and join an earlier content run
  gate cost                    what a change costs or saves at a price, under other traffic
  gate evalset check           say what an evalset can show, before a run
  gate doctor                  check this machine and configuration before a run
"""
EPILOG = """\
exit codes of 'gate run': 0 PASS, 3 FAIL, 4 INCONCLUSIVE, 5 ERROR; 2 bad usage or configuration.
The decision is in reports/latest/decision.json, the page in reports/latest/report.html.
"""

WITHOUT_PROJECT = frozenset({"cost", "check"})
"""Commands that read what they are given, and no configuration."""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser with all subcommands."""
    parser = argparse.ArgumentParser(
        prog="gate",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"decoding-gate {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        _add(commands, name)
    return parser


def _add(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str) -> None:
    module = import_module(f"gate.commands.{name}")
    summary = module.SUMMARY
    command = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        conflict_handler="resolve",  # a command may mean something else by --out
    )
    if name not in WITHOUT_PROJECT:
        _add_common(command)
    module.add_arguments(command)
    command.set_defaults(function=module.execute)


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        type=Path,
        default=Path("gate.toml"),
        metavar="FILE",
        help="configuration (default: gate.toml)",
    )
    command.add_argument(
        "--out",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="where runs go (default: reports/ beside the configuration)",
    )


def enter(argv: Sequence[str] | None = None) -> int:
    """Run a command as a process does: a run of the gate stands under a parent that outlives it."""
    arguments = make_parser().parse_args(argv)
    if arguments.command == "run":
        return supervise(lambda: _execute(arguments), reports_folder(arguments))
    return _execute(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command in this process; returns its exit code. Expected failures are one sentence."""
    return _execute(make_parser().parse_args(argv))


def _execute(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.function(arguments)
    except GateError as error:
        print(f"gate: {to_block(str(error))}", file=sys.stderr)
        return error.exit_code
    except (OSError, RuntimeError) as error:  # a loop of links, text nested without end, ...
        told = to_block(f"{type(error).__name__}: {error}")
        print(f"gate: {told}; check the paths and files", file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt:
        print("gate: stopped; run the same command again to resume", file=sys.stderr)
        return EXIT_CODES[Outcome.ERROR]
    return code


if __name__ == "__main__":
    raise SystemExit(enter())

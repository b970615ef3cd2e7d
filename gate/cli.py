"""The command line: translates arguments into calls and outcomes into exit codes."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gate import __version__
from gate.errors import GateError, UsageError
from gate.records import Outcome

EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 3, Outcome.INCONCLUSIVE: 4, Outcome.ERROR: 5}
DESCRIPTION = """\
Run the same prompts through a baseline and a candidate decoder and decide whether the
decoding change may ship.

  gate run                     run the gate described by gate.toml
  gate report reports/latest   render a run's report again, without models
  gate doctor                  check this machine and configuration before a run
"""
EPILOG = """\
exit codes of 'gate run': 0 PASS, 3 FAIL, 4 INCONCLUSIVE, 5 ERROR; 2 bad usage or configuration.
The decision is in reports/latest/decision.json, the page in reports/latest/report.html.
"""


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
    run = _add(commands, "run", run_gate, "run the gate and write a decision and a report")
    run.add_argument("--quiet", action="store_true", help="no progress on standard error")
    report = _add(
        commands, "report", report_run, "render report, summary and JUnit again from a decision"
    )
    report.add_argument("run", type=Path, help="a run's folder, for example reports/latest")
    selftest = _add(
        commands, "selftest", run_selftest, "run the fault catalogue and the lossless controls"
    )
    selftest.add_argument("--json", type=Path, metavar="FILE", help="write all rows as JSON")
    selftest.add_argument(
        "--quick", action="store_true", help="each fault on the requests of its kind only"
    )
    selftest.add_argument(
        "--only", default="", metavar="ID,...", help="these faults and controls only"
    )
    selftest.add_argument("--quiet", action="store_true", help="no progress on standard error")
    selftest.add_argument("--list", action="store_true", help="name every fault and control")
    _add(commands, "doctor", doctor, "check this machine and configuration before a run")
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    function: Callable[[argparse.Namespace], int],
    summary: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + "."
    )
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
    command.set_defaults(function=function)
    return command


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. Expected failures are one sentence."""
    arguments = make_parser().parse_args(argv)
    try:
        code: int = arguments.function(arguments)
    except GateError as error:
        print(f"gate: {error}", file=sys.stderr)
        return error.exit_code
    except (OSError, RuntimeError) as error:  # a loop of links, text nested without end, ...
        print(f"gate: {type(error).__name__}: {error}; check the paths and files", file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt:
        print("gate: stopped; run the same command again to resume", file=sys.stderr)
        return EXIT_CODES[Outcome.ERROR]
    return code


def reports_folder(arguments: argparse.Namespace) -> Path:
    """Where runs go."""
    out: Path | None = arguments.out
    return out if out is not None else arguments.config.resolve().parent / "reports"


def run_gate(arguments: argparse.Namespace) -> int:
    """``gate run``: refused input removes reports/latest, so that no older verdict stands."""
    from gate.config import load_project  # noqa: PLC0415 - --help and --version stay fast
    from gate.pipeline import run  # noqa: PLC0415
    from gate.progress import Progress  # noqa: PLC0415
    from gate.store import remove_latest  # noqa: PLC0415

    out = reports_folder(arguments)
    try:
        remove_latest(out)  # whatever happens next, yesterday's verdict is not today's
        project = load_project(arguments.config)
        decision = run(project, out, Progress(is_quiet=arguments.quiet), _now)
    except OSError as error:
        msg = f"{out}: cannot be written ({error.strerror}); name another folder with --out"
        raise UsageError(msg) from error
    print(f"{decision.outcome}: {decision.reason}")
    print(f"report: {out / decision.run_id / 'report.html'}")
    return EXIT_CODES[decision.outcome]


def report_run(arguments: argparse.Namespace) -> int:
    """``gate report``: render again, without models."""
    from gate.pipeline import render  # noqa: PLC0415
    from gate.store import read_decision  # noqa: PLC0415

    decision = read_decision(arguments.run)
    folder: Path = arguments.run if arguments.run.is_dir() else arguments.run.parent
    target = folder if arguments.out is None else arguments.out
    render(target, decision)
    print(f"{decision.outcome}: {decision.reason}")
    print(f"report: {target / 'report.html'}")
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """``gate doctor``: what would stop a run, found in seconds."""
    from gate.doctor import examine  # noqa: PLC0415

    findings = examine(arguments.config)
    for finding in findings:
        print(f"{'ok  ' if finding.is_fine else 'FIX '} {finding.what}: {finding.message}")
    return 0 if all(finding.is_fine for finding in findings) else 2


def run_selftest(arguments: argparse.Namespace) -> int:
    """``gate selftest``: 0 when every fault was detected and no control flagged, else 3."""
    from gate import selftest  # noqa: PLC0415
    from gate.config import load_project  # noqa: PLC0415
    from gate.progress import Progress  # noqa: PLC0415

    if arguments.list:
        print("\n".join(selftest.describe_catalogue()))
        return 0
    only = tuple(name for name in arguments.only.split(",") if name)
    options = selftest.Options(quick=arguments.quick, only=only)
    project, progress = load_project(arguments.config), Progress(is_quiet=arguments.quiet)
    found = selftest.run_selftest(project, reports_folder(arguments), progress, _now, options)
    print("\n".join(selftest.describe(found)))
    if arguments.json:
        selftest.write_json(found, arguments.json)
    is_fine = not (found.missed or found.flagged)
    return EXIT_CODES[Outcome.PASS if is_fine else Outcome.FAIL]


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


if __name__ == "__main__":
    raise SystemExit(main())

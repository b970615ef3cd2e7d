"""Where the plugin's decision comes from: a file, a run of its own, or the xdist controller."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from gate.commands.common import EXIT_CODES
from gate.config import load_project
from gate.errors import GateError
from gate.export.outcomes import check_outcomes, sort_forks
from gate.records import SCHEMA, Decision
from gate.store import read_decision

WORKER_KEY = "gate_decision"
REPORT = "report: "
"""What ``gate run`` prints before the path of its report, on its last line."""
PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
START = (
    "import sys\n"
    f"if {PACKAGE_PARENT!r} not in sys.path: sys.path.insert(0, {PACKAGE_PARENT!r})\n"
    "from gate.cli import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)
"""Starts this gate, not another package of the name that lies in the working directory."""


def read_given(config: pytest.Config) -> Decision | None:
    """Return the decision of --gate-decision, or what the controller handed to this worker."""
    if hasattr(config, "workerinput"):
        handed: str | None = config.workerinput.get(WORKER_KEY)
        return None if handed is None else msgspec.json.decode(handed, type=Decision)
    return _read("--gate-decision", config.getoption("gate_decision"))


def encode(decision: Decision) -> str:
    """Return what the items need of a decision, as JSON."""
    slim = msgspec.structs.replace(
        decision,
        comparisons=(),
        criteria=(),
        provenance={},
        sensitivity=(),
        forks=sort_forks(decision.forks)[:1],
        verdicts=tuple(msgspec.structs.replace(v, comparison=None) for v in decision.verdicts),
    )
    return msgspec.json.encode(slim).decode()


def run(config: pytest.Config) -> Decision:
    """Run the gate in a process of its own, and read its decision.

    A process of its own, so that its model, threads and import path do not reach the tests, and
    what traces the tests does not slow it down. Raises pytest.UsageError where it is refused.
    """
    toml: Path = config.getoption("gate_config")
    arguments = ["run", "--config", str(toml)]
    if is_distributed(config):
        _refuse_release(toml)
        arguments.append("--no-timing")
    if config.get_verbosity() < 0:
        arguments.append("--quiet")
    code, last_line, report = _start(arguments)
    if report is None:
        _refuse(toml, last_line.removeprefix("gate: ") or f"the gate ended with exit code {code}")
    decision = _read("--gate-config", report.parent / "decision.json")
    if EXIT_CODES.get(decision.outcome) != code:
        _refuse(toml, f"exit code {code} and outcome {decision.outcome} disagree; run it by itself")
    return decision


def is_distributed(config: pytest.Config) -> bool:
    """Tell whether pytest-xdist runs the tests in workers."""
    return bool(config.getoption("tx", None)) and config.getoption("dist", "no") != "no"


def _refuse_release(toml: Path) -> None:
    try:
        purpose = load_project(toml).config.purpose
    except GateError as error:
        _refuse(toml, str(error))
    if purpose == "release":
        _refuse(
            toml,
            "purpose = 'release' times both arms, and under pytest-xdist others use the machine; "
            "run without -n, or run the gate by itself and name --gate-decision",
        )


def _refuse(toml: Path, problem: str) -> NoReturn:
    msg = f"--gate-config {toml}: {problem}"
    raise pytest.UsageError(msg)


def _start(arguments: list[str]) -> tuple[int, str, Path | None]:
    """Run ``gate``; returns exit code, last line on standard error, and the report's path."""
    command = [sys.executable, "-P", "-c", START, *arguments]
    last = ""
    with subprocess.Popen(  # noqa: S603 - this interpreter, our own words
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace"
    ) as process:
        streams: Any = process
        for line in streams.stderr:  # progress, as it comes
            sys.stderr.write(line)
            last = line.strip() or last
        printed = streams.stdout.read().splitlines()
    found = [line.removeprefix(REPORT) for line in printed if line.startswith(REPORT)]
    return process.returncode, last, Path(found[-1]) if found else None


def _read(option: str, path: Path) -> Decision:
    try:
        decision = read_decision(path)
        check_outcomes(decision)
    except GateError as error:
        msg = f"{option} {error}"
        raise pytest.UsageError(msg) from error
    if decision.schema != SCHEMA:
        msg = (
            f"{option} {path}: has schema {decision.schema}, and this version reads "
            f"{SCHEMA}; run the gate again"
        )
        raise pytest.UsageError(msg)
    return decision

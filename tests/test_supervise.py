"""Exit codes of a run's process follow its decision, however the process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gate.supervise import check_code
from tests import toy_project
from tests.toy_project import faulty, write_gate

REPOSITORY = Path(__file__).parent.parent


def write_outcome(out: Path, outcome: str) -> None:
    folder = out / "latest"
    folder.mkdir(parents=True)
    (folder / "decision.json").write_text(f'{{"outcome": "{outcome}", "schema": 1}}')


@pytest.mark.parametrize(
    ("outcome", "code"), [("PASS", 0), ("FAIL", 3), ("INCONCLUSIVE", 4), ("ERROR", 5)]
)
def test_a_code_that_fits_its_decision_is_kept(tmp_path: Path, outcome: str, code: int) -> None:
    write_outcome(tmp_path, outcome)
    assert check_code(code << 8, tmp_path) == code


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 77])
def test_a_code_before_the_run_was_finished_is_an_error(tmp_path: Path, code: int) -> None:
    write_outcome(tmp_path, "ERROR")
    assert check_code(code << 8, tmp_path) == 5


@pytest.mark.parametrize(("code", "expected"), [(0, 5), (1, 5), (2, 2), (3, 5), (5, 5)])
def test_without_a_decision_only_a_refusal_is_what_it_says(
    tmp_path: Path, code: int, expected: int
) -> None:
    assert check_code(code << 8, tmp_path) == expected


def test_a_decision_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    write_outcome(tmp_path, "SPLENDID")
    assert check_code(0, tmp_path) == 5


def test_a_process_killed_by_a_signal_is_an_error_and_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert check_code(signal.SIGKILL, tmp_path) == 5
    assert "SIGKILL" in capfd.readouterr().err


SCRIPT = """\
import os, sys
from pathlib import Path
from gate.supervise import supervise
def work():
    {work}
raise SystemExit(supervise(work, Path(sys.argv[1])))
"""


def start(work: str, out: Path) -> subprocess.Popen[str]:
    """Start a supervised piece of work in a process group of its own."""
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", SCRIPT.format(work=work), str(out)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.01)


def test_work_that_leaves_the_process_does_not_pass(tmp_path: Path) -> None:
    write_outcome(tmp_path, "ERROR")
    process = start("os._exit(0)", tmp_path)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 5
    assert "does a decoder end the process" in said


def test_ctrl_c_is_answered_by_the_run_itself(tmp_path: Path) -> None:
    work = f"""import signal, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try: (Path({str(tmp_path)!r}) / "begun").touch(); time.sleep(60)
    except KeyboardInterrupt: print("stopped by hand"); return 5"""
    process = start(work, tmp_path)
    wait_for((tmp_path / "begun").exists)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert (process.returncode, said.strip()) == (5, "stopped by hand")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_is_ended_takes_the_run_with_it(tmp_path: Path, how: signal.Signals) -> None:
    work = f"""import time
    (Path({str(tmp_path)!r}) / "pid").write_text(str(os.getpid()) + ".")
    time.sleep(60)"""
    process = start(work, tmp_path)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()[-1:] == ".")
    child = int((tmp_path / "pid").read_text()[:-1])
    process.send_signal(how)
    process.communicate(timeout=30)
    assert process.returncode in (5, -signal.SIGKILL)
    wait_for(lambda: not is_running(child))


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_output_is_not_printed_twice(tmp_path: Path) -> None:
    write_outcome(tmp_path, "PASS")
    process = start('print("once", end=""); return 0', tmp_path)
    assert process.communicate(timeout=30) == ("once", "")
    assert process.returncode == 0


def test_a_decoder_that_leaves_the_process_ends_the_run_with_an_error(
    toy: Any, tmp_path: Path
) -> None:
    folder = toy_project.write_project(tmp_path, toy)
    config = write_gate(folder, candidate=faulty("leaving"))
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "gate", "run", "--config", str(config), "--quiet"],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert "does a decoder end the process" in done.stderr
    assert '"outcome": "ERROR"' in (folder / "reports/latest/decision.json").read_text()

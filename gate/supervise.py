"""``gate run`` under a parent process, so that its exit code is what decision.json says.

A decoder is somebody's code in our process: ``os._exit(0)`` in it, or a crash of a kernel, must
not look like a PASS. The run is a fork of this light process, which waits and then looks.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from gate.commands.common import EXIT_CODES
from gate.errors import UsageError
from gate.records import Outcome

ERROR = EXIT_CODES[Outcome.ERROR]
FORWARDED = (signal.SIGTERM, signal.SIGHUP)


class Ending(msgspec.Struct, frozen=True):
    """Of a decision, what the exit code needs; whatever else stands there."""

    outcome: Outcome


def supervise(work: Callable[[], int], out: Path) -> int:
    """Run ``work`` in a process of its own; return its exit code, or ERROR's where they disagree.

    out: the reports folder, whose ``latest`` the run points at its decision.
    """
    alive, held = os.pipe()  # the child reads its end, and learns that this process is gone
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(held)
        _work_as_child(work, alive)
    os.close(alive)
    try:
        return check_code(_wait(pid), out)
    finally:
        os.close(held)


def check_code(status: int, out: Path) -> int:
    """Return the exit code of a run that ended with ``status`` (as os.waitpid gives it)."""
    code, outcome = os.waitstatus_to_exitcode(status), _read_outcome(out)
    if code < 0:
        name = signal.Signals(-code).name
        return _report(f"the run was ended by {name}; run the same command again to resume")
    was_refused = code == UsageError.exit_code and outcome is not Outcome.ERROR
    was_stopped = code == ERROR and outcome is None
    if was_refused or was_stopped or (outcome and code == EXIT_CODES[outcome]):
        return code
    if outcome is None:
        return _report(f"the run ended with exit code {code} and without a decision")
    return _report(
        f"the run's process ended with exit code {code} before the run did (its decision says "
        f"{outcome}): does a decoder end the process? run the same command again to resume"
    )


def _report(message: str) -> int:
    print(f"gate: {message}", file=sys.stderr)  # noqa: T201 - as the command line does
    return ERROR


def _read_outcome(out: Path) -> Outcome | None:
    try:
        data = (out / "latest" / "decision.json").read_bytes()
        return msgspec.json.decode(data, type=Ending).outcome
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError):
        return Outcome.ERROR


def _work_as_child(work: Callable[[], int], alive: int) -> None:
    """Work and leave without returning: what follows in the caller is the parent's."""
    threading.Thread(target=_die_with_parent, args=(alive,), daemon=True).start()
    try:
        code = work()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else ERROR
    except BaseException:  # noqa: BLE001 - the traceback of a fault of our own
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _die_with_parent(alive: int) -> None:
    """End this process once nobody holds the pipe's other end: the parent was killed."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _wait(pid: int) -> int:
    """Wait for the child. Ctrl-C reaches both: the child answers it; the rest is passed on."""
    passed_on = [one for one in FORWARDED if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, lambda n, _: os.kill(pid, n)) for one in passed_on}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return os.waitpid(pid, 0)[1]
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)

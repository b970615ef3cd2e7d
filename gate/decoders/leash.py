"""A watcher beside a server that the gate started: it stops the server where the gate cannot.

A gate that is killed outright (SIGKILL, out of memory) cleans nothing up, and its server would keep
the device. The watcher is a process of its own that holds the other end of a pipe: the pipe closes
when the gate is gone, however it went. After a stop of the gate's own, one byte says that nothing
is left to do, so that a number that the system has given to another process is never signalled.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

DONE = b"x"
WATCH = """
import os, signal, sys, time
group, grace_s = int(sys.argv[1]), float(sys.argv[2])
if not os.read(0, 1):
    try:
        os.killpg(group, signal.SIGTERM)
        until = time.monotonic() + grace_s
        while time.monotonic() < until:
            time.sleep(0.1)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


class Leash:
    """Watches over one process group until it is released."""

    def __init__(self, group: int, grace_s: float) -> None:
        """Start watching. group: of the server. grace_s: from the request to stop to force."""
        self._watcher = subprocess.Popen(  # noqa: S603 - the words above
            [sys.executable, "-I", "-S", "-c", WATCH, str(group), str(grace_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what ends the gate's group does not end it
        )

    def release(self) -> None:
        """Tell the watcher that nothing is left to stop, and wait for its end."""
        with contextlib.suppress(BrokenPipeError):  # it was ended by somebody else
            self._watcher.communicate(DONE)
        self._watcher.wait()

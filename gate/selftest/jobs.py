"""The self-test in several processes: each takes a share of the catalogue and one thread.

Small steps gain little from a second thread, and two processes with two threads each wait
for one another; so shares are dealt out, and the results meet in the store.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gate.errors import RunError

POLL_S = 1.0
EXPECTED = (0, 3)
"""All caught, or something missed: either way the rows are there."""


def count_threads(jobs: int) -> int:
    """Return the threads of each process."""
    return max(1, (os.cpu_count() or 1) // jobs)


def run_shares(
    arguments: Sequence[str], ids: Sequence[str], jobs: int, watch: Callable[[], None]
) -> None:
    """Test ``ids`` in ``jobs`` processes. ``watch`` is called while they run. Raises RunError.

    arguments: of ``gate selftest``, without ``--only`` and ``--jobs``.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(count_threads(jobs))}
    command = [sys.executable, "-m", "gate", "selftest", *arguments, "--quiet", "--jobs", "1"]
    shares = [ids[n::jobs] for n in range(jobs) if ids[n::jobs]]
    started = [
        subprocess.Popen(  # noqa: S603 - ourselves, with ids of the catalogue
            [*command, "--only", ",".join(share)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for share in shares
    ]
    try:
        while any(process.poll() is None for process in started):
            watch()
            time.sleep(POLL_S)
        for process in started:
            _, said = process.communicate()
            if process.returncode not in EXPECTED:
                last = said.strip().splitlines()[-1:] or ["it said nothing"]
                msg = f"a process of the self-test ended with {process.returncode}: {last[0]}"
                raise RunError(msg)
    finally:
        for process in started:
            process.kill()
            process.wait()


def share_arguments(config: Path, out: Path, *, quick: bool) -> list[str]:
    """Return the arguments that make a share test the same as the whole."""
    return ["--config", str(config), "--out", str(out), *(["--quick"] if quick else [])]

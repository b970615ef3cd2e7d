"""Progress on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


class Progress:
    """Tells a person what a run is doing. Says nothing to standard output."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        """``is_quiet``: say nothing at all."""
        self._is_quiet = is_quiet
        self._has_terminal = sys.stderr.isatty()

    def say(self, message: str) -> None:
        """Print one line."""
        if not self._is_quiet:
            print(f"gate: {message}", file=sys.stderr, flush=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announce a stage and how long it took."""
        began = time.monotonic()
        yield
        self.say(f"{name}: done in {time.monotonic() - began:.0f} s")

    @contextmanager
    def bar(self, name: str, total: int) -> Iterator[Advance]:
        """Show how many of ``total`` requests are done."""
        if self._is_quiet or not self._has_terminal:
            with self.stage(f"{name}, {total} requests"):
                yield lambda _: None
            return
        from rich.console import Console  # noqa: PLC0415 - only terminals need it
        from rich.progress import Progress as Bars  # noqa: PLC0415

        with Bars(console=Console(stderr=True), transient=False) as bars:
            task = bars.add_task(name, total=total)
            yield lambda n: bars.update(task, advance=n)

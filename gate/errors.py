"""Every error the gate raises on purpose.

    GateError                  a sentence for the user; ``exit_code`` says how the process ends
    ├── UsageError        (2)  bad configuration, evalset, model or command: refused, no run folder
    └── RunError          (5)  found after the run folder exists: a decision with outcome ERROR

A message names the key, the value, what is allowed and what to do next.
"""

from __future__ import annotations

from typing import ClassVar


class GateError(Exception):
    """Base of all expected failures; its text is one sentence for the user."""

    exit_code: ClassVar[int] = 5


class UsageError(GateError):
    """Input was refused before anything ran."""

    exit_code: ClassVar[int] = 2


class RunError(GateError):
    """A run that had begun cannot be judged."""

    exit_code: ClassVar[int] = 5

"""``python -m gate``: the command line."""

from __future__ import annotations

from gate.cli import enter

raise SystemExit(enter())

"""What the self-test reports, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from gate.records import SCHEMA, Record
from gate.store import write_atomically


class FaultRow(Record, frozen=True, kw_only=True):
    """How a fault fared. by: measures of its kind that raised it; others: what else fired.

    outcome: of the blocking verdicts together. n_tokens: the candidate's in this test. unseen: why
    no measure can see it, where that is known.
    """

    id: str
    kind: str
    strength: float | str
    model: str
    dtype: str
    detected: bool
    unseen: str = ""
    by: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    outcome: str = ""
    n_tokens: int = 0
    n_requests: int = 0
    seconds: float = 0.0


class ControlRow(Record, frozen=True, kw_only=True):
    """How often a lossless control was flagged. reasons: of every run that did not pass."""

    id: str
    model: str
    dtype: str
    runs: int = 1
    false_fails: int = 0
    false_inconclusives: int = 0
    false_errors: int = 0
    reasons: tuple[str, ...] = ()
    n_tokens: int = 0
    seconds: float = 0.0


class SelfTest(Record, frozen=True, kw_only=True):
    """A whole self-test. quick: each fault on the requests of its kind only."""

    schema: int = SCHEMA
    faults: tuple[FaultRow, ...]
    controls: tuple[ControlRow, ...]
    model: str
    dtype: str
    evalset_sha256: str
    date: str
    quick: bool = False

    @property
    def missed(self) -> list[FaultRow]:
        """Faults that no measure of their kind raised, but for those known to be out of sight."""
        return [row for row in self.faults if not row.detected and not row.unseen]

    @property
    def flagged(self) -> list[ControlRow]:
        """Controls that did not pass."""
        return [row for row in self.controls if row.reasons]


def describe(found: SelfTest) -> Iterator[str]:
    """Yield the self-test as lines for a terminal, what needs attention last."""
    for row in found.faults:
        mark = "caught" if row.detected else "unseen" if row.unseen else "MISSED"
        by = ", ".join(row.by) or f"nothing of its kind (others: {', '.join(row.others) or 'none'})"
        why = f"; {row.unseen}" if mark == "unseen" else ""
        yield f"{mark}  {row.id:24} {row.kind:20} {row.n_tokens:6,} tokens  {by}{why}"
    for control in found.controls:
        yield f"{'FLAGGED' if control.reasons else 'passed '} {control.id}"
        yield from (f"         {reason}" for reason in control.reasons)
    n_caught = sum(row.detected for row in found.faults)
    yield (
        f"{n_caught} of {len(found.faults)} faults caught, "
        f"{len(found.flagged)} of {len(found.controls)} controls flagged"
    )


def write_json(found: SelfTest, path: Path) -> None:
    """Write a self-test where ``--json`` says."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(found), indent=1))

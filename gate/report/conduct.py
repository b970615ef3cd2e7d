"""How the arms behaved where chat prompts do not look: conformance requests and endings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gate.report.budget import fit
from gate.report.numbers import NOT_MEASURED
from gate.report.page import Table
from gate.report.reading import find_comparisons, read_path, read_text

if TYPE_CHECKING:
    from gate.records import Comparison, Decision

N_SHOWN = 100
CELL_BYTES = 400
ENDINGS = {"termination": "candidate", "baseline_termination": "baseline"}


def make_conformance(decision: Decision) -> Table:
    """Return every conformance request that failed: what was expected and what came."""
    found = find_comparisons(decision, "conformance")
    listed = [row for one in found for row in _read_rows(one, "failures")]
    names = ("request_id", "arm", "what", "expected", "came")
    return Table(
        caption="Conformance requests that failed",
        head=("Request", "Arm", "What", "Expected", "Came"),
        rows=tuple(
            tuple(fit(read_text(row, name), CELL_BYTES) for name in names)
            for row in listed[:N_SHOWN]
        ),
        remark=_write_remark(found, listed),
    )


def make_endings(decision: Decision) -> Table:
    """Return the outputs that ended or were reported wrongly."""
    found = [one for name in ENDINGS for one in find_comparisons(decision, name)]
    listed = [(ENDINGS[one.measure], row) for one in found for row in _read_rows(one, "faults")]
    names = ("request_id", "kind", "message")
    rows = (
        (arm, *(fit(read_text(row, name), CELL_BYTES) for name in names))
        for arm, row in listed[:N_SHOWN]
    )
    return Table(
        caption="Outputs that ended or were reported wrongly",
        head=("Arm", "Request", "Kind", "What was wrong"),
        rows=tuple(rows),
        remark=_write_remark(found, listed),
    )


def _read_rows(comparison: Comparison, name: str) -> Iterator[object]:
    rows = read_path(comparison.detail, name)
    yield from rows if isinstance(rows, list | tuple) else ()


def _write_remark(
    found: list[Comparison] | tuple[Comparison, ...],
    listed: list[object] | list[tuple[str, object]],
) -> str:
    if not any(one.difference for one in found):
        return NOT_MEASURED
    if len(listed) > N_SHOWN:
        return f"the first {N_SHOWN} of {len(listed)}"
    return "" if listed else "none"

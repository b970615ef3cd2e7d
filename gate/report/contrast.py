"""Two runs side by side: criteria, figures, margins, and what differs in what ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gate.report.arms import read_arm
from gate.report.judged import list_verdicts
from gate.report.page import Badge, PairRow, VerdictRow
from gate.report.reading import NOT_RECORDED, flatten, make_badge
from gate.report.runs import Run, list_outcomes, write_link, write_name
from gate.report.view import write_time

if TYPE_CHECKING:
    from gate.records import Decision

ABSENT = "not in this run"
Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One of the two runs, as the head of its column."""

    name: str
    link: str
    created_at: str
    badges: tuple[Badge, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What a criterion came to in one run."""

    badge: Badge | None
    figure: str
    rule: str


@dataclass(frozen=True, kw_only=True)
class ContrastRow:
    """A criterion on one group in both runs. ``marks``: what differs, in words."""

    criterion: str
    group: str
    earlier: Cell
    later: Cell
    marks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Two runs compared; rows that differ come first."""

    earlier: Column
    later: Column
    rows: tuple[ContrastRow, ...]
    provenance: tuple[PairRow, ...]
    n_equal: int


def contrast_runs(one: Run, other: Run) -> Contrast | None:
    """Return both runs side by side, the earlier first; None where one cannot be read."""
    earlier, later = sorted((one, other), key=lambda run: run.moment)
    if earlier.decision is None or later.decision is None:
        return None
    facts, n_equal = _contrast_facts(earlier.decision, later.decision)
    rows = _contrast_verdicts(earlier.decision, later.decision)
    return Contrast(
        earlier=_write_column(earlier, earlier.decision),
        later=_write_column(later, later.decision),
        rows=tuple(sorted(rows, key=lambda row: not row.marks)),
        provenance=facts,
        n_equal=n_equal,
    )


def _write_column(run: Run, decision: Decision) -> Column:
    return Column(
        name=write_name(run),
        link=write_link(run),
        created_at=write_time(decision.created_at),
        badges=tuple(make_badge(one) for one in list_outcomes(decision)),
        reason=decision.reason,
    )


# ------------------------------------------------------------------- criteria


def _contrast_verdicts(earlier: Decision, later: Decision) -> list[ContrastRow]:
    left, right = _index(earlier), _index(later)
    return [_write_row(key, left, right) for key in dict.fromkeys((*left, *right))]


def _index(decision: Decision) -> dict[Key, VerdictRow]:
    return {(row.criterion, row.group): row for row in list_verdicts(decision)}


def _write_row(
    key: Key, left: Mapping[Key, VerdictRow], right: Mapping[Key, VerdictRow]
) -> ContrastRow:
    earlier, later = _write_cell(left.get(key)), _write_cell(right.get(key))
    return ContrastRow(
        criterion=key[0],
        group=key[1],
        earlier=earlier,
        later=later,
        marks=tuple(_list_marks(earlier, later)),
    )


def _write_cell(row: VerdictRow | None) -> Cell:
    if row is None:
        return Cell(badge=None, figure=ABSENT, rule="")
    return Cell(badge=row.badge, figure=f"{row.estimate}, {row.interval}", rule=f"It {row.rule}.")


def _list_marks(earlier: Cell, later: Cell) -> list[str]:
    if earlier.badge is None or later.badge is None:
        return ["only one of the runs"]
    marks = ["outcome"] if earlier.badge != later.badge else []
    return marks + (["margin"] if earlier.rule != later.rule else [])


# ----------------------------------------------------------------- provenance


def _contrast_facts(earlier: Decision, later: Decision) -> tuple[tuple[PairRow, ...], int]:
    """Return the recorded facts that differ between the runs, and how many do not."""
    left, right = _flatten_arms(earlier), _flatten_arms(later)
    names = sorted({*left, *right})
    differing = [name for name in names if left.get(name) != right.get(name)]
    rows = tuple(
        PairRow(
            name=name,
            baseline=left.get(name, NOT_RECORDED),
            candidate=right.get(name, NOT_RECORDED),
        )
        for name in differing
    )
    return rows, len(names) - len(differing)


def _flatten_arms(decision: Decision) -> dict[str, str]:
    return {
        f"{arm}.{name}": value
        for arm in ("baseline", "candidate")
        for name, value in flatten(read_arm(decision, arm)).items()
    }

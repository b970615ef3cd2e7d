"""Runs over time: a row per run, and the trend of the key measures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from gate.errors import GateError
from gate.export.text import to_line
from gate.report.charts import Line, Point, draw_lines
from gate.report.judged import is_signed, read_unit
from gate.report.numbers import NOT_MEASURED, format_difference, format_number, format_speedup
from gate.report.page import Badge, Chart
from gate.report.reading import find_comparisons, make_badge
from gate.report.view import write_time
from gate.store import read_decision

if TYPE_CHECKING:
    from gate.records import Comparison, Decision

N_ROWS = 500
N_TREND = 60
NAME_CHARACTERS = 120
REASON_CHARACTERS = 200
UNREADABLE = "cannot be read"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A folder under reports/ with its decision; ``problem`` where there is none to read."""

    folder: Path
    decision: Decision | None
    problem: str = ""

    @property
    def moment(self) -> str:
        """Sorts runs by time, those without a decision by name, last."""
        return self.decision.created_at if self.decision else ""


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A run in the table. ``link``: a relative URL, empty where there is no page."""

    name: str
    link: str
    created_at: str
    badges: tuple[Badge, ...]  # outcome, content, gain; none where it cannot be read
    claim: str
    purpose: str
    speed: str
    score: str
    defects: str
    reason: str


def read_runs(reports: Path) -> tuple[Run, ...]:
    """Return the runs under ``reports``, newest first; links such as ``latest`` are left out."""
    folders = [
        path.parent
        for path in reports.glob("*/decision.json")
        if path.is_file() and not path.parent.is_symlink()
    ]
    runs = [_read_run(folder) for folder in sorted(folders)]
    return tuple(sorted(runs, key=lambda run: (run.moment, run.folder.name), reverse=True))


def _read_run(folder: Path) -> Run:
    try:
        return Run(folder=folder, decision=read_decision(folder))
    except GateError as error:
        return Run(folder=folder, decision=None, problem=str(error))


def list_rows(runs: Sequence[Run]) -> tuple[RunRow, ...]:
    """Return the newest :data:`N_ROWS` runs as rows."""
    return tuple(_write_row(run) for run in runs[:N_ROWS])


def write_name(run: Run) -> str:
    """Return a run's name as one may show it, whatever its folder is called."""
    return to_line(run.folder.name, NAME_CHARACTERS)


def write_link(run: Run) -> str:
    """Return the relative URL of a run's page: no scheme, no host, no way out of the folder."""
    if not (run.folder / "report.html").is_file():
        return ""
    return f"./{quote(os.fsencode(run.folder.name), safe='')}/report.html"


def _write_row(run: Run) -> RunRow:
    decision = run.decision
    if decision is None:
        return RunRow(name=write_name(run), link=write_link(run), created_at="", badges=(),
                      claim="", purpose="", speed="", score="", defects="",
                      reason=f"{UNREADABLE}: {to_line(run.problem)}")  # fmt: skip
    return RunRow(
        name=write_name(run),
        link=write_link(run),
        created_at=write_time(decision.created_at),
        badges=tuple(
            make_badge(one) for one in (decision.outcome, decision.content, decision.gain)
        ),
        claim=decision.claim,
        purpose=decision.purpose,
        speed=_write_speed(find_whole(decision, "time_ratio")),
        score=_write_difference(find_whole(decision, "task_delta")),
        defects=_write_count(find_whole(decision, "token_defects")),
        reason=to_line(decision.reason, REASON_CHARACTERS),
    )


def list_outcomes(decision: Decision) -> tuple[str, str, str]:
    """Return the decision's outcome, and those of its halves."""
    return decision.outcome, decision.content, decision.gain


def find_whole(decision: Decision, measure: str) -> Comparison | None:
    """Return a measure's comparison over all requests."""
    return next((one for one in find_comparisons(decision, measure) if one.group == "all"), None)


def _write_speed(comparison: Comparison | None) -> str:
    estimate = comparison.difference if comparison else None
    return format_speedup(estimate.statistic) if estimate else NOT_MEASURED


def _write_difference(comparison: Comparison | None) -> str:
    if comparison is None or comparison.difference is None:
        return NOT_MEASURED
    write = format_difference if is_signed(comparison) else format_number
    return write(comparison.difference.statistic, read_unit(comparison))


def _write_count(comparison: Comparison | None) -> str:
    return format_number(comparison.candidate if comparison else None)


# ---------------------------------------------------------------------- trend


def list_trends(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return how the key measures went over the last :data:`N_TREND` readable runs."""
    told = [run.decision for run in runs if run.decision][:N_TREND][::-1]
    charts = [_draw_trend(told, *trend) for trend in TRENDS]
    return tuple(chart for chart in charts if chart)


def _draw_trend(decisions: Sequence[Decision], measure: str, title: str, unit: str) -> Chart | None:
    points = [
        (float(n), value)
        for n, decision in enumerate(decisions, 1)
        if (value := _read_key(decision, measure)) is not None
    ]
    if len(points) < 2:  # noqa: PLR2004 - one run is no trend
        return None
    ends = f"from {format_number(points[0][1], unit)} to {format_number(points[-1][1], unit)}"
    svg = draw_lines(
        [Line(name=title, points=tuple(points))],
        words=f"{title} over {len(points)} runs, oldest first: {ends}.",
        x_title="run, oldest first",
        y_title="",
        write_x=_write_whole,
        write_y=lambda y: format_number(y, unit),
        x_labels=_choose_labels(points),
    )
    return Chart(title=title, svg=svg, remark=ends) if svg else None


TRENDS = (
    ("time_ratio", "Speed of the candidate, whole mix", "ratio"),
    ("task_delta", "Change of the task score, all tasks", "points"),
    ("token_defects", "Token defects of the candidate", ""),
    ("acceptance", "Guesses kept", "share"),
)


def _read_key(decision: Decision, measure: str) -> float | None:
    """Return the figure of a key measure: a speed-up for a time ratio, a count for defects."""
    comparison = find_whole(decision, measure)
    if comparison is None:
        return None
    if measure in {"token_defects", "acceptance"}:
        return comparison.candidate
    value = comparison.difference.statistic if comparison.difference else None
    if measure == "time_ratio":
        return 1 / value if value is not None and value > 0 else None
    return value


def _choose_labels(points: Sequence[Point]) -> tuple[float, ...]:
    step = max(1, len(points) // 8)
    return tuple(x for x, _ in points[::step])


def _write_whole(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else ""

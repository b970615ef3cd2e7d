"""The page of all runs: reports/index.html."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from gate.errors import UsageError
from gate.report.contrast import contrast_runs
from gate.report.html import render_page
from gate.report.runs import Run, list_rows, list_trends
from gate.report.view import write_time

N_COMPARED = 2
N_NAMED = 5


def render_index(runs: Sequence[Run], now: dt.datetime, names: Sequence[str] = ()) -> str:
    """Return the page of ``runs``, newest first; ``names``: the two to compare.

    Without names the newest two that can be read are compared. Errors: UsageError where a name
    is no run's.
    """
    pair = _choose(runs, names)
    return render_page(
        "index.html.j2",
        n_runs=len(runs),
        now=write_time(now.isoformat()),
        rows=list_rows(runs),
        trends=list_trends(runs),
        contrast=contrast_runs(*pair) if len(pair) == N_COMPARED else None,
    )


def _choose(runs: Sequence[Run], names: Sequence[str]) -> tuple[Run, ...]:
    if not names:
        return tuple(run for run in runs if run.decision)[:N_COMPARED]
    return tuple(_find(runs, name) for name in names)


def _find(runs: Sequence[Run], name: str) -> Run:
    wanted = name.rstrip("/").rpartition("/")[2]
    found = next((run for run in runs if run.folder.name == wanted and run.decision), None)
    if found is None:
        known = ", ".join(run.folder.name for run in runs[:N_NAMED] if run.decision) or "none"
        msg = f"--compare {name!r}: no such run with a readable decision; the newest are {known}"
        raise UsageError(msg)
    return found

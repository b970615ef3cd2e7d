"""Curves and distributions of the evidence: divergence, times, acceptance by place in a draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gate.report.charts import Line, Point, draw_lines
from gate.report.numbers import NOT_MEASURED, format_number
from gate.report.page import Chart, Heat, HeatCell, Table
from gate.report.reading import find_comparisons, is_figure, read_items, read_number, read_path
from gate.report.wording import describe_group

if TYPE_CHECKING:
    from gate.records import Comparison, Decision

ARMS = ("baseline", "candidate")
DISTRIBUTIONS = (
    ("time_ratio", "Time per request"),
    ("ttft", "Time to first token"),
    ("tpot", "Time per token after the first"),
)
N_CLASSES = 12  # classes with a chart of their own
LEVELS = ("p50", "p90", "p95", "p99", "p99.9", "max")
N_SHADES = 5
MOST_PLACES = 16


# ----------------------------------------------------------------- divergence


def list_divergence_charts(decision: Decision) -> tuple[Chart, ...]:
    """Return the curve along the output and the ladder of percentiles, both arms."""
    whole = [one for one in find_comparisons(decision, "divergence") if one.group == "all"]
    charts = [chart for one in whole for chart in (_draw_along(one), _draw_ladder(one))]
    return tuple(chart for chart in charts if chart)


def _draw_along(comparison: Comparison) -> Chart | None:
    rows = {arm: _read_rows(comparison, key) for arm, key in _ALONG}
    lines = [Line(name=arm, points=tuple((row[0], row[2]) for row in rows[arm])) for arm in ARMS]
    words = f"Mean divergence along the output: {_tell_ends(lines, 'nats')}."
    svg = draw_lines(lines, words=words, x_title="output position", y_title="nats",
                     write_x=format_number, write_y=_write_short, is_logarithmic=True)  # fmt: skip
    if svg is None:
        return None
    head = ("Arm", "From position", "Tokens", "Mean", "Largest")
    cells = tuple(
        (arm, *(format_number(v) for v in row[:2]), *(format_number(v, "nats") for v in row[2:4]))
        for arm in ARMS for row in rows[arm]
    )  # fmt: skip
    table = Table(caption="Divergence along the output", head=head, rows=cells)
    remark = "Mean per token. A fault of the cache or of positions grows along the output."
    return Chart(title="Along the output", svg=svg, remark=remark, table=table)


_ALONG = (("candidate", "along"), ("baseline", "baseline_along"))


def _draw_ladder(comparison: Comparison) -> Chart | None:
    found = {
        "candidate": {
            **dict(read_items(comparison.detail, "percentiles")),
            **dict(read_items(comparison.detail)),
        },
        "baseline": dict(read_items(comparison.detail, "baseline_ladder")),
    }
    places = [level for level in LEVELS if any(read_number(found[arm], level) for arm in ARMS)]
    lines = [Line(name=arm, points=_place_levels(found[arm], places)) for arm in ARMS]
    svg = draw_lines(lines, words=f"Percentiles of divergence: {_tell_ends(lines, 'nats')}.",
                     x_title="", y_title="nats", write_x=lambda x: _name_level(x, places),
                     write_y=_write_short, is_logarithmic=True,
                     x_labels=range(len(places)))  # fmt: skip
    remark = "Per token. The largest percentiles show a fault that strikes rarely."
    return Chart(title="The ladder", svg=svg, remark=remark) if svg else None


def _place_levels(found: Mapping[str, object], places: Sequence[str]) -> tuple[Point, ...]:
    values = ((n, read_number(found, level)) for n, level in enumerate(places))
    return tuple((float(n), float(value)) for n, value in values if value is not None)


def _name_level(x: float, places: Sequence[str]) -> str:
    return places[int(x)] if x == int(x) and 0 <= x < len(places) else ""


# -------------------------------------------------------------------- serving


def list_serving_charts(decision: Decision) -> tuple[Chart, ...]:
    """Return the distributions of times of both arms, all classes first."""
    charts = []
    for measure, title in DISTRIBUTIONS:
        found = find_comparisons(decision, measure)
        groups = [one for one in found if one.group == "all" or measure == "time_ratio"]
        charts += [_draw_times(one, title) for one in groups[: N_CLASSES + 1]]
    return tuple(chart for chart in charts if chart)


def _draw_times(comparison: Comparison, title: str) -> Chart | None:
    lines = [Line(name=arm, points=_read_steps(comparison, arm)) for arm in ARMS]
    group = "all classes" if comparison.group == "all" else describe_group(comparison.group)
    svg = draw_lines(lines, words=f"{title}, {group}: {_tell_medians(comparison)}.",
                     x_title="", y_title="share of requests", write_x=_write_seconds,
                     write_y=lambda y: format_number(y, "share"))  # fmt: skip
    if svg is None:
        return None
    return Chart(title=f"{title}, {group}", svg=svg, remark=_tell_medians(comparison))


def _read_steps(comparison: Comparison, arm: str) -> tuple[Point, ...]:
    """Return the share of requests that took no longer, as steps where there are few."""
    values = [v for v in _read_list(comparison, "quantiles", arm) if is_figure(v)]
    n = len(values)
    return tuple(
        (float(value), share / n) for i, value in enumerate(values) for share in (i, i + 1)
    )


def _tell_medians(comparison: Comparison) -> str:
    medians = []
    for arm in ARMS:
        values = [v for v in _read_list(comparison, "quantiles", arm) if isinstance(v, int | float)]
        middle = values[len(values) // 2] if values else None
        medians.append(f"{arm} {format_number(middle, 's')}")
    return f"median {', '.join(medians)}"


# ----------------------------------------------------------------- acceptance


def make_acceptance(decision: Decision) -> Heat:
    """Return how many drafts got as far as their k-th token, per class."""
    found = sorted(find_comparisons(decision, "acceptance"), key=lambda one: one.group != "all")
    rows = [(one, _read_rows(one, "by_position")) for one in found]
    n_places = min(MOST_PLACES, max((len(places) for _, places in rows), default=0))
    return Heat(
        caption="Share of drafts accepted up to and including their k-th token",
        head=tuple(f"k = {k}" for k in range(1, n_places + 1)),
        rows=tuple(_shade(one, places, n_places) for one, places in rows if places),
        remark="" if n_places else NOT_MEASURED,
    )


def _shade(
    comparison: Comparison, places: Sequence[Sequence[float]], n_places: int
) -> tuple[str, tuple[HeatCell, ...]]:
    name = "all classes" if comparison.group == "all" else describe_group(comparison.group)
    cells = [_shade_cell(places[k]) if k < len(places) else HeatCell() for k in range(n_places)]
    return name, tuple(cells)


def _shade_cell(place: Sequence[float]) -> HeatCell:
    drafted, accepted = (place[0], place[1]) if len(place) > 1 else (0, 0)
    if not drafted:
        return HeatCell()
    share = min(1.0, max(0.0, accepted / drafted))
    return HeatCell(text=format_number(share, "share", 2), shade=round(share * N_SHADES))


# -------------------------------------------------------------------- reading


def _read_list(comparison: Comparison, *path: str) -> Sequence[object]:
    value = read_path(comparison.detail, *path)
    return value if isinstance(value, list | tuple) else ()


def _read_rows(comparison: Comparison, key: str) -> list[list[float]]:
    """Return rows of numbers; whatever is none is left out."""
    rows = (one for one in _read_list(comparison, key) if isinstance(one, list | tuple))
    least = 4 if "along" in key else 2
    return [
        [float(v) for v in row] for row in rows if len(row) >= least and all(map(is_figure, row))
    ]


def _tell_ends(lines: Sequence[Line], unit: str) -> str:
    told = [
        f"{line.name} from {format_number(line.points[0][1], unit)}"
        f" to {format_number(line.points[-1][1], unit)}"
        for line in lines
        if line.points
    ]
    return "; ".join(told) or NOT_MEASURED


def _write_short(value: float) -> str:
    return format_number(value, digits=1)


def _write_seconds(value: float) -> str:
    return format_number(value, "s")

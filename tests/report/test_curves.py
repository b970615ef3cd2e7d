"""Curves and distributions: pygal within the page's policy, and odd figures left out."""

from __future__ import annotations

import math
import re
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.records import Alternative, Comparison, TokenView
from gate.report.budget import LEAST_BYTES, fit, fit_end, measure, share_room
from gate.report.charts import Line, Point, draw_lines
from gate.report.view import make_page
from tests.report.builders import make_decision
from tests.report.hostile import HOSTILE, TEXTS, Outline
from tests.report.parts import make_fork, make_ratio

FLOATS = st.floats()


def draw(*lines: Line, is_logarithmic: bool = False) -> str | None:
    return draw_lines(lines, words="the words", x_title="x", y_title="y", write_x=str,
                      write_y=str, is_logarithmic=is_logarithmic)  # fmt: skip


def test_a_chart_is_one_image_with_a_text_alternative_and_no_style_or_script_of_its_own() -> None:
    outline = Outline(draw(Line(name="baseline", points=((0.0, 1.0), (1.0, 2.0)))) or "")
    root = outline.tags[0]
    assert root[0] == "svg"
    assert (root[1]["role"], root[1]["aria-label"]) == ("img", "the words")
    assert not {"style", "script", "title", "desc", "defs"} & {tag for tag, _ in outline.tags}
    assert not outline.values("style")
    assert not any("tooltip" in name.split() for name in outline.values("class"))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_does_not_leave_its_text(name: str) -> None:
    svg = draw(Line(name=name, points=((0.0, 1.0), (1.0, 2.0)))) or ""
    assert "<script" not in svg
    assert Outline(svg).broken == []
    assert "\x00" not in svg


@given(st.lists(st.tuples(FLOATS, FLOATS), max_size=6), st.booleans())
def test_points_of_any_value_are_drawn_or_left_out(
    points: list[Point],
    is_logarithmic: bool,  # noqa: FBT001 - drawn by hypothesis
) -> None:
    svg = draw(Line(name="a", points=tuple(points)), is_logarithmic=is_logarithmic)
    assert svg is None or not re.search(r"nan|inf", svg)


@pytest.mark.parametrize("points", [(), ((math.nan, 1.0),), ((0.0, math.inf),)])
def test_nothing_to_draw_is_no_chart(points: tuple[Point, ...]) -> None:
    assert draw(Line(name="a", points=points)) is None


def show_divergence(**detail: object) -> Comparison:
    return Comparison(measure="divergence", unit="nat", detail=detail)


def test_the_divergence_is_drawn_along_the_output_with_its_figures_beside_it() -> None:
    rows = [[0, 60, 1e-7, 1e-6], [8, 60, 2e-7, 3e-6]]
    found = show_divergence(along=rows, baseline_along=rows[:1], p50=1e-8, max=1e-6)
    along, ladder = make_page(make_decision(comparisons=(found,), verdicts=())).divergence_charts
    assert along.table is not None
    assert len(along.table.rows) == 3
    assert along.table.rows[-1] == ("candidate", "8", "60", "2×10⁻⁷ nats", "3×10⁻⁶ nats")
    assert ladder.title == "The ladder"


@pytest.mark.parametrize("along", [None, 3, "x", [["a"]], [[1, 2]], [None], [[0, 1, 0.0, 0.0]]])
def test_curves_of_the_wrong_shape_are_not_drawn(along: object) -> None:
    page = make_page(make_decision(comparisons=(show_divergence(along=along),), verdicts=()))
    assert page.divergence_charts == ()


def test_the_times_of_both_arms_are_drawn_as_distributions() -> None:
    detail: dict[str, object] = {
        "quantiles": {"baseline": [0.2, 0.3, 0.5], "candidate": [0.1, 0.2, 0.4]}
    }
    ratio = msgspec.structs.replace(make_ratio("all", 0.7), detail=detail)
    (chart,) = make_page(make_decision(comparisons=(ratio,), verdicts=())).serving_charts
    assert chart.title == "Time per request, all classes"
    assert chart.remark == "median baseline 300 ms, candidate 200 ms"


def test_acceptance_is_shown_per_class_and_place() -> None:
    detail: dict[str, object] = {"by_position": [[10, 8], [10, 4], [0, 0]]}
    found = Comparison(measure="acceptance", group="code", detail=detail)
    heat = make_page(make_decision(comparisons=(found,), verdicts=())).acceptance
    assert heat.head == ("k = 1", "k = 2", "k = 3")
    assert [(c.text, c.shade) for c in heat.rows[0][1]] == [("80%", 4), ("40%", 2), ("–", 0)]


def test_what_follows_a_fork_is_compared_token_by_token() -> None:
    fork = msgspec.structs.replace(
        make_fork(),
        tokens_baseline=(" twelve", " red", " apples", "."),
        tokens_candidate=(" eleven", " green", " apples", " today", "."),
    )
    card = make_page(make_decision(forks=(fork,))).forks[0]
    baseline = [(piece.text, piece.differs) for piece in card.after_baseline]
    candidate = [(piece.text, piece.differs) for piece in card.after_candidate]
    assert baseline == [(" red", True), (" apples", False), (".", False)]
    assert candidate == [(" green", True), (" apples", False), (" today", True), (".", False)]


def test_forks_are_counted_by_kind_also_where_the_decision_lists_only_the_gravest() -> None:
    kinds: dict[str, object] = {"by_kind": {"tie": 800, "defect": 12}}
    counts = Comparison(measure="forks", unit="count", candidate=812, detail=kinds)
    decision = make_decision(forks=(make_fork("defect"),), comparisons=(counts,))
    assert make_page(decision).forks_remark == (
        "812 requests differ: 12 defect, 800 tie; the gravest 1 are on this page."
    )


def test_the_alternatives_of_a_fork_say_how_far_behind_they_are() -> None:
    likely = (
        Alternative(token=TokenView(token_id=1, text=" a"), behind_nat=0.0),
        Alternative(token=TokenView(token_id=2, text=""), behind_nat=1.5),
    )
    fork = msgspec.structs.replace(make_fork(), alternatives=likely)
    card = make_page(make_decision(forks=(fork,))).forks[0]
    assert card.alternatives == (("␣a", "its choice"), ("(no text: token 2)", "1.5 nats"))


@given(TEXTS, st.integers(min_value=1, max_value=500))
def test_a_fitted_text_keeps_to_its_room(text: str, room: int) -> None:
    for shown in (fit(text, room), fit_end(text, room)):
        assert measure(shown) <= room + 60  # the remark on what was cut
        assert "\x00" not in shown


def test_few_texts_get_all_they_may_have_and_many_share() -> None:
    assert share_room(1000, 1, 600) == 600
    assert share_room(1000, 4, 600) == 250
    assert share_room(1000, 10_000, 600) == LEAST_BYTES


def test_pygal_leaves_no_import_hook_behind() -> None:
    assert all(hasattr(finder, "find_spec") for finder in sys.meta_path)

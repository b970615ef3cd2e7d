"""The page: one file, safe with any text, equal to the decision it shows."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings

from gate.errors import RunError
from gate.records import Comparison, Decision, Outcome
from gate.report import render_html
from tests.report.builders import (
    FACTORIES,
    make_baseline_defect,
    make_decision,
    make_error,
    make_fail,
)
from tests.report.hostile import HOSTILE, TEXTS, Outline, poison
from tests.report.parts import make_fork

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST_PAGE = 3_000_000
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
OUR_TAGS = Outline(render_html(make_fail()))


def read_outcome_shown(page: str) -> str:
    outline = Outline(page)
    shown = outline.values("data-outcome")
    assert len(shown) == 1
    assert outline.text.count("Skip to the decision") == 1
    return shown[0]


@pytest.mark.parametrize("factory", FACTORIES)
def test_every_situation_renders_as_well_formed_html(factory: Callable[[], Decision]) -> None:
    outline = Outline(render_html(factory()))
    ids = outline.values("id")
    assert outline.broken == []
    assert len(ids) == len(set(ids))
    assert outline.count("main") == outline.count("h1") == outline.count("nav") == 1


@pytest.mark.parametrize("outcomes", list(itertools.product(Outcome, repeat=3)))
def test_the_outcome_words_are_those_of_the_decision(outcomes: tuple[Outcome, ...]) -> None:
    outcome, content, gain = outcomes
    page = render_html(make_error_with(outcome=outcome, content=content, gain=gain))
    assert read_outcome_shown(page) == outcome
    assert re.search(rf"<title>{outcome} ", page)
    assert re.search(rf"Content .{{,4}} {content} ", Outline(page).text)
    assert re.search(rf"Gain .{{,4}} {gain} ", Outline(page).text)


def make_error_with(**changes: object) -> Decision:
    return msgspec.structs.replace(make_error(), **changes)


@pytest.mark.parametrize("field", ["outcome", "content", "gain"])
def test_an_unknown_outcome_is_an_error_and_not_a_page(field: str) -> None:
    with pytest.raises(RunError, match="MAYBE"):
        render_html(make_decision(**{field: "MAYBE"}))


def test_an_unknown_outcome_of_a_verdict_is_an_error_too() -> None:
    verdict = msgspec.structs.replace(make_decision().verdicts[0], outcome="OK")
    with pytest.raises(RunError, match="OK"):
        render_html(make_decision(verdicts=(verdict,)))


def check_inert(page: str) -> None:
    outline = Outline(page)
    assert outline.broken == []
    for tag in ("script", "style", "img", "iframe", "object", "link", "h1"):
        assert outline.count(tag) == OUR_TAGS.count(tag)
    assert not [name for _, attrs in outline.tags for name in attrs if name.startswith("on")]
    assert all(link.startswith("#") for link in outline.values("href"))
    assert not outline.values("src")
    page.encode()
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", page
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_every_field_stays_text(text: str) -> None:
    page = render_html(poison(make_fail(), text))
    check_inert(page)
    assert len(page) < 2_000_000


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_any_text_in_every_field_stays_text(text: str) -> None:
    check_inert(render_html(poison(make_fail(), text)))


def test_template_syntax_is_shown_and_not_evaluated() -> None:
    page = render_html(make_decision(reason="{{7*7}}"))
    assert "{{7*7}}" in page


def test_bidi_controls_and_escapes_are_shown_as_escapes() -> None:
    page = render_html(make_decision(reason="a\u202eb\x1b[31m\x00\ud800"))
    assert r"a\u202eb\x1b[31m\x00\ud800" in page


def test_a_long_text_is_cut_and_says_so() -> None:
    page = render_html(make_decision(notes=("y" * 1_000_000,)))
    assert "(996,000 more characters)" in page


def test_the_content_policy_admits_exactly_our_style_and_script() -> None:
    page = render_html(make_fail())
    policy = next(one for one in Outline(page).values("content") if "default-src" in one)
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        source = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert source
        digest = base64.b64encode(hashlib.sha256(source.group(1).encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not Outline(page).values("style")


def test_every_drawing_has_a_text_alternative_and_every_head_a_scope() -> None:
    outline = Outline(render_html(make_fail()))
    drawings = [attrs for tag, attrs in outline.tags if tag == "svg"]
    heads = [attrs for tag, attrs in outline.tags if tag == "th"]
    assert drawings
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in drawings)
    assert all(attrs.get("scope") in {"row", "col"} for attrs in heads)


def test_failing_criteria_come_before_all_others() -> None:
    text = Outline(render_html(make_fail())).text
    names = (
        "2 of 7 criteria stop the release",
        "token certificate",
        "guard flips",
        "All others (4)",
    )
    places = [text.index(name, text.index(names[0])) for name in names]
    assert places == sorted(places)


def test_a_baseline_that_fails_its_certificate_is_explained() -> None:
    text = Outline(render_html(make_baseline_defect())).text
    assert "The baseline failed its own certificate: 12 of its tokens" in text
    assert "not evidence against the candidate" in text


def test_a_decision_without_verdicts_says_that_no_evidence_is_no_pass() -> None:
    text = Outline(render_html(make_error())).text
    assert "No criterion was judged. No evidence is never a pass." in text
    assert text.count("not measured") >= 4


def test_details_of_the_wrong_shape_read_as_not_measured() -> None:
    wrong = {
        "accepted": "many",
        "by_class": [1],
        "percentiles": 3,
        "flipped": "x",
        "same_top": None,
    }
    measures = ("exercised", "acceptance", "divergence", "guard_flips", "time_ratio", "task_delta")
    odd = tuple(Comparison(measure=name, group="odd", detail=wrong) for name in measures)
    page = render_html(make_decision(verdicts=(), comparisons=odd))
    assert Outline(page).broken == []
    assert "not measured" in page


def test_a_thousand_forks_make_a_bounded_page() -> None:
    forks = tuple(make_fork("defect", i) for i in range(1000))
    page = render_html(make_decision(forks=forks))
    assert page.count('<details class="fork"') == 500
    assert "1,000 requests differ: 1,000 defect; the gravest 500 are on this page." in page
    assert len(page.encode()) < LARGEST_PAGE


@pytest.mark.parametrize("text", ["x" * 2000, "<&'\">" * 400, "\u202e\x00" * 1000, "漢" * 2000])
def test_five_hundred_forks_of_long_texts_stay_below_3_mb(text: str) -> None:
    fork = msgspec.structs.replace(
        make_fork("defect"), prompt=text, before=text[:400],
        tokens_baseline=(text[:9],) * 25, tokens_candidate=(text[:8],) * 25)  # fmt: skip
    flip = {"baseline_text": text, "candidate_text": text, "request_id": "r"}
    guards = tuple(
        Comparison(measure="guard_flips", group=name, detail={"flipped": [flip] * 50})
        for name in ("refusal", "over_refusal", "format", "degeneration", "length")
    )
    decision = make_decision(forks=(fork,) * 500)
    page = render_html(
        msgspec.structs.replace(decision, comparisons=(*decision.comparisons, *guards))
    )
    assert page.count('<details class="fork"') == 500
    assert len(page.encode()) < LARGEST_PAGE

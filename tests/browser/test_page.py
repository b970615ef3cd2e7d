"""The report in a real browser: quiet, reachable by keyboard and screen reader, whole on paper."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest

from gate.records import Comparison, Decision
from gate.report import render_html
from tests.browser.conftest import Open, Scheme, Visit
from tests.report.builders import (
    FACTORIES,
    make_decision,
    make_fail,
    make_full,
    make_large,
    make_pass,
)
from tests.report.hostile import HOSTILE, poison
from tests.report.parts import make_ratio

pytestmark = pytest.mark.browser

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
OPEN_ALL = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
SHOWN = "Array.from(document.querySelectorAll('details.fork')).filter(f => !f.hidden).length"
ATTACKS = (
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "<svg onload='window.ran = 1'><animate onbegin='window.ran = 1' attributeName=x dur=1s></svg>",
    "'-->]]></style></script><script>window.ran = 1</script><style>*{display:none}",
    "<a href='javascript:window.ran = 1'>x</a><iframe srcdoc='<script>top.ran = 1</script>'>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'><link rel=stylesheet href=//x>",
    *HOSTILE,
)
SITUATIONS = (*FACTORIES, make_full)


def shrink_to_one_class() -> Decision:
    """A run of one class in which only the mix was timed: one batch size, no GPU."""
    decision = make_decision()
    kept = [one for one in decision.comparisons if one.group in {"all", "code", "format"}]
    return msgspec.structs.replace(decision, comparisons=(*kept, make_ratio("code", 0.8)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("factory", [*SITUATIONS, shrink_to_one_class])
def test_every_situation_is_quiet_and_accessible(
    open_page: Open, factory: Callable[[], Decision], scheme: Scheme
) -> None:
    visit = open_page(render_html(factory()), scheme=scheme)
    visit.page.evaluate(OPEN_ALL)
    assert visit.count_violations() == []
    visit.check_quiet()


@pytest.mark.parametrize("width", [320, 390, 820, 1280])
@pytest.mark.parametrize("factory", [make_full, make_fail])
def test_no_width_overflows(open_page: Open, factory: Callable[[], Decision], width: int) -> None:
    visit = open_page(render_html(factory()), width=width)
    visit.page.evaluate(OPEN_ALL)
    assert visit.page.evaluate(OVERFLOW) <= 0


def test_paper_holds_everything_unfolded_and_nothing_runs_over_the_edge(open_page: Open) -> None:
    visit = open_page(render_html(make_full()), width=720)
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    assert visit.page.evaluate(OVERFLOW) <= 0
    visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert visit.page.evaluate("document.querySelectorAll('details:not([open])').length") > 0
    paper = visit.page.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    visit.check_quiet()


def tab_to(visit: Visit, selector: str) -> None:
    """Press the tabulator until ``selector`` has the focus."""
    for _ in range(400):
        visit.page.keyboard.press("Tab")
        if visit.page.evaluate("s => document.activeElement.matches(s)", selector):
            return
    pytest.fail(f"{selector} cannot be reached by keyboard")


def test_forks_are_filtered_by_keyboard_alone(open_page: Open) -> None:
    visit = open_page(render_html(make_fail()))
    assert visit.page.evaluate(SHOWN) == 8
    tab_to(visit, "#fork-kind")
    visit.page.keyboard.press("t")  # the only kind with a t: tie
    assert visit.page.evaluate(SHOWN) == 1
    assert visit.page.text_content("#fork-count") == "1 of 8 shown"
    visit.page.keyboard.press("Home")  # all
    tab_to(visit, "#fork-class")
    visit.page.keyboard.press("c")
    assert visit.page.evaluate(SHOWN) == 3
    tab_to(visit, "#fork-text")
    visit.page.keyboard.type("gsm8k-6")
    assert visit.page.evaluate(SHOWN) == 1
    visit.check_quiet()


def test_forks_and_criteria_open_and_close_by_keyboard_alone(open_page: Open) -> None:
    visit = open_page(render_html(make_fail()))
    for selector in ("details.settled > summary", "details.fork:not([open]) > summary"):
        tab_to(visit, selector)
        visit.page.keyboard.press("Enter")
        assert visit.page.evaluate("document.activeElement.parentElement.open")
        visit.page.keyboard.press("Enter")
        assert not visit.page.evaluate("document.activeElement.parentElement.open")
    visit.check_quiet()


def test_open_all_and_close_all_reach_every_fork(open_page: Open) -> None:
    visit = open_page(render_html(make_fail()))
    count = "document.querySelectorAll('details.fork[open]').length"
    tab_to(visit, "#fork-open")
    visit.page.keyboard.press("Enter")
    assert visit.page.evaluate(count) == 8
    tab_to(visit, "#fork-close")
    visit.page.keyboard.press("Enter")
    assert visit.page.evaluate(count) == 0


def test_without_script_everything_is_there_and_the_filters_are_not(open_page: Open) -> None:
    visit = open_page(render_html(make_fail()), script=False)
    assert visit.page.locator("details.fork").count() == 8
    assert not visit.page.locator(".filters").is_visible()
    visit.page.locator("details.fork > summary").last.click()
    assert visit.page.locator("details.fork .sides").last.is_visible()


def test_without_script_paper_is_unfolded_too(open_page: Open) -> None:
    visit = open_page(render_html(make_fail()), script=False)
    visit.page.emulate_media(media="print")
    box = visit.page.locator("details.fork .sides").last.bounding_box()
    assert box is not None
    assert box["height"] > 0


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_nothing_hostile_runs_or_is_fetched(open_page: Open, attack: str) -> None:
    visit = open_page(render_html(poison(make_full(), attack)))
    visit.page.evaluate(OPEN_ALL)
    visit.page.wait_for_timeout(50)
    assert visit.page.evaluate("window.ran") is None
    assert visit.page.evaluate("document.scripts.length") == 1
    assert visit.page.evaluate(OVERFLOW) <= 0
    assert visit.page.locator("h1").is_visible()
    visit.check_quiet()


def test_a_script_that_got_into_the_page_would_still_not_run(open_page: Open) -> None:
    page = render_html(make_pass()).replace("</main>", f"{ATTACKS[0]}{ATTACKS[1]}</main>")
    visit = open_page(page)
    assert visit.page.evaluate("window.ran") is None
    assert any("Content Security Policy" in line for line in visit.said)


def test_five_thousand_requests_with_five_hundred_forks_open_within_two_seconds(
    open_page: Open,
) -> None:
    html = render_html(make_large())
    assert len(html.encode()) < 3_000_000
    start = time.monotonic()
    visit = open_page(html)
    shown = visit.page.evaluate(SHOWN)  # laid out, scripted, ready
    assert time.monotonic() - start < 2
    assert shown == 500
    assert "812 requests differ" in (visit.page.text_content("#forks ~ p") or "")
    visit.check_quiet()


def test_what_a_run_did_not_measure_is_said_and_not_left_out(open_page: Open) -> None:
    visit = open_page(render_html(make_decision(comparisons=(Comparison(measure="forks"),))))
    assert "not measured" in (visit.page.text_content("main") or "")
    visit.check_quiet()

"""The page of all runs in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from gate.report.index import render_index
from gate.report.runs import read_runs
from tests.browser.conftest import Open, Scheme
from tests.report.builders import make_error, make_fail, make_pass
from tests.report.test_index import NAMES, NOW, write_run

pytestmark = pytest.mark.browser

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def write_index(reports: Path, *names: str) -> Path:
    for day, (name, factory) in enumerate(
        zip(names, (make_pass, make_fail, make_error), strict=False), 1
    ):
        write_run(reports, name, factory(), day)
    path = reports / "index.html"
    path.write_text(render_index(read_runs(reports), NOW), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_index_is_quiet_accessible_and_within_its_width(
    open_page: Open, tmp_path: Path, scheme: Scheme, width: int
) -> None:
    visit = open_page(write_index(tmp_path, "a", "b", "c"), width=width, scheme=scheme)
    assert visit.page.evaluate(OVERFLOW) <= 0
    assert visit.count_violations() == []
    visit.check_quiet()


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_the_link_of_a_hostile_name_opens_its_report(
    open_page: Open, tmp_path: Path, name: str
) -> None:
    visit = open_page(write_index(tmp_path, name, "b"))
    visit.check_quiet()
    visit.page.locator("tbody a").last.click()
    assert visit.page.text_content("body") == "page"

"""All runs on one page: nothing unread is left out, and no name or text leads anywhere else."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pytest

from gate.cli import main
from gate.errors import UsageError
from gate.records import Decision
from gate.report.contrast import contrast_runs
from gate.report.index import render_index
from gate.report.runs import list_rows, list_trends, read_runs
from gate.store import encode_record, seal
from tests.report.builders import make_error, make_fail, make_inconclusive, make_pass
from tests.report.hostile import HOSTILE, Outline, poison

NOW = dt.datetime(2026, 11, 6, tzinfo=dt.UTC)
NAMES = (
    "<script>alert(1)</script>",
    "javascript:alert(1)",
    "..%2f..%2fetc",
    '" onmouseover="x',
    "a\u202eb\x1b[31m",
    "x" * 200,
    "%00 #?&",
    os.fsdecode(b"\xff\xfe"),
)


def write_run(reports: Path, name: str, decision: Decision, day: int = 1) -> None:
    folder = reports / name.replace("/", "_")
    folder.mkdir(parents=True)
    made = msgspec.structs.replace(decision, created_at=f"2026-11-{day:02d}T10:00:00+00:00")
    (folder / "decision.json").write_bytes(encode_record(seal(made)))
    (folder / "report.html").write_text("page")


def show(reports: Path, *names: str) -> str:
    return render_index(read_runs(reports), NOW, names)


def test_runs_are_listed_newest_first_and_linked_but_latest_is_no_run(tmp_path: Path) -> None:
    write_run(tmp_path, "old", make_pass(), 1)
    write_run(tmp_path, "new", make_fail(), 2)
    (tmp_path / "latest").symlink_to("new")
    rows = list_rows(read_runs(tmp_path))
    assert [row.name for row in rows] == ["new", "old"]
    assert [row.link for row in rows] == ["./new/report.html", "./old/report.html"]
    assert [badge.outcome for badge in rows[0].badges] == ["FAIL", "FAIL", "PASS"]
    assert (rows[0].speed, rows[0].defects) == ("1.41× as fast", "7")


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    write_run(tmp_path, "good", make_pass())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/decision.json").write_text("{")
    write_run(tmp_path, "edited", make_fail())
    path = tmp_path / "edited/decision.json"
    path.write_text(path.read_text().replace('"outcome": "FAIL"', '"outcome": "PASS"'))
    rows = {row.name: row for row in list_rows(read_runs(tmp_path))}
    assert rows["broken"].badges == rows["edited"].badges == ()
    assert "no readable decision" in rows["broken"].reason
    assert "edited since" in rows["edited"].reason
    assert show(tmp_path).count("not readable") == 2


def test_no_runs_are_said_to_be_none(tmp_path: Path) -> None:
    assert "There is no run here yet" in show(tmp_path)


def test_one_run_is_no_trend_and_two_are(tmp_path: Path) -> None:
    write_run(tmp_path, "a", make_pass(), 1)
    assert list_trends(read_runs(tmp_path)) == ()
    write_run(tmp_path, "b", make_fail(), 2)
    trends = {chart.title: chart.remark for chart in list_trends(read_runs(tmp_path))}
    assert trends["Token defects of the candidate"] == "from 0 to 7"


def test_two_runs_are_compared_criterion_by_criterion(tmp_path: Path) -> None:
    stricter = make_fail()
    criteria = tuple(
        msgspec.structs.replace(one, margin=0.02) if one.name == "task accuracy" else one
        for one in stricter.criteria
    )
    write_run(tmp_path, "a", make_pass(), 1)
    write_run(tmp_path, "b", msgspec.structs.replace(stricter, criteria=criteria), 2)
    write_run(tmp_path, "c", make_error(), 3)
    later, earlier = (run for run in read_runs(tmp_path) if run.folder.name != "c")
    contrast = contrast_runs(later, earlier)
    assert contrast is not None
    assert (contrast.earlier.name, contrast.later.name) == ("a", "b")
    marks = {(row.criterion, row.group): row.marks for row in contrast.rows}
    assert marks["token certificate", "all requests"] == ("outcome",)
    assert marks["task accuracy", "all requests"] == ("margin",)
    assert marks["exercised", "all requests"] == ()
    assert contrast.rows[-1].marks == ()


def test_what_ran_is_compared_and_equal_facts_are_only_counted(tmp_path: Path) -> None:
    old = make_pass()
    candidate = {**old.provenance["candidate"], "n_requests": 61}
    changed = msgspec.structs.replace(
        old, provenance={**old.provenance, "candidate": candidate})  # fmt: skip
    write_run(tmp_path, "a", old, 1)
    write_run(tmp_path, "b", changed, 2)
    contrast = contrast_runs(*read_runs(tmp_path))
    assert contrast is not None
    assert [(row.name, row.baseline, row.candidate) for row in contrast.provenance] == [
        ("candidate.n_requests", "60", "61")]  # fmt: skip
    assert contrast.n_equal > 10


def test_a_run_that_was_not_finished_is_compared_too(tmp_path: Path) -> None:
    write_run(tmp_path, "a", make_pass(), 1)
    write_run(tmp_path, "b", make_error(), 2)
    contrast = contrast_runs(*read_runs(tmp_path))
    assert contrast is not None
    assert {row.marks for row in contrast.rows} == {("only one of the runs",)}


def test_a_name_that_is_no_run_is_refused_with_those_that_are(tmp_path: Path) -> None:
    write_run(tmp_path, "a", make_pass())
    with pytest.raises(UsageError, match="the newest are a"):
        show(tmp_path, "a", "b")


def test_the_command_writes_the_page_and_refuses_a_missing_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, factory in (("a", make_pass), ("b", make_inconclusive)):
        write_run(tmp_path, name, factory())
    assert main(["index", "--out", str(tmp_path), "--compare", "a", "reports/b/"]) == 0
    assert "2 runs" in capsys.readouterr().out
    page = (tmp_path / "index.html").read_text()
    assert "Two runs compared" in page
    assert main(["index", "--out", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


def check_inert(page: str, reports: Path) -> None:
    outline = Outline(page)
    assert outline.broken == []
    assert outline.count("script") == outline.count("img") == outline.count("iframe") == 0
    assert not [name for _, attrs in outline.tags for name in attrs if name.startswith("on")]
    for link in outline.values("href"):
        parts = urlsplit(link)
        assert (parts.scheme, parts.netloc, parts.query) == ("", "", "")
        if not link.startswith("#"):
            folder = unquote(parts.path.split("/")[1], errors="surrogateescape")
            assert (reports / folder / "report.html").is_file()
    assert "\x1b" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_folder_name_is_text_and_its_link_leads_to_its_own_page(
    tmp_path: Path, name: str
) -> None:
    write_run(tmp_path, name, make_pass(), 1)
    write_run(tmp_path, "b", make_fail(), 2)
    page = show(tmp_path)
    page.encode()
    check_inert(page, tmp_path)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_the_decisions_stays_text(tmp_path: Path, text: str) -> None:
    written = text[:10_000].encode("utf-8", "ignore").decode()  # no file holds a lone surrogate
    for name, factory in (("a", make_pass), ("b", make_fail)):
        write_run(tmp_path, name, keep_types(poison(factory(), written)))
    assert len(list_rows(read_runs(tmp_path))[0].badges) == 3
    check_inert(show(tmp_path), tmp_path)


def keep_types(decision: Decision) -> Decision:
    """Drop what no file could hold: a text where a mapping of the arm's facts belongs."""
    arms = {arm: decision.provenance[arm] for arm in ("baseline", "candidate")}
    return msgspec.structs.replace(decision, provenance=arms, surface_values={})


@pytest.mark.parametrize("factory", [make_pass, make_fail, make_error])
def test_many_runs_make_a_bounded_page(tmp_path: Path, factory: Callable[[], Decision]) -> None:
    write_run(tmp_path, "a", factory())
    runs = read_runs(tmp_path) * 2000
    page = render_index(runs, NOW)
    assert "The newest 500 of 2000 are shown." in page
    assert len(page.encode()) < 3_000_000

"""The markdown summary: the decision's words, and nobody else's markup."""

from __future__ import annotations

import itertools
import re

import msgspec
import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt

from gate.errors import RunError
from gate.export.summary import escape_markdown, render_summary
from gate.export.text import clip, show_hidden, to_line
from gate.records import Outcome
from tests.report.builders import make_decision, make_error, make_fail
from tests.report.hostile import HOSTILE, TEXTS, poison

RENDERER = MarkdownIt("gfm-like", {"linkify": False})
OURS = {"h2", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
FOLDED = {"details", "summary"}


def count_rows(summary: str) -> int:
    return str(RENDERER.render(summary)).count("<tr>")


N_ROWS = count_rows(render_summary(make_fail()))


def read_tags(summary: str) -> set[str]:
    return set(re.findall(r"<([a-z0-9]+)", RENDERER.render(summary)))


def check_inert(summary: str) -> None:
    assert read_tags(summary) <= OURS | FOLDED
    assert not re.search(r"@\w|#\d|://|www\.|GH-\d", summary)
    for ours in ("<details><summary>", "</summary>", "</details>"):
        assert summary.count(ours) <= 1
        summary = summary.replace(ours, "")
    assert "<" not in summary.replace("&lt;", "")
    summary.encode()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_every_field_stays_text(text: str) -> None:
    summary = render_summary(poison(make_fail(), text))
    check_inert(summary)
    assert count_rows(summary) == N_ROWS
    assert len(summary) < 60_000  # GitHub refuses a comment above 65,536 characters


def test_a_thousand_long_verdicts_fit_into_a_comment_and_are_counted() -> None:
    decision = make_fail()
    failed = next(v for v in decision.verdicts if v.outcome is Outcome.FAIL)
    passed = next(v for v in decision.verdicts if v.outcome is Outcome.PASS)
    many = [
        msgspec.structs.replace(one, group=f"g{n}", reason="<&>*" * 1000)
        for n in range(500)
        for one in (failed, passed)
    ]
    notes = tuple("<&>*" * 1000 for _ in range(500))
    long = msgspec.structs.replace(
        decision, verdicts=tuple(many), notes=notes, reason="<&>*" * 1000
    )
    summary = render_summary(long)
    check_inert(summary)
    assert len(summary) < 65_536
    assert len(summary.encode()) < 2**20
    assert summary.count(" more, in report.html") == 2
    assert re.search(r"^- and \d+ more$", summary, re.MULTILINE)


def test_what_does_not_stop_the_release_is_folded_away() -> None:
    before, after = render_summary(make_fail()).split("<details>")
    assert "❌ FAIL |" in before
    assert "✅ PASS |" not in before.split("Purpose |")[1].split("\n\n", 1)[1]
    assert "✅ PASS |" in after


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_any_text_in_every_field_stays_text(text: str) -> None:
    summary = render_summary(poison(make_fail(), text))
    check_inert(summary)
    assert count_rows(summary) == N_ROWS


@pytest.mark.parametrize("outcomes", list(itertools.product(Outcome, repeat=3)))
def test_the_outcome_words_are_those_of_the_decision(outcomes: tuple[Outcome, ...]) -> None:
    changes = dict(zip(("outcome", "content", "gain"), outcomes, strict=True))
    lines = render_summary(msgspec.structs.replace(make_error(), **changes)).splitlines()
    assert lines[0].endswith(f"Decoding gate: {outcomes[0]}")
    row = next(line for line in lines if line.endswith("| lossless | release |"))
    assert [cell.split()[-1] for cell in row.split("|")[1:3]] == list(outcomes[1:])


def test_an_unknown_outcome_is_an_error() -> None:
    with pytest.raises(RunError, match="fine"):
        render_summary(make_decision(outcome="fine"))


def test_what_stops_the_release_comes_first_and_what_was_not_judged_last() -> None:
    summary = render_summary(make_fail())
    assert summary.index("guard flips") < summary.index("exercised") < summary.index("task alarm")


def test_without_verdicts_it_says_that_no_evidence_is_no_pass() -> None:
    assert "No evidence is never a pass" in render_summary(make_error())


def test_defects_are_shown_before_ties() -> None:
    table = render_summary(make_fail()).split("First forks")[1]
    assert "defect" in table
    assert "tie" not in table


@pytest.mark.parametrize("text", ["@team", "#12", "a|b", "`x`", "<b>", "*x*", "[a](b)", ":tada:"])
def test_markup_reads_as_the_characters_it_is_made_of(text: str) -> None:
    html = RENDERER.renderInline(escape_markdown(text)).replace("\u200b", "")
    assert html == text.replace("<", "&lt;").replace(">", "&gt;")


def test_hidden_characters_are_written_as_escapes() -> None:
    assert show_hidden("a\x1b\u202e\x00\ud800\xa0\n") == r"a\x1b\u202e\x00\ud800\xa0" + "\n"
    assert to_line("a\nb\tc") == r"a\nb\tc"
    assert show_hidden("naïve 日本 😀") == "naïve 日本 😀"


def test_a_clipped_text_says_how_much_is_missing() -> None:
    assert clip("abcdef", 2) == "ab… (4 more characters)"
    assert clip("ab", 2) == "ab"

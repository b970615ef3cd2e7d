"""Page, JSON, JUnit, pytest, summary, exit code and release check agree, whatever the verdicts."""

from __future__ import annotations

import datetime as dt
import xml.etree.ElementTree as ET

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.commands.common import EXIT_CODES
from gate.criteria import decide
from gate.errors import UsageError
from gate.export.junit import render_junit
from gate.export.summary import render_summary
from gate.provenance import make_surface
from gate.records import Decision, Outcome, Purpose, Verdict, Waiver
from gate.release import list_refusals
from gate.report.view import make_page
from gate.store import encode, seal
from gate.surface import Surface
from gate.testing.judged import judge_decision
from gate.waivers import apply_waivers
from tests.export.builders import make_decision, make_verdict
from tests.report.hostile import TEXTS

NOW = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)
VALUES: dict[str, dict[str, object]] = {"weights": {"sha256": "aa"}}
PURPOSES: tuple[Purpose, ...] = ("content", "release")
NAMES = ("token certificate", "format flips", "speed")


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    name = draw(st.sampled_from(NAMES))
    return make_verdict(
        draw(st.sampled_from(list(Outcome))),
        name,
        blocking=draw(st.booleans()),
        group=draw(st.sampled_from(("all", "code"))),
        half="gain" if name == "speed" else "content",
        reason=draw(TEXTS),
    )


def judge_gain(verdict: Verdict, purpose: Purpose) -> Verdict:
    """A gain outside its purpose is not judged (criteria.py)."""
    is_outside = verdict.half == "gain" and purpose == "content"
    return msgspec.structs.replace(verdict, outcome=Outcome.NOT_JUDGED) if is_outside else verdict


@st.composite
def waivers(draw: st.DrawFn) -> Waiver:
    return Waiver(
        criterion=draw(st.sampled_from(NAMES)),
        group=draw(st.sampled_from(("all", "code"))),
        reason=draw(TEXTS),
        who="desk",
        until="2027-01-01",
    )


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """Return a decision as the gate makes it of any verdicts under any waivers."""
    purpose = draw(st.sampled_from(PURPOSES))
    signed = draw(st.lists(waivers(), max_size=2))
    judged = [judge_gain(one, purpose) for one in draw(st.lists(verdicts(), max_size=6))]
    found, _ = apply_waivers(judged, signed)
    halves = decide(found, purpose)
    decision = make_decision(
        halves.outcome,
        *found,
        content=halves.content,
        gain=halves.gain,
        purpose=purpose,
        reason=draw(TEXTS),
        waivers=tuple(v.waiver for v in found if v.waiver),
        surface=make_surface(VALUES),
        surface_values=VALUES,
    )
    return seal(decision)


def check_release(decision: Decision) -> int:
    """Return what 'gate check' would, for the surface that was judged."""
    hashes = make_surface(VALUES)
    surface = Surface(hash=hashes.pop("hash"), parts=hashes, values=VALUES)
    try:
        return 3 if list_refusals(decision, surface, NOW) else 0
    except UsageError:
        return 2


@settings(max_examples=150, deadline=None)
@given(decisions())
def test_every_surface_tells_the_decisions_own_outcome(decision: Decision) -> None:
    is_pass = decision.outcome is Outcome.PASS
    stored = msgspec.json.decode(encode(decision), type=Decision)
    page, junit = make_page(decision), ET.fromstring(render_junit(decision))
    head = render_summary(decision).splitlines()[0]
    whole = next(case for case in junit.iter("testcase") if case.get("name") == "decision")
    assert stored.outcome is decision.outcome
    assert page.badge.outcome == str(decision.outcome)
    assert f"Decoding gate: {decision.outcome}" in head
    assert (len(whole) == 0) == is_pass
    assert int(junit.get("failures", "")) + int(junit.get("errors", "")) == 0 or not is_pass
    assert (judge_decision(decision, "fail", NOW).status == "pass") == is_pass
    assert (EXIT_CODES[decision.outcome] == 0) == is_pass
    assert (check_release(decision) == 0) == is_pass
    assert bool(page.stopping) <= (not is_pass)


@settings(max_examples=150, deadline=None)
@given(decisions())
def test_no_waiver_is_silent_on_any_surface(decision: Decision) -> None:
    n = len(decision.waivers)
    summary, junit = render_summary(decision), render_junit(decision)
    alerts = " ".join(make_page(decision).alerts)
    assert (" with " in summary.splitlines()[0]) == (n > 0)
    assert ("waived until" in summary) == (n > 0)
    assert ("waived until" in junit) == (n > 0)
    assert ("Waived until" in alerts) == (n > 0)

"""Plugin, exit code and JUnit agree, for every combination of outcomes."""

from __future__ import annotations

import datetime as dt
import xml.etree.ElementTree as ET
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.commands.common import EXIT_CODES
from gate.criteria import decide
from gate.export.junit import render_junit
from gate.records import Decision, Purpose, Verdict, Waiver
from gate.testing.judged import judge_decision, judge_verdict
from tests.export.builders import make_decision, make_verdict
from tests.plugin.running import run_on
from tests.plugin.test_junitxml import OUTCOMES, read_tags

pytest_plugins = ("pytester",)

NOW = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)
TAGS = {"pass": "passed", "fail": "failure", "error": "error", "skip": "skipped"}
MODES = ("fail", "warn", "skip")
PURPOSES: tuple[Purpose, ...] = ("content", "release")
Half = Literal["content", "gain"]
HALVES: tuple[Half, ...] = ("content", "gain")
WAIVER = Waiver(criterion="token certificate", reason="known", who="Ada", until="2999-01-01")
WAIVABLE = ("FAIL", "INCONCLUSIVE")
VERDICTS = st.builds(
    lambda outcome, blocking, waiver: make_verdict(
        outcome, blocking=blocking, waiver=waiver if outcome in WAIVABLE else None
    ),
    st.sampled_from(OUTCOMES),
    st.booleans(),
    st.sampled_from([None, None, WAIVER]),
)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """Return a decision as the gate makes it of any verdicts; a gain is judged in a release."""
    verdicts = draw(st.lists(VERDICTS, max_size=6))
    purpose: Purpose = draw(st.sampled_from(PURPOSES))
    if purpose == "release":
        halves: list[Half] = [draw(st.sampled_from(HALVES)) for _ in verdicts]
        pairs = zip(verdicts, halves, strict=True)
        verdicts = [msgspec.structs.replace(v, half=half) for v, half in pairs]
    found = decide(verdicts, purpose)
    return make_decision(found.outcome, *verdicts, content=found.content, gain=found.gain)


@given(decisions())
def test_by_default_each_item_ends_as_its_junit_case_does(decision: Decision) -> None:
    whole, *cases = read_tags(ET.fromstring(render_junit(decision)))
    assert TAGS[judge_decision(decision, "fail", NOW).status] == whole
    assert [TAGS[judge_verdict(v, "fail").status] for v in decision.verdicts] == cases


@given(decisions())
def test_by_default_a_test_run_is_green_exactly_where_the_exit_code_is_0(
    decision: Decision,
) -> None:
    statuses = {judge_verdict(v, "fail").status for v in decision.verdicts}
    statuses.add(judge_decision(decision, "fail", NOW).status)
    assert statuses.isdisjoint({"fail", "error"}) == (EXIT_CODES[decision.outcome] == 0)


@given(decisions(), st.sampled_from(MODES))
def test_the_other_modes_forgive_inconclusive_alone(decision: Decision, mode: str) -> None:
    judged = judge_decision(decision, mode, NOW).status  # type: ignore[arg-type]
    is_green = judged not in ("fail", "error")
    assert is_green == (decision.outcome == "PASS" or (decision.outcome, mode) in FORGIVEN)
    assert (judged == "pass") == (decision.outcome == "PASS")


FORGIVEN = {("INCONCLUSIVE", "warn"), ("INCONCLUSIVE", "skip")}


@given(st.sampled_from(OUTCOMES), st.lists(VERDICTS, max_size=4), st.sampled_from(MODES))
def test_whatever_a_file_claims_green_needs_evidence_and_no_failing_verdict(
    outcome: str, verdicts: list[Verdict], mode: str
) -> None:
    judged = judge_decision(make_decision(outcome, *verdicts), mode, NOW)  # type: ignore[arg-type]
    blocking = {v.outcome for v in verdicts if v.blocking and v.waiver is None}
    if judged.status == "pass":
        assert outcome == "PASS"
        assert blocking - {"NOT_JUDGED"} == {"PASS"}
    elif judged.status in ("warn", "skip"):
        assert outcome == "INCONCLUSIVE"
        assert blocking.isdisjoint({"FAIL", "ERROR"})


@pytest.mark.parametrize("outcome", ["PASS", "FAIL", "INCONCLUSIVE", "ERROR"])
def test_a_real_run_of_pytest_ends_as_the_exit_code_does(
    pytester: pytest.Pytester, outcome: str
) -> None:
    decision = make_decision(outcome, make_verdict(outcome), make_verdict("PASS", "termination"))
    result = run_on(pytester, decision)
    assert (result.ret == pytest.ExitCode.OK) == (outcome == "PASS")
    found = result.parseoutcomes()
    kind = {"PASS": "passed", "ERROR": "errors"}.get(outcome, "failed")
    assert found[kind] >= 2

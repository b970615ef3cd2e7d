"""JUnit: green only when the decision is, and XML whatever a model wrote."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given, settings

from gate.errors import RunError
from gate.export.junit import render_junit
from gate.records import Decision, Outcome
from tests.report.builders import make_decision, make_error, make_fail, make_pass
from tests.report.hostile import HOSTILE, TEXTS, poison


def parse(document: str) -> ET.Element:
    return ET.fromstring(document)


def count_elements(document: str) -> int:
    return len(list(parse(document).iter()))


N_ELEMENTS = count_elements(render_junit(make_fail()))


def read_cases(decision: Decision) -> list[ET.Element]:
    return list(parse(render_junit(decision)).iter("testcase"))


def read_state(case: ET.Element) -> str:
    return next((child.tag for child in case), "passed")


def judge_one(outcome: Outcome, *, blocking: bool) -> ET.Element:
    verdict = msgspec.structs.replace(
        make_pass().verdicts[0], outcome=outcome, blocking=blocking, reason="because"
    )
    return read_cases(make_decision(verdicts=(verdict,)))[1]


@pytest.mark.parametrize(
    ("outcome", "blocking", "state"),
    [
        (Outcome.PASS, True, "passed"),
        (Outcome.FAIL, True, "failure"),
        (Outcome.ERROR, True, "error"),
        (Outcome.INCONCLUSIVE, True, "failure"),
        (Outcome.NOT_JUDGED, True, "skipped"),
        (Outcome.PASS, False, "passed"),
        (Outcome.FAIL, False, "skipped"),
        (Outcome.ERROR, False, "skipped"),
        (Outcome.INCONCLUSIVE, False, "skipped"),
        (Outcome.NOT_JUDGED, False, "skipped"),
    ],
)
def test_an_outcome_becomes_a_junit_state(outcome: Outcome, *, blocking: bool, state: str) -> None:
    case = judge_one(outcome, blocking=blocking)
    assert read_state(case) == state
    if state != "passed":
        assert "because" in case[0].attrib["message"]


def test_inconclusive_is_a_failure_that_says_so() -> None:
    assert judge_one(Outcome.INCONCLUSIVE, blocking=True)[0].attrib["type"] == "INCONCLUSIVE"


@pytest.mark.parametrize("outcome", Outcome)
def test_without_verdicts_only_pass_is_green(outcome: Outcome) -> None:
    cases = read_cases(msgspec.structs.replace(make_error(), outcome=outcome))
    expected = {Outcome.PASS: "passed", Outcome.ERROR: "error"}.get(outcome, "failure")
    assert [read_state(case) for case in cases] == [expected]


def test_there_is_a_testcase_per_verdict_and_one_for_the_decision() -> None:
    root = parse(render_junit(make_fail()))
    suite = root[0]
    counts = {name: suite.attrib[name] for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "8", "failures": "3", "errors": "0", "skipped": "1"}
    counts.pop("skipped")  # Jenkins' schema has it for a suite only
    assert counts.items() <= root.attrib.items()


@pytest.mark.parametrize("outcomes", list(itertools.product(Outcome, repeat=3)))
def test_the_outcome_words_are_those_of_the_decision(outcomes: tuple[Outcome, ...]) -> None:
    names = ("outcome", "content", "gain")
    changes = dict(zip(names, outcomes, strict=True))
    root = parse(render_junit(msgspec.structs.replace(make_error(), **changes)))
    shown = {one.attrib["name"]: one.attrib["value"] for one in root.iter("property")}
    assert {name: shown[name] for name in names} == changes


def test_an_unknown_outcome_is_an_error() -> None:
    with pytest.raises(RunError, match="GREEN"):
        render_junit(make_decision(outcome="GREEN"))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_every_field_stays_xml(text: str) -> None:
    document = render_junit(poison(make_fail(), text))
    document.encode()
    assert count_elements(document) == N_ELEMENTS


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_any_text_in_every_field_stays_xml(text: str) -> None:
    assert count_elements(render_junit(poison(make_fail(), text))) == N_ELEMENTS


SUITE = {"name", "tests", "failures", "errors", "time"}
KNOWN = {
    "testsuites": (SUITE, ["testsuite"]),
    "testsuite": (SUITE | {"skipped"}, ["properties", "testcase"]),
    "properties": (set(), ["property"]),
    "property": ({"name", "value"}, []),
    "testcase": ({"name", "classname", "time"}, ["failure", "error", "skipped"]),
    "failure": ({"type", "message"}, []),
    "error": ({"type", "message"}, []),
    "skipped": ({"message"}, []),
}
"""What GitHub's, GitLab's and Jenkins' readers all take: attributes, and children in order."""


@pytest.mark.parametrize("decision", [make_fail(), make_pass(), make_error()])
def test_the_document_holds_what_every_reader_takes(decision: Decision) -> None:
    for element in parse(render_junit(decision)).iter():
        attributes, children = KNOWN[element.tag]
        places = [children.index(child.tag) for child in element]
        assert set(element.attrib) == attributes
        assert places == sorted(places)
        assert all(element.get(name, "0").isdigit() for name in SUITE - {"name"})

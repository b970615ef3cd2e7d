"""--junitxml: pytest's own XML says what the gate's says."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from gate.export.junit import render_junit
from gate.records import Decision
from tests.export.builders import make_decision, make_verdict
from tests.plugin.running import run_on

pytest_plugins = ("pytester",)

OUTCOMES = ("PASS", "FAIL", "INCONCLUSIVE", "ERROR", "NOT_JUDGED")


def read_tags(root: ET.Element) -> list[str]:
    """Return what each test case came to, in order."""
    kinds = ("failure", "error", "skipped")
    return [
        next((kind for kind in kinds if case.find(kind) is not None), "passed")
        for case in root.iter("testcase")
    ]


def make_every_kind() -> Decision:
    """Return a decision with a blocking and a non-blocking verdict of every outcome."""
    verdicts = [
        make_verdict(outcome, f"{outcome} {blocking}", blocking=blocking)
        for outcome in OUTCOMES
        for blocking in (True, False)
    ]
    return make_decision("ERROR", *verdicts)


def test_pytests_xml_agrees_with_the_gates_own(pytester: pytest.Pytester) -> None:
    decision = make_every_kind()
    run_on(pytester, decision, "--junitxml=out.xml")
    ours = read_tags(ET.fromstring(render_junit(decision)))
    theirs = read_tags(ET.fromstring((pytester.path / "out.xml").read_text()))
    assert theirs == [*ours[1:], ours[0]]  # the gate's own names the decision first


def test_an_items_criterion_is_a_property(pytester: pytest.Pytester) -> None:
    run_on(pytester, make_decision("PASS", make_verdict("PASS")), "--junitxml=out.xml")
    root = ET.fromstring((pytester.path / "out.xml").read_text())
    found = [p.get("value") for p in root.iter("property") if p.get("name") == "gate_criterion"]
    assert found == ["token certificate[all]", "decision"]


def test_hostile_text_leaves_the_xml_well_formed(pytester: pytest.Pytester) -> None:
    verdict = make_verdict(
        "FAIL", "x", reason="\x00\x1b[31m]]><script>\udcff".replace("\udcff", "￿")
    )
    run_on(pytester, make_decision("FAIL", verdict), "--junitxml=out.xml")
    ET.fromstring((pytester.path / "out.xml").read_text())

"""The decision as JUnit XML, for the CI systems that read nothing else.

One testcase per verdict, and one for the decision itself: a run that broke before it
could judge anything has no verdicts, and an empty suite counts as green.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gate.export.outcomes import check_outcomes, stops_release, write_waived
from gate.export.text import to_block, to_line
from gate.records import Outcome

if TYPE_CHECKING:
    from gate.records import Decision, Verdict

CLASSNAME = "decoding-gate"


def render_junit(decision: Decision) -> str:
    """Return the decision as one JUnit ``testsuites`` document.

    Errors: RunError where an outcome is unknown.
    """
    check_outcomes(decision)
    root = Element("testsuites", name=CLASSNAME)
    suite = SubElement(root, "testsuite", name=CLASSNAME)
    _add_properties(suite, decision)
    _add_decision(suite, decision)
    for verdict in decision.verdicts:
        _add_verdict(suite, verdict)
    _add_counts(suite)
    _add_counts(root, of=suite)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _add_properties(suite: Element, decision: Decision) -> None:
    properties = SubElement(suite, "properties")
    for name in ("outcome", "content", "gain", "claim", "purpose", "run_id", "created_at"):
        value = to_line(str(getattr(decision, name)))
        SubElement(properties, "property", name=name, value=value)
    waived = ", ".join(f"{one.criterion} ({one.group})" for one in decision.waivers)
    SubElement(properties, "property", name="waivers", value=to_line(waived) or "none")


def _add_decision(suite: Element, decision: Decision) -> None:
    case = SubElement(suite, "testcase", classname=CLASSNAME, name="decision", time="0")
    if decision.outcome != Outcome.PASS:
        _add_problem(case, decision.outcome, decision.reason)


def _add_verdict(suite: Element, verdict: Verdict) -> None:
    classname = f"{CLASSNAME}.{to_line(verdict.criterion)}"
    case = SubElement(suite, "testcase", classname=classname, name=to_line(verdict.group), time="0")
    if stops_release(verdict):
        _add_problem(case, verdict.outcome, verdict.reason)
    elif verdict.outcome != Outcome.PASS:
        waived = to_line(write_waived(verdict))
        kind = verdict.outcome if verdict.blocking else f"{verdict.outcome}, not blocking"
        kind = f"{kind}, {waived}" if waived else kind
        SubElement(case, "skipped", message=f"{kind}: {to_line(verdict.reason)}")


def _add_problem(case: Element, outcome: Outcome, reason: str) -> None:
    tag = "error" if outcome == Outcome.ERROR else "failure"
    problem = SubElement(case, tag, type=str(outcome), message=to_line(reason))
    problem.text = to_block(reason)


def _add_counts(element: Element, of: Element | None = None) -> None:
    cases = list((element if of is None else of).iter("testcase"))
    element.set("tests", str(len(cases)))
    element.set("time", "0")  # readers add the times up
    kinds = [("failures", "failure"), ("errors", "error")]
    if of is None:  # Jenkins' schema knows no "skipped" of all suites together
        kinds.append(("skipped", "skipped"))
    for attribute, tag in kinds:
        element.set(attribute, str(sum(case.find(tag) is not None for case in cases)))

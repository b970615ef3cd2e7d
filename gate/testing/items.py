"""The decision as pytest items."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from gate.export.forks import describe_fork
from gate.export.outcomes import sort_forks, stops_release
from gate.export.text import to_line
from gate.records import Decision, Verdict
from gate.testing.judged import Judged, Mode, judge_decision, judge_verdict

PROPERTY = "gate_criterion"
"""The user property that names an item's criterion: in JUnit XML, and for the summary."""
WHOLE = "decision"
TOKEN_MEASURES = ("token certificate", "flip rate", "unexplained rate")
"""Criteria whose failure shows the first fork."""


class InconclusiveWarning(pytest.PytestWarning):
    """Raised by ``--gate-inconclusive=warn`` in the place of a failure."""


class DecisionFile(pytest.File):
    """The decision.json, or the gate.toml that was run: what the items belong to."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield nothing: the plugin makes the items, before and after the selection."""
        return iter(())


class GateItem(pytest.Item):
    """What one verdict, or the decision, came to. ERROR is raised in setup: pytest's error."""

    judged: Judged

    def setup(self) -> None:
        """Report an ERROR."""
        if self.judged.status == "error":
            pytest.fail(self.judged.message, pytrace=False)

    def runtest(self) -> None:
        """Report everything else."""
        status, message = self.judged
        if status == "fail":
            pytest.fail(message, pytrace=False)
        if status == "skip":
            pytest.skip(message)
        if status == "warn":
            warnings.warn_explicit(InconclusiveWarning(message), None, str(self.path), 1)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Locate the item in its file."""
        return self.path, None, self.name


class VerdictItem(GateItem):
    """One criterion on one group."""


class DecisionItem(GateItem):
    """The whole decision."""


ItemType = TypeVar("ItemType", bound=GateItem)


def make_verdict_items(session: pytest.Session, decision: Decision) -> list[pytest.Item]:
    """Return an item per verdict, named ``criterion[group]``; a second of a name is numbered."""
    file = _make_file(session)
    return _announce(file, list(_make_verdicts(file, decision)))


def make_decision_item(session: pytest.Session, decision: Decision | None) -> list[pytest.Item]:
    """Return the item of the whole decision. decision: None where nothing was run."""
    file = _make_file(session)
    judged = Judged("error", "the gate was not run")
    if decision is not None:
        judged = judge_decision(decision, _read_mode(file), dt.datetime.now(dt.UTC))
    item: DecisionItem = DecisionItem.from_parent(file, name=WHOLE)
    return _announce(file, [_finish(item, judged, WHOLE)])


def _announce(file: DecisionFile, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Tell pytest of new items, as collecting does; --lf leaves out files when it collects."""
    for item in items:
        file.ihook.pytest_itemcollected(item=item)
    report = pytest.CollectReport(file.nodeid, "passed", None, list(items))
    file.ihook.pytest_collectreport(report=report)
    return list(items)


def _make_verdicts(file: DecisionFile, decision: Decision) -> Iterator[VerdictItem]:
    names: dict[str, int] = {}
    for verdict in decision.verdicts:
        name = _name(verdict)
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name = f"#{names[name]} {name}"
        judged = _add_fork(judge_verdict(verdict, _read_mode(file)), verdict, decision)
        # spelled out, so that the id is the one that --lf reads back from its text
        item: VerdictItem = VerdictItem.from_parent(
            file, name=name, nodeid=f"{file.nodeid}::{name}"
        )
        yield _finish(item, judged, name)


def _finish(item: ItemType, judged: Judged, name: str) -> ItemType:
    item.judged = judged
    item.add_marker("gate")
    item.user_properties.append((PROPERTY, name))
    return item


def _make_file(session: pytest.Session) -> DecisionFile:
    config = session.config
    path: Path = config.getoption("gate_decision") or config.getoption("gate_config")
    file: DecisionFile = DecisionFile.from_parent(session, path=path.absolute())
    return file


def _read_mode(file: DecisionFile) -> Mode:
    mode: Mode = file.config.getoption("gate_inconclusive")
    return mode


def _name(verdict: Verdict) -> str:
    """Return a readable id; colons would look like a part of the path."""
    return to_line(f"{verdict.criterion}[{verdict.group}]", 200).replace("::", ": :")


def _add_fork(judged: Judged, verdict: Verdict, decision: Decision) -> Judged:
    if not (stops_release(verdict) and verdict.criterion in TOKEN_MEASURES and decision.forks):
        return judged
    fork = describe_fork(sort_forks(decision.forks)[0])
    return judged._replace(message=f"{judged.message}\n\n{fork}")

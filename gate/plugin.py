"""The pytest plugin: a decision as test items, so that a build fails where the gate did.

``pytest --gate-decision reports/latest/decision.json`` adds one item per verdict, named
``criterion[group]``, and one named ``decision``. They run whatever ``-k`` and ``-m``
select. The plugin translates and judges nothing; pytest loads it in every environment
that has the gate, so the module imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gate.records import Decision, Outcome, Verdict

DECISION = pytest.StashKey["Decision"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the gate's options."""
    group = parser.getgroup("gate", "decoding gate")
    group.addoption(
        "--gate-decision",
        metavar="FILE",
        type=Path,
        help="a run's decision.json: one test per verdict, and one for the decision",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the decision before anything runs. Raises pytest.UsageError (exit code 4)."""
    path = config.getoption("gate_decision")
    if path is not None:
        config.stash[DECISION] = _read_decision(path)


@pytest.hookimpl(trylast=True)  # after -k and -m have deselected: a decision is not optional
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the decision's items behind the user's own tests."""
    path = session.config.getoption("gate_decision")
    if path is not None:
        collector: DecisionFile = DecisionFile.from_parent(session, path=path.absolute())
        items.extend(session.genitems(collector))


def _read_decision(path: Path) -> Decision:
    from gate.errors import UsageError  # noqa: PLC0415 - only where a decision is given
    from gate.records import SCHEMA  # noqa: PLC0415
    from gate.store import read_decision  # noqa: PLC0415

    try:
        decision = read_decision(path)
    except UsageError as error:
        msg = f"--gate-decision {error}"
        raise pytest.UsageError(msg) from error
    if decision.schema != SCHEMA:
        msg = (
            f"--gate-decision {path}: has schema {decision.schema}, and this version reads "
            f"{SCHEMA}; run the gate again"
        )
        raise pytest.UsageError(msg)
    return decision


class DecisionFile(pytest.File):
    """A decision.json as a collector."""

    def collect(self) -> Iterator[DecisionItem | VerdictItem]:
        """Yield one item per verdict, and the decision itself."""
        decision = self.config.stash[DECISION]
        for verdict in decision.verdicts:
            name = f"{verdict.criterion}[{verdict.group}]"
            yield VerdictItem.from_parent(self, name=name, verdict=verdict)
        yield DecisionItem.from_parent(self, name="decision", decision=decision)


class GateItem(pytest.Item):
    """An outcome and its message. ERROR shows as pytest's error: it is raised in setup."""

    outcome: Outcome
    message: str
    stops: bool

    def setup(self) -> None:
        """Report an ERROR that stops the release."""
        if self.stops and self.outcome == "ERROR":
            pytest.fail(self.message, pytrace=False)

    def runtest(self) -> None:
        """Report everything else: what stops the release fails, what was not judged skips."""
        if self.stops:
            pytest.fail(self.message, pytrace=False)
        if self.outcome != "PASS":
            pytest.skip(self.message)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Locate the item in its file."""
        return self.path, None, self.name


class VerdictItem(GateItem):
    """One criterion on one group."""

    def __init__(self, *, verdict: Verdict, **kwargs: object) -> None:
        """Hold what the verdict came to."""
        from gate.export.outcomes import stops_release  # noqa: PLC0415 - only with a decision

        super().__init__(**kwargs)  # type: ignore[arg-type]  # pytest's own
        self.outcome, self.message = verdict.outcome, _write_message(verdict)
        self.stops = stops_release(verdict)


class DecisionItem(GateItem):
    """The whole decision. Only a PASS with evidence passes."""

    def __init__(self, *, decision: Decision, **kwargs: object) -> None:
        """Hold what the decision came to."""
        super().__init__(**kwargs)  # type: ignore[arg-type]  # pytest's own
        self.outcome, self.message = decision.outcome, _write_message(decision)
        self.stops = decision.outcome != "PASS"
        if not self.stops and not any(_is_evidence(verdict) for verdict in decision.verdicts):
            self.message = "no evidence: it says PASS, and no blocking criterion was judged"
            self.stops = True


def _is_evidence(verdict: Verdict) -> bool:
    return verdict.blocking and verdict.outcome != "NOT_JUDGED"


def _write_message(judged: Verdict | Decision) -> str:
    from gate.export.text import to_block  # noqa: PLC0415 - only with a decision

    return f"{judged.outcome}: {to_block(judged.reason)}"

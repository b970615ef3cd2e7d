"""The pytest plugin: a decision as test items, and fixtures for those who write decoders.

``pytest --gate-config gate.toml`` runs the gate once, before any test;
``pytest --gate-decision reports/latest/decision.json`` reads a decision. Both add one item
per verdict, named ``criterion[group]``, and one named ``decision`` that no selection leaves out.

The plugin translates and judges nothing. pytest loads it in every environment that has the
gate, so the module imports nothing heavy; gate/testing does the work. docs/pytest.md shows it.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from gate.testing.fixtures import assert_no_drift, gate_decoder, gate_model

__all__ = ["assert_no_drift", "gate_decoder", "gate_model"]

DECISION = pytest.StashKey[Any]()  # gate.records.Decision
MODEL = "embedded:smollm2-135m-instruct"
MARKERS = (
    "gate: the items of a decision",
    "gate_timing: measures time; refused under pytest-xdist, where others use the machine too",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the gate's options."""
    group = parser.getgroup("gate", "decoding gate")
    group.addoption(
        "--gate-config",
        metavar="FILE",
        type=Path,
        help="run the gate of this gate.toml first, once, and test its decision",
    )
    group.addoption(
        "--gate-decision",
        metavar="FILE",
        type=Path,
        help="a run's decision.json: one test per verdict, and one for the decision",
    )
    group.addoption(
        "--gate-inconclusive",
        choices=("fail", "warn", "skip"),
        default="fail",
        help="what an INCONCLUSIVE item does (default: fail); ERROR is always an error",
    )
    parser.addini(
        "gate_model", f"model of the fixture gate_model (default: {MODEL})", default=MODEL
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register markers; read a given decision before anything runs. Raises pytest.UsageError."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    path, toml = config.getoption("gate_decision"), config.getoption("gate_config")
    if path is not None and toml is not None:
        msg = "--gate-config runs the gate and --gate-decision reads a run; name one of the two"
        raise pytest.UsageError(msg)
    if path is not None or toml is not None:
        from gate.testing import source  # noqa: PLC0415 - only where the gate was asked for

        if path is not None or _is_worker(config):
            decision = source.read_given(config)
            if decision is not None:
                config.stash[DECISION] = decision
        config.pluginmanager.register(_Whole(), "gate-whole")  # last, so that it wraps all others


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist starts its workers
def pytest_sessionstart(session: pytest.Session) -> None:
    """Run the gate, in a process of its own. Raises pytest.UsageError where it is refused."""
    config = session.config
    if config.getoption("gate_config") is None or DECISION in config.stash:
        return
    if not config.getoption("collectonly"):
        from gate.testing import source  # noqa: PLC0415

        config.stash[DECISION] = source.run(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the decision to a worker of pytest-xdist: all judge what the controller read."""
    if DECISION in node.config.stash:
        from gate.testing import source  # noqa: PLC0415

        node.workerinput[source.WORKER_KEY] = source.encode(node.config.stash[DECISION])


@pytest.hookimpl(tryfirst=True)  # before -k, -m and --lf select
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the verdicts' items behind the user's own tests."""
    if DECISION in session.config.stash:
        from gate.testing.items import make_verdict_items  # noqa: PLC0415

        items.extend(make_verdict_items(session, session.config.stash[DECISION]))


class _Whole:
    """Adds the item of the whole decision after every selection: it is not optional."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Generator[None]:
        """Let everybody select, then add the decision."""
        yield
        from gate.testing.items import make_decision_item  # noqa: PLC0415

        items.extend(make_decision_item(session, session.config.stash.get(DECISION, None)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse to time beside other workers."""
    if _is_worker(item.config) and item.get_closest_marker("gate_timing"):
        msg = "timing is refused under pytest-xdist, where others use the machine; run without -n"
        pytest.fail(msg, pytrace=False)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the decision above the tests."""
    toml = config.getoption("gate_config")
    if toml is not None and config.getoption("collectonly"):
        return f"gate: {toml} (not run: --collect-only)"
    if DECISION in config.stash:
        from gate.testing.summary import write_header  # noqa: PLC0415

        return write_header(config.stash[DECISION])
    return None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what the decision is, whatever was selected."""
    if DECISION in config.stash and not config.getoption("collectonly"):
        from gate.testing.summary import write_summary  # noqa: PLC0415

        write_summary(terminalreporter, config.stash[DECISION])

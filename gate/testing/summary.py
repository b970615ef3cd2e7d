"""The decision in pytest's own output: a line above the tests, a section below."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from gate.export.outcomes import sort_verdicts, stops_release, write_waived
from gate.export.text import to_line
from gate.records import Decision, Outcome
from gate.testing.items import PROPERTY, WHOLE
from gate.testing.judged import find_problem

COLOURS = {Outcome.PASS: "green", Outcome.INCONCLUSIVE: "yellow"}
N_SHOWN = 10


def write_header(decision: Decision) -> str:
    """Return the line above the tests."""
    until = to_line(decision.expires_at, 40)
    return f"gate: {decision.outcome}, run {to_line(decision.run_id, 80)}, valid until {until}"


def write_summary(terminal: Any, decision: Decision) -> None:
    """Write the section below the tests: the decision, and how much of it was run as tests."""
    problem = find_problem(decision, dt.datetime.now(dt.UTC))
    name = "red" if problem else COLOURS.get(Outcome(decision.outcome), "red")
    colour = {name: True}
    terminal.write_sep("=", "decoding gate", **colour)
    for n, line in enumerate(describe(decision, problem, _list_run(terminal))):
        terminal.write_line(line, **(colour | {"bold": True} if n == 0 else {}))


def describe(decision: Decision, problem: str | None, run: set[str]) -> Iterator[str]:
    """Yield the section's lines. problem: why it does not stand. run: names of items that ran."""
    if problem:
        yield f"this decision does not stand: {to_line(problem)}"
    yield (
        f"{decision.outcome} (content {decision.content}, gain {decision.gain}), "
        f"claim {decision.claim}, purpose {decision.purpose}"
    )
    yield to_line(decision.reason, 1000)
    stopping = [v for v in sort_verdicts(decision.verdicts) if stops_release(v)]
    for verdict in stopping[:N_SHOWN]:
        name = to_line(f"{verdict.criterion}[{verdict.group}]", 200)
        yield f"  {verdict.outcome} {name}: {to_line(verdict.reason)}"
    if len(stopping) > N_SHOWN:
        yield f"  and {len(stopping) - N_SHOWN} more"
    for verdict in decision.verdicts:
        if verdict.waiver is not None:
            name = to_line(f"{verdict.criterion}[{verdict.group}]", 200)
            yield f"  {verdict.outcome} {name}, {to_line(write_waived(verdict))}"
    yield from (f"limit: {to_line(note)}" for note in decision.notes)
    yield from _describe_selection(len(decision.verdicts), run)


def _describe_selection(n_verdicts: int, run: set[str]) -> Iterator[str]:
    n_left_out = n_verdicts - len(run - {WHOLE})
    if n_left_out:
        yield (
            f"{n_left_out} of {n_verdicts} verdicts were not run here (deselected, or pytest "
            "stopped): what ran is no evidence for the whole; the item 'decision' stands for it"
        )
    if WHOLE not in run:
        yield "the item 'decision' did not run: this test run says nothing about the gate"


def _list_run(terminal: Any) -> set[str]:
    """Return the names of the gate's items that have a result, here or in a worker."""
    reports = [report for found in terminal.stats.values() for report in found]
    return {
        str(value)
        for report in reports
        for key, value in getattr(report, "user_properties", ())
        if key == PROPERTY and hasattr(report, "when")  # not the deselected items themselves
    }

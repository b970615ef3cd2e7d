"""What the arms' servers are, what they return, and which options they were seen to honour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gate.report.page import Table
from gate.report.reading import find_comparisons, read_items, read_path, read_text

if TYPE_CHECKING:
    from gate.records import Decision

ARMS = ("baseline", "candidate")
NO_SERVER = "no arm is a server"
FACTS = (
    ("Kind", ("server", "kind")),
    ("Version", ("server", "version")),
    ("Model", ("model", "id")),
    ("Started by", ("decoder", "server", "started_by")),
    ("Command", ("decoder", "server", "command")),
    ("Strength of its evidence", ("decoder", "capabilities", "evidence")),
)


def make_servers(decision: Decision) -> Table:
    """Return what each server is and returns, and what became of each option, by arm."""
    if not any(_read(decision, arm, "server") for arm in ARMS):
        return Table(caption="Servers", head=("", *ARMS), rows=(), remark=NO_SERVER)
    rows = [
        *((name, *(read_text(_arm(decision, a), *path) for a in ARMS)) for name, path in FACTS),
        *_list_returned(decision),
        *_list_options(decision),
    ]
    return Table(
        caption="What the servers return and honour, found by asking them before the run",
        head=("", "Baseline", "Candidate"),
        rows=tuple(rows),
        remark=_write_memory(decision),
    )


def _arm(decision: Decision, arm: str) -> object:
    return decision.provenance.get(arm, {})


def _read(decision: Decision, arm: str, *path: str) -> object:
    return read_path(_arm(decision, arm), *path)


def _list_returned(decision: Decision) -> Iterator[tuple[str, str, str]]:
    path = ("decoder", "capabilities", "returns")
    names = {name: None for arm in ARMS for name, _ in read_items(_arm(decision, arm), *path)}
    for name in names:
        first, second = (read_text(_arm(decision, arm), *path, name) for arm in ARMS)
        yield f"returns {name}", first, second


def _list_options(decision: Decision) -> Iterator[tuple[str, str, str]]:
    path = ("decoder", "capabilities", "honours")
    names = {name: None for arm in ARMS for name, _ in read_items(_arm(decision, arm), *path)}
    for name in names:
        first, second = (_write_option(decision, arm, name) for arm in ARMS)
        yield f"option {name}", first, second


def _write_option(decision: Decision, arm: str, name: str) -> str:
    what = read_text(_arm(decision, arm), "decoder", "capabilities", "honours", name)
    why = _read(decision, arm, "decoder", "capabilities", "why", name)
    return f"{what}: {why}" if isinstance(why, str) and what != "honoured" else what


def _write_memory(decision: Decision) -> str:
    found = find_comparisons(decision, "memorisation")
    return f"Memorisation control: {found[0].note}" if found and found[0].note else ""

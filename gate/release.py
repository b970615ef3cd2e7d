"""May this be deployed? A decision held to the place that is about to use it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from gate.errors import UsageError
from gate.export.outcomes import stops_release
from gate.export.validity import explain_expiry
from gate.provenance import find_differences, make_surface
from gate.records import SCHEMA, Decision, Outcome, Verdict
from gate.surface import Surface

SHOWN = 120  # characters of a value


def list_refusals(decision: Decision, surface: Surface, now: dt.datetime) -> list[str]:
    """Return why a decision does not allow this surface to be deployed; empty: it does.

    One sentence each. Raises UsageError where the file is not what a run of the gate wrote.
    """
    check_file(decision)
    expired = explain_expiry(decision, now)
    return [
        *_list_outcome(decision),
        *([f"the decision no longer stands: {expired}"] if expired else []),
        *_list_differences(decision, surface),
    ]


def check_file(decision: Decision) -> None:
    """Refuse a decision that contradicts itself. Raises UsageError."""
    if decision.schema != SCHEMA:
        msg = f"the decision has schema {decision.schema}, and this version reads {SCHEMA}"
    elif not decision.digest:
        msg = "the decision has no digest, so nobody can say that it was not edited"
    elif make_surface(decision.surface_values) != decision.surface:
        msg = "the decision's surface hashes are not those of its surface values"
    elif decision.outcome is Outcome.PASS and any(stops_release(v) for v in decision.verdicts):
        msg = "the decision says PASS, and one of its blocking verdicts does not"
    elif decision.outcome is Outcome.PASS and not any(map(_is_evidence, decision.verdicts)):
        msg = "the decision says PASS, and no blocking criterion was judged"
    else:
        return
    msg = f"{msg}; run the gate again"
    raise UsageError(msg)


def _is_evidence(verdict: Verdict) -> bool:
    return verdict.blocking and verdict.outcome is Outcome.PASS


def _list_outcome(decision: Decision) -> Iterator[str]:
    if decision.outcome is not Outcome.PASS:
        yield f"the decision is {decision.outcome}, not PASS: {decision.reason}"
    if decision.claim == "control":
        yield "the run was a control (the same decoder twice): it says nothing of a change"


def _list_differences(decision: Decision, surface: Surface) -> Iterator[str]:
    """Yield a sentence per part of the surface that differs, with the values that do."""
    covered, here = decision.surface_values, surface.values
    for part in dict.fromkeys((*covered, *here)):
        if decision.surface.get(part) == surface.parts.get(part):
            continue
        found = find_differences(covered.get(part, {}), here.get(part, {}), f"{part}.")
        named = "; ".join(
            f"{path.partition('.')[2]} is {_show(now)}, and the decision covers {_show(then)}"
            for path, (then, now) in found.items()
        )
        yield f"the {part} to be deployed is not what was judged: {named}"


def _show(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."

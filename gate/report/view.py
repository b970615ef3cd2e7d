"""Decision -> Page: everything the page says, in the order in which it says it.

Wording is in ``wording.py``, rounding in ``numbers.py``, geometry in ``plots.py``;
this module puts them together and computes no outcome: it shows the decision's own.
"""

from __future__ import annotations

import datetime as dt
from itertools import chain
from typing import TYPE_CHECKING

from gate.export.outcomes import check_outcomes, stops_release
from gate.records import Outcome
from gate.report.arms import list_facts, list_provenance, write_compared
from gate.report.conduct import make_conformance, make_endings
from gate.report.curves import list_divergence_charts, list_serving_charts, make_acceptance
from gate.report.earnings import list_earnings
from gate.report.forks import list_forks, write_forks_remark
from gate.report.judged import list_criteria, list_verdicts
from gate.report.page import Half, Page, VerdictRow
from gate.report.reading import find_comparisons, make_badge, read_path
from gate.report.remarks import CERTIFICATES
from gate.report.sections import (
    list_guards,
    list_tasks,
    make_comparisons,
    make_defects,
    make_divergence,
    make_failures,
    make_sensitivity,
    make_surface,
    make_waivers,
)
from gate.report.servers import make_servers
from gate.report.speed import (
    list_idle_classes,
    list_speed,
    make_percentiles,
    make_serving,
    write_gain,
)
from gate.report.wording import (
    ACCEPTANCE_UNKNOWN,
    BASELINE_BROKEN,
    CLAIMS,
    EXPIRED,
    NO_VERDICTS,
    NOT_COVERED,
    PURPOSES,
    RUN_AGAIN,
    SECTIONS,
    WITH_WAIVERS,
    describe_group,
    write_headline,
    write_next_step,
)

if TYPE_CHECKING:
    from gate.records import Decision

UNKNOWN = "unknown"
N_NAMED = 4  # criteria named on a tile


def make_page(decision: Decision, expired: str = "") -> Page:
    """Return the decision as view records. expired: why it no longer stands; empty: it does.

    Errors: RunError where an outcome is unknown.
    """
    check_outcomes(decision)
    outcome = Outcome(decision.outcome)
    over = " (expired)" if expired else ""
    verdicts, forks, speed = list_verdicts(decision), list_forks(decision), list_speed(decision)
    return Page(
        title=f"{outcome}{over} · decoding gate · {decision.run_id or UNKNOWN}",
        sections=SECTIONS,
        run_id=decision.run_id or UNKNOWN,
        created_at=write_time(decision.created_at),
        expires_at=write_time(decision.expires_at),
        expired=expired,
        badge=make_badge(outcome),
        headline=EXPIRED if expired else _write_headline(decision),
        reason=decision.reason or "No reason was recorded.",
        next_step=RUN_AGAIN
        if expired
        else write_next_step(outcome, decision.purpose, Outcome(decision.content)),
        halves=_write_halves(decision),
        claim=decision.claim,
        claim_meaning=CLAIMS.get(decision.claim, ""),
        purpose=decision.purpose,
        purpose_meaning=PURPOSES.get(decision.purpose, ""),
        alerts=(
            *([f"This decision no longer stands: {expired}"] if expired else []),
            *_list_alerts(decision),
        ),
        notes=_list_notes(decision),
        arms=(arms := list_facts(decision)),
        compared=write_compared(arms),
        stopping=tuple(row for row in verdicts if row.stops),
        others=tuple(row for row in verdicts if not row.stops and _is_judged(row)),
        unjudged=tuple(row for row in verdicts if not _is_judged(row)),
        no_verdicts="" if verdicts else NO_VERDICTS,
        speed=speed,
        speed_remark=_write_speed_remark(decision, measured=bool(speed)),
        forks=forks,
        forks_remark=write_forks_remark(decision),
        fork_kinds=tuple(sorted({card.kind for card in forks})),
        fork_classes=tuple(sorted({card.request_class for card in forks})),
        defects=make_defects(decision),
        tasks=list_tasks(decision),
        divergence=make_divergence(decision),
        divergence_charts=list_divergence_charts(decision),
        guards=list_guards(decision),
        earnings=list_earnings(decision),
        serving=make_serving(decision),
        percentiles=make_percentiles(decision),
        serving_charts=list_serving_charts(decision),
        acceptance=make_acceptance(decision),
        servers=make_servers(decision),
        conformance=make_conformance(decision),
        endings=make_endings(decision),
        failures=make_failures(decision),
        sensitivity=make_sensitivity(decision),
        provenance=list_provenance(decision),
        criteria=list_criteria(decision),
        waivers=make_waivers(decision),
        surface=make_surface(decision),
        comparisons=make_comparisons(decision),
    )


def write_time(moment: str) -> str:
    """Return an ISO time to the minute, in UTC; anything else as it stands."""
    try:
        parsed = dt.datetime.fromisoformat(moment)
    except ValueError:
        return moment or UNKNOWN
    utc = parsed.astimezone(dt.UTC) if parsed.tzinfo else parsed
    return utc.strftime("%Y-%m-%d %H:%M UTC" if parsed.tzinfo else "%Y-%m-%d %H:%M")


def _write_headline(decision: Decision) -> str:
    """Return what the outcome means; a PASS that rests on waivers says so first."""
    n_waived = sum(verdict.waiver is not None for verdict in decision.verdicts)
    if decision.outcome == Outcome.PASS and n_waived:
        return WITH_WAIVERS.format(n=f"{n_waived} waiver{'' if n_waived == 1 else 's'}")
    return write_headline(Outcome(decision.outcome), decision.purpose, decision.claim)


def _is_judged(row: VerdictRow) -> bool:
    return row.badge.outcome != Outcome.NOT_JUDGED


def _write_halves(decision: Decision) -> tuple[Half, Half]:
    content = Half(
        title="Content",
        question="Are the answers still the same?",
        badge=make_badge(decision.content),
        summary=_write_content(decision),
    )
    gain = Half(
        title="Gain",
        question="Is it worth it?",
        badge=make_badge(decision.gain),
        summary=_write_gain(decision),
    )
    return content, gain


def _write_content(decision: Decision) -> str:
    checks = [one for one in decision.verdicts if one.blocking and one.half == "content"]
    if not checks:
        return "No blocking check of the answers was judged."
    judged = [one for one in checks if one.outcome != Outcome.NOT_JUDGED]
    n_passed = sum(one.outcome == Outcome.PASS for one in judged)
    n_left = len(checks) - len(judged)
    left = f" {n_left} could not be judged: see the limits of this run." if n_left else ""
    stopping = _name_stopping(decision, "content")
    return f"{n_passed} of {len(judged)} judged checks passed.{left}{stopping}"


def _write_gain(decision: Decision) -> str:
    text = write_gain(decision) + _name_stopping(decision, "gain")
    if decision.gain != Outcome.NOT_JUDGED:
        return text
    reason = "this run judges content only" if decision.purpose == "content" else "see the reason"
    return f"Not judged: {reason}. {text}"


def _name_stopping(decision: Decision, half: str) -> str:
    """Return which criteria of this half stop the release, for the first screen."""
    names = [f"{one.criterion} ({describe_group(one.group)})" for one in decision.verdicts
             if one.half == half and stops_release(one)]  # fmt: skip
    if not names:
        return ""
    more = f" and {len(names) - N_NAMED:,} more" if len(names) > N_NAMED else ""
    return f" Not passed: {', '.join(names[:N_NAMED])}{more}."


def _write_speed_remark(decision: Decision, *, measured: bool) -> str:
    if not measured:
        return "not measured"
    if decision.gain == Outcome.NOT_JUDGED:
        return "For information: the gain was not judged in this run."
    return ""


def _list_alerts(decision: Decision) -> tuple[str, ...]:
    alerts = []
    certificates = (find_comparisons(decision, name) for name in sorted(CERTIFICATES))
    for comparison in chain.from_iterable(certificates):
        count = comparison.baseline
        if count is not None and count > 0:
            size = f"{count:,.0f}" if count >= 1 else f"a share of {count:.2g}"
            alerts.append(BASELINE_BROKEN.format(count=size))
    alerts += [
        f"Waived until {one.until} by {one.who}: {one.criterion} "
        f"({describe_group(one.group)}). {one.reason}"
        for one in decision.waivers
    ]
    if decision.earlier_runs:
        times = "once" if decision.earlier_runs == 1 else f"{decision.earlier_runs:,} times"
        alerts.append(f"The same change was run {times} before this run.")
    return tuple(dict.fromkeys(alerts))


def _list_notes(decision: Decision) -> tuple[str, ...]:
    notes = list(decision.notes)
    notes += [
        NOT_COVERED.format(name=name)
        for name in list_idle_classes(decision)
        if not any(name in note for note in decision.notes)
    ]
    for comparison in find_comparisons(decision, "exercised"):
        unknown = read_path(comparison.detail, "unknown")
        if isinstance(unknown, int) and unknown:
            count = "all requests" if unknown is True else f"{unknown:,} requests"
            notes.append(ACCEPTANCE_UNKNOWN.format(count=count))
    return tuple(notes)

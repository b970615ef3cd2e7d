"""Waivers: criteria that a person signed away for a while, in a file under version control.

A waived FAIL or INCONCLUSIVE stays what it is and is shown everywhere; it does not stop the
release. What makes a run evidence at all cannot be waived.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from gate.config import Project, resolve_inside
from gate.defaults import LOCKED
from gate.errors import UsageError
from gate.provenance import is_committed
from gate.records import SCHEMA, Claim, Criterion, Outcome, Record, Verdict, Waiver

FILE = "waivers.toml"
LONGEST_DAYS = 366
WAIVABLE = frozenset({Outcome.FAIL, Outcome.INCONCLUSIVE})
EVIDENCE = frozenset({"exercised", "dropped_pairs"})
"""Measures without which nothing was compared: no evidence is never PASS."""


class WaiverEntry(Record, frozen=True, kw_only=True):
    """One ``[[waiver]]``. until: the last day on which it holds, a TOML date."""

    criterion: str
    group: str = "all"
    reason: str
    who: str
    until: dt.date


class WaiverFile(Record, frozen=True, kw_only=True):
    """The whole of waivers.toml."""

    schema: int
    waiver: tuple[WaiverEntry, ...] = ()


class Groups(Record, frozen=True, kw_only=True):
    """What ``each_task`` and ``each_class`` stand for."""

    tasks: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def of(self, criterion: Criterion) -> tuple[str, ...]:
        """Return the groups a criterion is judged on."""
        named = {"each_task": self.tasks, "each_class": self.classes}
        return named.get(criterion.groups, (criterion.groups,))


def find_file(project: Project) -> Path | None:
    """Return the waivers' file: ``run.waivers``, else waivers.toml beside gate.toml, or None."""
    named = project.config.run.waivers
    path = resolve_inside(project, "run.waivers", named or FILE)
    return path if named or path.exists() else None


def read_waivers(
    project: Project, criteria: Sequence[Criterion], groups: Groups, today: dt.date
) -> tuple[Waiver, ...]:
    """Read and check the project's waivers. Raises UsageError naming the waiver and its fault."""
    path = find_file(project)
    if path is None:
        return ()
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=WaiverFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"{path.name}: {error}; correct it (docs/release.md shows one)"
        raise UsageError(msg) from error
    if found.schema != SCHEMA:
        msg = f"{path.name}: schema = {found.schema}; this version reads schema {SCHEMA}"
        raise UsageError(msg)
    by_name = {criterion.name: criterion for criterion in criteria}
    for n, entry in enumerate(found.waiver):
        twice = any((e.criterion, e.group) == (entry.criterion, entry.group)
                    for e in found.waiver[:n])  # fmt: skip
        for fault in _find_faults(entry, by_name, groups, project.config.claim, today):
            msg = f"{path.name}: waiver of {entry.criterion!r} ({entry.group}): {fault}"
            raise UsageError(msg)
        if twice:
            msg = f"{path.name}: {entry.criterion!r} ({entry.group}) is waived twice; keep one"
            raise UsageError(msg)
    return tuple(_make_waiver(entry) for entry in found.waiver)


def _make_waiver(entry: WaiverEntry) -> Waiver:
    return Waiver(
        criterion=entry.criterion,
        group=entry.group,
        reason=entry.reason,
        who=entry.who,
        until=entry.until.isoformat(),
    )


def _find_faults(
    entry: WaiverEntry,
    criteria: Mapping[str, Criterion],
    groups: Groups,
    claim: Claim,
    today: dt.date,
) -> Iterator[str]:
    criterion = criteria.get(entry.criterion)
    if criterion is None:
        yield f"there is no such criterion; there are {', '.join(sorted(criteria))}"
        return
    if entry.group not in groups.of(criterion):
        allowed = ", ".join(groups.of(criterion))
        yield f"group = {entry.group!r} is not judged by it; name one of {allowed}"
    for key, text in (("reason", entry.reason), ("who", entry.who)):
        if not text.strip() or text != text.strip() or not text.isprintable():
            yield f"{key} = {text!r}; write it out, in one printable line"
    if entry.until < today:
        yield f"it ended on {entry.until}; repair what it waives, or sign it again"
    if entry.until > today + dt.timedelta(days=LONGEST_DAYS):
        yield f"until = {entry.until} is more than {LONGEST_DAYS} days away; sign for less"
    yield from _find_forbidden(criterion, claim)


def _find_forbidden(criterion: Criterion, claim: Claim) -> Iterator[str]:
    if criterion.measure in EVIDENCE or criterion.measure.startswith("baseline_"):
        yield "without it there is no evidence, so it cannot be waived; remove the waiver"
    elif claim == "lossless" and criterion.name in LOCKED:
        yield (
            "claim = 'lossless' means it, so it cannot be waived; declare claim = 'bounded' and "
            "its margins, or repair the candidate"
        )


def apply_waivers(
    verdicts: Sequence[Verdict], waivers: Sequence[Waiver]
) -> tuple[list[Verdict], list[Waiver]]:
    """Return the verdicts, the waived ones with their waiver, and the waivers that served none."""
    keyed = {(waiver.criterion, waiver.group): waiver for waiver in waivers}
    done = [
        msgspec.structs.replace(verdict, waiver=keyed.get((verdict.criterion, verdict.group)))
        if verdict.blocking and verdict.outcome in WAIVABLE
        else verdict
        for verdict in verdicts
    ]
    used = {(v.criterion, v.group) for v in done if v.waiver}
    return done, [waiver for key, waiver in keyed.items() if key not in used]


def list_notes(project: Project, used: Sequence[Waiver], unused: Sequence[Waiver]) -> list[str]:
    """Return what the first screen says of the waivers beside themselves."""
    notes = [
        f"the waiver of {one.criterion} ({one.group}) was not needed: remove it" for one in unused
    ]
    names = ", ".join(f"{one.criterion} ({one.group})" for one in used)
    if names:
        notes.append(f"waived, so the claim does not cover it: {names}")
    path = find_file(project)
    if used and path and not is_committed(path):
        notes.append(f"{path.name} has changes that are not committed: nobody reviewed them")
    return notes


def write_prefix(outcome: Outcome, used: Sequence[Waiver]) -> str:
    """Return how the decision's sentence begins, so that no surface leaves the waivers out."""
    if not used:
        return ""
    count = "1 waiver" if len(used) == 1 else f"{len(used)} waivers"
    named = "; ".join(
        f"{one.criterion} ({one.group}), signed by {one.who} until {one.until}: {one.reason}"
        for one in used
    )
    return f"{outcome} with {count} [{named}]; "


def end_of(used: Sequence[Waiver], expires_at: dt.datetime) -> dt.datetime:
    """Return when the decision ends: no later than the first of its waivers."""
    ends = [
        dt.datetime.combine(dt.date.fromisoformat(one.until), dt.time(), dt.UTC)
        + dt.timedelta(days=1)
        for one in used
    ]
    return min([expires_at, *ends])

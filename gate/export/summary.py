"""The decision as markdown, for a pull-request comment or a CI step summary.

Everything that is not ours is escaped: a model's output must not ping a team, link
to a page, close the table or draw a heading in somebody's pull request.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from gate.export.canary import HARM, suggest_canary
from gate.export.outcomes import (
    check_outcomes,
    sort_forks,
    sort_verdicts,
    stops_release,
    write_waived,
)
from gate.export.text import show_spaces, to_line
from gate.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gate.records import Decision, Fork, Verdict

MARKS = {
    Outcome.PASS: "✅",
    Outcome.FAIL: "❌",
    Outcome.INCONCLUSIVE: "⚠️",
    Outcome.ERROR: "🛑",
    Outcome.NOT_JUDGED: "⚪",
}
N_FORKS = 5
# GitHub refuses a comment above 65,536 characters. Each part has its own share of that, so that
# a thousand verdicts do not push the first screen out: what is left out is counted.
NOTES_BUDGET, STOPPING_BUDGET, OTHERS_BUDGET = 10_000, 20_000, 14_000
_PUNCTUATION = re.compile(r"([\\`*_\[\]()!|~$#]|^[-+=]|:(?=[\w+-]+:)|(?<=^\d)[.)])")
# Renderers link these after markdown is done, so a backslash does not stop them.
_LINKED = re.compile(r"@|(?<=#)|(?<=www)|(?<=:)(?=//)|(?<=[Gg][Hh]-)")
_ZERO_WIDTH_SPACE = "\u200b"


def escape_markdown(text: str, limit: int = 400) -> str:
    """Return ``text`` on one line, inert in GitHub-flavoured markdown and in HTML."""
    line = to_line(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    unlinked = _LINKED.sub(lambda found: found.group() + _ZERO_WIDTH_SPACE, line)
    return _PUNCTUATION.sub(r"\\\1", unlinked)


def render_summary(decision: Decision) -> str:
    """Return the decision as markdown: outcome, reason, verdicts worst first, first forks.

    Errors: RunError where an outcome is unknown.
    """
    check_outcomes(decision)
    parts = (
        _write_head(decision),
        _write_earlier(decision),
        _write_notes(decision.notes),
        _write_verdicts(sort_verdicts(decision.verdicts)),
        _write_forks(decision.forks),
        _write_canary(decision),
        _write_foot(decision),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _write_head(decision: Decision) -> str:
    text = escape_markdown
    return (
        f"## {_mark(decision.outcome)} Decoding gate: {decision.outcome}{_count_waivers(decision)}"
        "\n\n"
        f"**Reason:** {text(decision.reason, 1000)}\n\n"
        f"| Content | Gain | Claim | Purpose |\n| --- | --- | --- | --- |\n"
        f"| {_mark(decision.content)} {decision.content} | {_mark(decision.gain)} {decision.gain} "
        f"| {text(decision.claim)} | {text(decision.purpose)} |"
    )


def _count_waivers(decision: Decision) -> str:
    n = len(decision.waivers)
    return f" with {n} waiver{'' if n == 1 else 's'}" if n else ""


def _write_earlier(decision: Decision) -> str:
    """Say how often this surface was run before: nobody re-runs until green unseen."""
    if not decision.earlier_runs:
        return ""
    times = "once" if decision.earlier_runs == 1 else f"{decision.earlier_runs:,} times"
    counts = ", ".join(f"{n:,} {escape_markdown(k)}" for k, n in decision.earlier_outcomes.items())
    came_to = f" ({counts})" if counts else ""
    return f"**Run before:** this surface was judged {times} before this run{came_to}."


def _write_notes(notes: tuple[str, ...]) -> str:
    if not notes:
        return ""
    lines = _fit([f"- {escape_markdown(note)}" for note in notes], NOTES_BUDGET)
    left_out = [f"- and {len(notes) - len(lines)} more"] if len(lines) < len(notes) else []
    return "\n".join(("**Limits of this run**", "", *lines, *left_out))


def _write_verdicts(verdicts: tuple[Verdict, ...]) -> str:
    """What stops the release, open; everything else folded away."""
    if not verdicts:
        return "**No criterion was judged.** No evidence is never a pass."
    stopping = [verdict for verdict in verdicts if stops_release(verdict)]
    others = [verdict for verdict in verdicts if not stops_release(verdict)]
    parts = []
    if stopping:
        parts.append(_tabulate(stopping, STOPPING_BUDGET))
    if others:
        n_passed = sum(verdict.outcome == Outcome.PASS for verdict in others)
        title = f"{n_passed} passed, {len(others) - n_passed} that do not stop the release"
        table = _tabulate(others, OTHERS_BUDGET)
        parts.append(f"<details><summary>{title}</summary>\n\n{table}\n\n</details>")
    return "\n\n".join(parts)


def _tabulate(verdicts: Sequence[Verdict], budget: int) -> str:
    rows = [" | ".join(_write_verdict(verdict)) for verdict in verdicts]
    kept = _fit(rows, budget)
    table = _write_table(("Outcome", "Criterion", "Group", "Reason"), ((row,) for row in kept))
    left_out = len(rows) - len(kept)
    return f"{table}\n\nand {left_out} more, in report.html" if left_out else table


def _fit(lines: list[str], budget: int) -> list[str]:
    """Return the first lines that fit into ``budget`` characters, at least one."""
    sizes = itertools.accumulate(len(line) + 8 for line in lines)
    return [
        line
        for n, (line, size) in enumerate(zip(lines, sizes, strict=True))
        if size <= budget or not n
    ]


def _write_verdict(verdict: Verdict) -> tuple[str, ...]:
    outcome = f"{_mark(verdict.outcome)} {verdict.outcome}"
    if not verdict.blocking:
        outcome += " (not blocking)"
    if verdict.waiver:
        outcome += f" ({escape_markdown(write_waived(verdict))})"
    name = escape_markdown(verdict.criterion)
    name = f"**{name}**" if stops_release(verdict) and name else name
    return (outcome, name, escape_markdown(verdict.group), escape_markdown(verdict.reason))


def _write_forks(forks: tuple[Fork, ...]) -> str:
    if not forks:
        return ""
    rows = (_write_fork(fork) for fork in sort_forks(forks)[:N_FORKS])
    head = ("Request", "Position", "Kind", "Baseline token", "Candidate token")
    table = _write_table(head, rows)
    return f"**First forks** ({min(N_FORKS, len(forks))} of {len(forks)} shown)\n\n{table}"


def _write_fork(fork: Fork) -> tuple[str, ...]:
    tokens = (fork.token_baseline, fork.token_candidate)
    texts = (
        escape_markdown(show_spaces(token.text), 40) if token else "(no token)" for token in tokens
    )
    request = escape_markdown(fork.request_id, 80)
    return (request, str(fork.position), escape_markdown(fork.kind), *texts)


def _write_canary(decision: Decision) -> str:
    canary = suggest_canary(decision)
    if canary is None:
        return ""
    rows = (
        (escape_markdown(one.signal), escape_markdown(one.condition), f"{one.n:,}" if one.n else "")
        for one in canary.triggers
    )
    table = _write_table(("Signal", "Roll back when", "Requests to see it"), rows)
    worst = f"{canary.worst.upper:.1%} more {escape_markdown(canary.worst.what)}"
    return (
        f"**Suggested canary:** at most {canary.share:.2%} of the traffic. This run could not "
        f"exclude {worst}; at that share it would touch no more than one request in "
        f"{1 / HARM:,.0f}.\n\n{table}"
    )


def _write_foot(decision: Decision) -> str:
    names = ("run_id", "created_at", "expires_at")
    values = (escape_markdown(getattr(decision, name), 100) or "unknown" for name in names)
    run, created, expires = values
    return f"Run {run}, made {created}, valid until {expires}. Open report.html for the evidence."


def _write_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mark(outcome: Outcome) -> str:
    return MARKS[Outcome(outcome)]

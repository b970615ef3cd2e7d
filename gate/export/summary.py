"""The decision as markdown, for a pull-request comment or a CI step summary.

Everything that is not ours is escaped: a model's output must not ping a team, link
to a page, close the table or draw a heading in somebody's pull request.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gate.export.outcomes import check_outcomes, sort_forks, sort_verdicts, stops_release
from gate.export.text import show_spaces, to_line
from gate.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gate.records import Decision, Fork, Verdict

MARKS = {
    Outcome.PASS: "✅",
    Outcome.FAIL: "❌",
    Outcome.INCONCLUSIVE: "⚠️",
    Outcome.ERROR: "🛑",
    Outcome.NOT_JUDGED: "⚪",
}
N_FORKS = 5
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
        _write_foot(decision),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _write_head(decision: Decision) -> str:
    text = escape_markdown
    return (
        f"## {_mark(decision.outcome)} Decoding gate: {decision.outcome}\n\n"
        f"**Reason:** {text(decision.reason, 1000)}\n\n"
        f"| Content | Gain | Claim | Purpose |\n| --- | --- | --- | --- |\n"
        f"| {_mark(decision.content)} {decision.content} | {_mark(decision.gain)} {decision.gain} "
        f"| {text(decision.claim)} | {text(decision.purpose)} |"
    )


def _write_earlier(decision: Decision) -> str:
    """Say how often this surface was run before: nobody re-runs until green unseen."""
    if not decision.earlier_runs:
        return ""
    times = "once" if decision.earlier_runs == 1 else f"{decision.earlier_runs:,} times"
    counts = ", ".join(f"{n:,} {escape_markdown(k)}" for k, n in decision.earlier_outcomes.items())
    came_to = f" ({counts})" if counts else ""
    return f"**Run before:** this surface was judged {times} before this run{came_to}."


def _write_notes(notes: tuple[str, ...]) -> str:
    lines = [f"- {escape_markdown(note)}" for note in notes]
    return "\n".join(("**Limits of this run**", "", *lines)) if lines else ""


def _write_verdicts(verdicts: tuple[Verdict, ...]) -> str:
    if not verdicts:
        return "**No criterion was judged.** No evidence is never a pass."
    rows = (_write_verdict(verdict) for verdict in verdicts)
    return _write_table(("Outcome", "Criterion", "Group", "Reason"), rows)


def _write_verdict(verdict: Verdict) -> tuple[str, ...]:
    outcome = f"{_mark(verdict.outcome)} {verdict.outcome}"
    if not verdict.blocking:
        outcome += " (not blocking)"
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

"""Forks as cards: what both arms wrote, token by token, and the evidence on who is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gate.export.outcomes import FORK_KINDS, sort_forks
from gate.export.text import show_spaces, to_block, to_line
from gate.report.numbers import NOT_MEASURED, format_number
from gate.report.page import ForkCard
from gate.report.wording import describe_fork

if TYPE_CHECKING:
    from gate.records import Decision, Fork, TokenView

N_SHOWN = 200
N_OPENED = 3
BEFORE_CHARACTERS = 240
AFTER_CHARACTERS = 240
PROMPT_CHARACTERS = 2000


def list_forks(decision: Decision) -> tuple[ForkCard, ...]:
    """Return the forks, gravest kind first, at most :data:`N_SHOWN` of them."""
    ordered = sort_forks(decision.forks)[:N_SHOWN]
    return tuple(_write_card(fork, opened=i < N_OPENED) for i, fork in enumerate(ordered))


def write_forks_remark(decision: Decision) -> str:
    """Return how many requests forked and how many of them the page holds."""
    total = len(decision.forks)
    if total == 0:
        return "No fork was recorded."
    counts = {kind: sum(one.kind == kind for one in decision.forks) for kind in FORK_KINDS}
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    hidden = f"; the gravest {N_SHOWN} are on this page" if total > N_SHOWN else ""
    requests = "request differs" if total == 1 else "requests differ"
    return f"{total:,} {requests}{': ' + kinds if kinds else ''}{hidden}."


def write_token(token: TokenView | None) -> str:
    """Return a token with its spaces and line breaks visible."""
    if token is None:
        return "(no token: the output ended)"
    text = show_spaces(to_block(token.text, 80))
    return text or f"(no text: token {token.token_id})"


def _write_card(fork: Fork, *, opened: bool) -> ForkCard:
    return ForkCard(
        kind=fork.kind,
        kind_meaning=describe_fork(fork.kind),
        request_id=to_line(fork.request_id, 80),
        task=fork.task,
        request_class=fork.request_class,
        position=format_number(fork.position),
        before=_keep_end(fork.before),
        token_baseline=write_token(fork.token_baseline),
        token_candidate=write_token(fork.token_candidate),
        after_baseline=to_block(fork.after_baseline, AFTER_CHARACTERS),
        after_candidate=to_block(fork.after_candidate, AFTER_CHARACTERS),
        prompt=to_block(fork.prompt, PROMPT_CHARACTERS),
        gap=_write_nats(fork.gap),
        regret_baseline=_write_nats(fork.regret_baseline),
        regret_candidate=_write_nats(fork.regret_candidate),
        evidence=_write_evidence(fork),
        score=_write_score(fork.score_changed),
        opened=opened,
    )


def _keep_end(text: str) -> str:
    cut = len(text) - BEFORE_CHARACTERS
    return to_block(text if cut <= 0 else f"…{text[cut:]}")


def _write_nats(value: float | None) -> str:
    return format_number(value, "nats")


def _write_evidence(fork: Fork) -> str:
    baseline, candidate = fork.regret_baseline, fork.regret_candidate
    if fork.kind == "unscored" or baseline is None or candidate is None:
        return "The referee did not score this position, so nobody can say which token is right."
    if fork.kind == "tie":
        return (
            "The model ranks both tokens equal within arithmetic noise: either is a right answer."
        )
    if baseline == candidate:
        return "The referee finds both tokens equally good."
    worse, better = ("candidate", "baseline") if candidate > baseline else ("baseline", "candidate")
    misses = _write_nats(max(baseline, candidate))
    right = "the model's own choice" if min(baseline, candidate) == 0 else "closer to it"
    return f"The {worse}'s token misses the model's choice by {misses}; the {better}'s is {right}."


def _write_score(changed: bool | None) -> str:  # noqa: FBT001 - a field of the record, three-valued
    if changed is None:
        return f"effect on the task score {NOT_MEASURED}"
    return "the task score changed" if changed else "the task score did not change"

"""Forks as cards: what both arms wrote, token by token, and the evidence on who is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from gate.export.outcomes import FORK_KINDS, sort_forks
from gate.export.text import show_spaces, to_block, to_line
from gate.report.budget import FORKS_BYTES, fit, fit_end, measure, share_room
from gate.report.numbers import NOT_MEASURED, format_number
from gate.report.page import ForkCard, Piece
from gate.report.reading import find_comparisons, read_number
from gate.report.wording import describe_fork

if TYPE_CHECKING:
    from gate.records import Alternative, Comparison, Decision, Fork, TokenView

N_SHOWN = 500
N_OPENED = 3
LARGEST_CARD = 6000  # bytes of text in one card
TOKEN_CHARACTERS = 40
Runs = tuple[Piece, ...]


def list_forks(decision: Decision) -> tuple[ForkCard, ...]:
    """Return the forks, gravest kind first, at most :data:`N_SHOWN` of them.

    The cards share the page's room: with many of them the texts are cut shorter, and say so.
    """
    ordered = sort_forks(decision.forks)[:N_SHOWN]
    room = share_room(FORKS_BYTES, len(ordered), LARGEST_CARD)
    return tuple(_write_card(fork, room, opened=i < N_OPENED) for i, fork in enumerate(ordered))


def write_forks_remark(decision: Decision) -> str:
    """Return how many requests forked and how many of them the page holds."""
    listed = len(decision.forks)
    total = max(listed, _count_all(decision))
    if total == 0:
        return "No fork was recorded."
    counts = _count_kinds(decision)
    kinds = ", ".join(f"{counts[kind]:,} {kind}" for kind in FORK_KINDS if counts.get(kind))
    shown = min(listed, N_SHOWN)
    hidden = f"; the gravest {shown:,} are on this page" if total > shown else ""
    requests = "request differs" if total == 1 else "requests differ"
    return f"{total:,} {requests}{': ' + kinds if kinds else ''}{hidden}."


def _count_all(decision: Decision) -> int:
    """Return how many pairs parted, those that the decision does not list included."""
    whole = _find_counts(decision)
    return int(whole.candidate or 0) if whole else 0


def _count_kinds(decision: Decision) -> dict[str, float]:
    """Return the forks by class of evidence: of all of them where that was counted."""
    whole = _find_counts(decision)
    counted = {kind: read_number(whole and whole.detail, "by_kind", kind) for kind in FORK_KINDS}
    known: dict[str, float] = {kind: count for kind, count in counted.items() if count}
    return known or {**Counter(fork.kind for fork in decision.forks)}


def _find_counts(decision: Decision) -> Comparison | None:
    found = find_comparisons(decision, "forks")
    return next((one for one in found if one.group == "all"), None)


def write_token(token: TokenView | None) -> str:
    """Return a token with its spaces and line breaks visible."""
    if token is None:
        return "(no token: the output ended)"
    return _write_text(token.text) or f"(no text: token {token.token_id})"


def _write_text(text: str) -> str:
    return show_spaces(to_block(text, TOKEN_CHARACTERS))


def _write_card(fork: Fork, room: int, *, opened: bool) -> ForkCard:
    baseline, candidate = _compare_tails(fork, room // 5)
    return ForkCard(
        kind=to_line(fork.kind, 40),
        kind_meaning=to_line(describe_fork(fork.kind), 120),
        request_id=to_line(fork.request_id, 80),
        task=to_line(fork.task, 80),
        request_class=to_line(fork.request_class, 80),
        position=format_number(fork.position),
        before=fit_end(fork.before, room // 10),
        token_baseline=write_token(fork.token_baseline),
        token_candidate=write_token(fork.token_candidate),
        after_baseline=baseline,
        after_candidate=candidate,
        prompt=fit(fork.prompt, room // 3),
        gap=_write_nats(fork.gap),
        regret_baseline=_write_nats(fork.regret_baseline),
        regret_candidate=_write_nats(fork.regret_candidate),
        alternatives=tuple(_write_alternative(one) for one in fork.alternatives),
        evidence=_write_evidence(fork),
        score=_write_score(fork.score_changed),
        opened=opened,
    )


# ----------------------------------------------------------------------- diff


def _compare_tails(fork: Fork, room: int) -> tuple[Runs, Runs]:
    """Return what follows the fork in both arms, in runs that the other arm has or has not."""
    left, right = list(fork.tokens_baseline[1:]), list(fork.tokens_candidate[1:])
    if not (fork.tokens_baseline or fork.tokens_candidate):
        left, right = [fork.after_baseline], [fork.after_candidate]
    blocks = SequenceMatcher(a=left, b=right, autojunk=False).get_opcodes()
    return (
        _join(((tag != "equal", left[a:b]) for tag, a, b, _, _ in blocks), room),
        _join(((tag != "equal", right[c:d]) for tag, _, _, c, d in blocks), room),
    )


def _join(blocks: Iterator[tuple[bool, Sequence[str]]], room: int) -> Runs:
    """Return the runs in reading order, as many as there is room for; the rest is counted.

    A run that the other arm has is one piece; in the others each token is a piece of its own.
    """
    pieces = [
        (differs, text, len(tokens))
        for differs, run in blocks
        for tokens in ([[token] for token in run] if differs else [run])
        if (text := "".join(tokens))
    ]
    shown: list[Piece] = []
    left = room
    for n, (differs, text, _) in enumerate(pieces):
        if left <= 0:
            n_cut = sum(size for *_, size in pieces[n:])
            return (*shown, Piece(text=f" … ({n_cut} more tokens)", differs=False))
        piece = Piece(text=fit(text, left), differs=differs)
        left -= measure(piece.text)
        shown.append(piece)
    return tuple(shown)


# ------------------------------------------------------------------- evidence


def _write_alternative(one: Alternative) -> tuple[str, str]:
    return write_token(one.token), _write_nats(one.behind_nat) if one.behind_nat else "its choice"


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

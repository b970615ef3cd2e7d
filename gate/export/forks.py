"""A fork as text: what both arms had in common, how each went on, and what the referee says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gate.export.text import clip, show_hidden, show_spaces, to_line

if TYPE_CHECKING:
    from gate.records import Fork, TokenView

WIDTH = 120  # characters of context on either side
NOTHING = "(nothing: the output ended)"


def describe_fork(fork: Fork) -> str:
    """Return a fork in context, on a few lines: safe to print, blanks and line breaks drawn.

    The forked token of each arm stands in brackets.
    """
    where = f"{to_line(fork.request_id, 80)}, output position {fork.position}"
    regrets = f"baseline {_nat(fork.regret_baseline)}, candidate {_nat(fork.regret_candidate)}"
    return "\n".join(
        (
            f"first fork: request {where}",
            f"  evidence   {fork.kind}; regret: {regrets}; gap {_nat(fork.gap)}",
            f"  before     {_before(fork.before)}",
            f"  baseline   {_continue(fork.token_baseline, fork.after_baseline)}",
            f"  candidate  {_continue(fork.token_candidate, fork.after_candidate)}",
        )
    )


def _nat(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g} nat"


def _before(text: str) -> str:
    if not text:
        return "(nothing: the first token)"
    return _draw(text if len(text) <= WIDTH else f"…{text[-WIDTH:]}")


def _continue(token: TokenView | None, after: str) -> str:
    if token is None:
        return NOTHING
    name = _draw(clip(token.text, WIDTH)) or f"token {token.token_id}"
    return f"[{name}]{_draw(clip(after, WIDTH))}"


def _draw(text: str) -> str:
    return show_hidden(show_spaces(text), keep="")

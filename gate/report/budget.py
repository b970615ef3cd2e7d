"""How much text a page holds: the parts share a budget, so that it opens from a mail attachment.

Sizes are those of the finished HTML: escaped and in UTF-8, so that a text full of brackets or
control characters does not get six times the room of a plain one.
"""

from __future__ import annotations

from markupsafe import escape

from gate.export.text import to_block

FORKS_BYTES = 1_300_000
FLIPS_BYTES = 450_000
LEAST_BYTES = 120


def share_room(total: int, n_texts: int, most: int) -> int:
    """Return the bytes that each of ``n_texts`` may take of ``total``, ``most`` where few do."""
    return max(LEAST_BYTES, min(most, total // max(1, n_texts)))


def fit(text: str, room: int) -> str:
    """Return ``text`` with everything hidden made visible, cut to about ``room`` bytes of HTML.

    What was cut is counted at the end.
    """
    take = room
    while True:
        shown = to_block(text, take)
        size = measure(shown)
        if size <= room or take <= 1:
            return shown
        take = max(1, min(take - 1, min(take, len(text)) * room // size))


def fit_end(text: str, room: int) -> str:
    """Return the last part of ``text``, cut to about ``room`` bytes of HTML."""
    take = min(room, len(text))
    while take > 1 and measure(to_block(text[-take:])) > room:
        take = max(1, take * room // measure(to_block(text[-take:])) - 1)
    shown = to_block(text[len(text) - take :], 2 * room)
    return shown if take == len(text) else f"…{shown}"


def measure(shown: str) -> int:
    """Return the bytes that ``shown`` takes in the page."""
    return len(str(escape(shown)).encode("utf-8", "backslashreplace"))

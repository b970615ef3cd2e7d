"""How often guesses of a stated chance come true: what the budget policy believes of them.

Laws are over-confident where little is known: behind a token known by no longer key, a stated 0.5
came true one time in four on forty tuning prompts, and it is just such nodes that look worth a row
when few do. So chances are corrected by how often guesses came true, by the longest key that
recycled rows answered to and by the stated chance. Every committed token is evidence, also of steps
that guessed nothing: its node's law was there, and either foresaw it or did not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from gate.decoders.mixture import Situation

Stated = Sequence[tuple[int, float]]
"""Tokens and their chances, likeliest first."""
EDGES = (0.2, 0.4, 0.7)
"""Stated chances are told apart between these."""
# Came true / stated, on forty tuning prompts; by the longest key (0 to 3), then by stated chance.
_FITTED = (
    (1.0, 0.95, 0.9, 0.9),
    (1.0, 0.63, 0.55, 0.5),
    (0.85, 0.65, 0.97, 0.95),
    (0.95, 0.95, 0.97, 0.98),
)
PRIOR_GUESSES = 12.0
"""Guesses, counted by their chances, that the fitted figures are worth."""
LEAST = 0.05
"""Chances below are no evidence; they are many, and seldom worth a row."""
MOST = 0.99


class Trust:
    """Guesses of one request that came true, beside their stated chances."""

    def __init__(self) -> None:
        self._stated = [[PRIOR_GUESSES for _ in row] for row in _FITTED]
        self._true = [[PRIOR_GUESSES * factor for factor in row] for row in _FITTED]

    def correct(self, stated: Stated, situation: Situation) -> list[tuple[int, float]]:
        """Return the tokens with the chances that they have by experience, likeliest first."""
        factors = [
            t / s for t, s in zip(self._true[situation[0]], self._stated[situation[0]], strict=True)
        ]
        corrected = [(token, min(MOST, p * factors[bisect_right(EDGES, p)])) for token, p in stated]
        return sorted(corrected, key=_by_chance)

    def observe(self, stated: Stated, situation: Situation, token: int) -> None:
        """Learn from a committed token what its node's law was worth."""
        known, true = self._stated[situation[0]], self._true[situation[0]]
        for guess, p in stated:
            if p < LEAST:
                break
            at = bisect_right(EDGES, p)
            known[at] += p
            true[at] += guess == token


def _by_chance(guess: tuple[int, float]) -> float:
    return -guess[1]

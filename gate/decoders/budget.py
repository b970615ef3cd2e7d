"""How many rows a step gets: all it may have, or as many as pay by a recorded cost curve.

With node chances p_1 >= p_2 >= ... of the tree, a step of R rows commits about
1 + p_1 + ... + p_(R-1) tokens. The step takes the R that maximises that per unit of cost(R), and
one row where none gains enough: by MARGIN, and by more while the request's guesses have lost more
time than they saved. The tree grows best first, so no later node is likelier than the last one:
growth ends where even rows as likely as that one could not pay. Neither wall time nor the
neighbours in the batch count, so a run repeats exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Costs = Sequence[tuple[int, float]]
MARGIN = 0.02
"""Gain that a guess must promise: about what growing a tree and learning from it takes."""
CAUTION = 0.1
"""More gain that it must promise per one-row step that earlier guesses have lost."""


def spread_costs(points: Costs, rows: int) -> np.ndarray:
    """Return the cost of 1 to ``rows`` rows: straight lines between points, flat before the first.

    points: (rows, cost), rows rising, any unit of time. Past the last point the last slope goes on.
    """
    known = np.array(points, dtype=np.float64)
    at = np.arange(1, rows + 1)
    costs: np.ndarray = np.interp(at, known[:, 0], known[:, 1])
    if len(known) > 1 and rows > known[-1, 0]:
        slope = max(0.0, (known[-1, 1] - known[-2, 1]) / (known[-1, 0] - known[-2, 0]))
        costs += slope * np.maximum(0.0, at - known[-1, 0])
    return costs


class Budget:
    """The rows of one request's steps. costs: of 1, 2, ... rows, or None: always all."""

    def __init__(self, costs: np.ndarray | None) -> None:
        self._costs = None if costs is None else costs / costs[0]
        self._ahead = np.arange(1, 1 + (0 if costs is None else len(costs)))
        self._saved = 0.0  # one-row steps, net, that guesses saved so far
        self.begin()

    def begin(self) -> None:
        """Start a step, of one row at first."""
        self._n, self._tokens = 0, 1.0
        self._best = 1.0 + MARGIN + CAUTION * max(0.0, -self._saved)
        self.n_kept = 0
        """Nodes of the tree that are worth their rows."""

    def admits(self, chance: float) -> bool:
        """Whether nodes of at most this chance, as many as there is room for, could pay."""
        if self._costs is None:
            return True
        costs = self._costs[self._n + 1 :]
        bounds = (self._tokens + chance * self._ahead[: len(costs)]) / costs
        return bool((bounds > self._best).any())

    def add(self, chance: float) -> None:
        """Take the next node of the tree; none before it had a lower chance."""
        self._n += 1
        self._tokens += chance
        gain = np.inf if self._costs is None else self._tokens / self._costs[self._n]
        if self._costs is None or gain > self._best:
            self.n_kept, self._best = self._n, float(gain)

    def observe(self, n_rows: int, n_emitted: int) -> None:
        """Learn what a step of so many rows committed."""
        if self._costs is not None:
            self._saved += n_emitted - float(self._costs[n_rows - 1])

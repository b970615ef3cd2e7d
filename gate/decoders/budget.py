"""How many rows a step gets: all it may have, or as many as pay by a recorded cost curve.

With node probabilities p_1 >= p_2 >= ... of the tree, a step of R rows commits about
1 + c (p_1 + ... + p_(R-1)) tokens; c is the request's accepted drafts over those expected.
The step takes the R that maximises that per unit of cost(R). Neither wall time nor the
neighbours in the batch count, so a run repeats exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PRIOR_DRAFTS = 4.0
"""Expected drafts that trust in the estimates is worth before anything was seen."""
Costs = Sequence[tuple[int, float]]


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
        self._costs = costs
        self._accepted = self._expected = PRIOR_DRAFTS

    def choose(self, probabilities: Sequence[float]) -> int:
        """Return how many of the tree's nodes to run, given their probabilities in order."""
        if self._costs is None:
            return len(probabilities)
        trust = self._accepted / self._expected
        tokens = 1.0 + trust * np.concatenate([[0.0], np.cumsum(probabilities)])
        return int(np.argmax(tokens / self._costs[: len(tokens)]))

    def observe(self, expected: float, n_accepted: int) -> None:
        """Learn from a step: drafts expected of the nodes run, drafts accepted."""
        self._expected += expected
        self._accepted += n_accepted

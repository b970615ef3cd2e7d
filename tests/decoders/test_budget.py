"""How many rows a step takes: as many as pay by the curve, and growth ends where none could."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from gate.decoders.budget import MARGIN, Budget, spread_costs


def grow(budget: Budget, chances: Sequence[float]) -> int:
    """Offer nodes best first, as the drafter does; returns how many were grown."""
    budget.begin()
    for n, chance in enumerate(chances):
        if not budget.admits(chance):
            return n
        budget.add(chance)
    return len(chances)


def test_the_budget_weighs_expected_tokens_against_cost() -> None:
    budget = Budget(np.array([1.0, 1.5, 3.0]))
    grow(budget, [0.9, 0.4])
    assert budget.n_kept == 1  # 1.9 / 1.5 beats 1 and 2.3 / 3


def test_nothing_grows_where_no_row_could_pay() -> None:
    budget = Budget(np.array([1.0, 1.5, 3.0]))
    assert grow(budget, [0.4, 0.3]) == 0
    assert budget.n_kept == 0


def test_without_a_curve_every_row_is_taken() -> None:
    budget = Budget(None)
    assert grow(budget, [0.1, 0.01]) == 2
    assert budget.n_kept == 2


def test_a_tree_that_stops_growing_early_is_cut_where_the_whole_one_would_be() -> None:
    rng = random.Random(2)
    for _ in range(300):
        n = rng.randrange(1, 30)
        costs = 1.0 + np.cumsum([0.0, *(rng.random() * rng.choice((0.05, 0.5)) for _ in range(n))])
        chances = sorted((rng.random() ** rng.choice((1, 3)) for _ in range(n)), reverse=True)
        budget = Budget(costs)
        assert grow(budget, chances) <= n
        gains = (1.0 + np.cumsum([0.0, *chances])) / costs
        gains[0] = 1.0 + MARGIN
        assert budget.n_kept == int(np.argmax(gains))


def test_a_request_whose_guesses_lost_time_wants_more_of_the_next_ones() -> None:
    budget = Budget(np.array([1.0, 1.5, 3.0]))
    for _ in range(10):
        budget.observe(n_rows=2, n_emitted=1)
    grow(budget, [0.9, 0.4])
    assert budget.n_kept == 0  # 1.9 / 1.5 would do, had the last ten not been lost
    for _ in range(20):
        budget.observe(n_rows=2, n_emitted=2)
    grow(budget, [0.9, 0.4])
    assert budget.n_kept == 1


def test_costs_lie_on_lines_between_points_and_go_on_behind_the_last() -> None:
    costs = spread_costs(((1, 1.0), (3, 2.0), (4, 4.0)), 6)
    assert costs.tolist() == [1.0, 1.5, 2.0, 4.0, 6.0, 8.0]
    assert spread_costs(((1, 2.0),), 3).tolist() == [2.0, 2.0, 2.0]

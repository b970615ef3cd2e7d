"""Turns of the arms: no prompt lost or sent twice, every class in both orders."""

from __future__ import annotations

import pytest

from gate.gain_config import ServingConfig
from gate.records import Request
from gate.timing import cross_over, list_sizes
from gate.timing_plan import apportion


def make_block(half: int, n_classes: int, n: int) -> tuple[Request, ...]:
    return tuple(
        Request(id=f"{half}/{c}/{k}", task="t", request_class=str(c), prompt="p", max_tokens=1)
        for c in range(n_classes)
        for k in range(n)
    )


@pytest.mark.parametrize("n_classes", [1, 2, 3, 10])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_every_class_is_served_in_both_orders_and_nothing_is_lost(n_classes: int, n: int) -> None:
    blocks = [make_block(half, n_classes, n) for half in range(2)]
    pieces = cross_over(blocks, 1)
    sent = [request for piece in pieces for request in piece]
    assert sorted(r.id for r in sent) == sorted(r.id for block in blocks for r in block)
    for name in {r.request_class for r in sent}:
        orders = [at % 2 for at, piece in enumerate(pieces) if piece[0].request_class == name]
        assert sum(orders) == n


def test_servers_serve_whole_blocks_and_batches_stay_together() -> None:
    blocks = [make_block(half, 2, 2) for half in range(2)]
    assert cross_over(blocks, None) == blocks
    assert [len(piece) for piece in cross_over(blocks, 3)] == [3, 1, 1, 3]


def test_the_sweep_goes_up_to_the_production_batch() -> None:
    assert list_sizes(ServingConfig(production_batch=12), 8, "content") == [1, 2, 4, 8, 12]
    assert list_sizes(ServingConfig(), 8, "release") == [1, 2, 4, 8]
    assert list_sizes(ServingConfig(), 8, "content") == []
    assert list_sizes(ServingConfig(production_batch=1), 8, "content") == [1]


def test_requests_are_apportioned_by_share() -> None:
    assert apportion({"a": 0.5, "b": 0.3, "c": 0.2}, 10) == {"a": 5, "b": 3, "c": 2}
    assert sum(apportion({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, 10).values()) == 10

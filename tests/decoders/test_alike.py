"""Tokens with like embeddings are taken to have like successors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gate.decoders import alike
from gate.decoders.alike import Alike, project_embeddings
from gate.decoders.options import LookaheadOptions
from gate.decoders.tree_drafter import TreeDrafter
from tests.decoders.helpers import make_request

TABLE = np.array([[1, 0], [0.9, 0.1], [0, 1], [-1, 0], [0.8, -0.1]], dtype=np.float32)


class Model:
    """What shows input embeddings."""

    def __init__(self, table: torch.Tensor | None) -> None:
        self._table = table

    def get_input_embeddings(self) -> Any:
        if self._table is None:
            return object()
        layer = torch.nn.Embedding(*self._table.shape)
        layer.weight = torch.nn.Parameter(self._table)
        return layer


def test_the_likest_token_speaks_loudest_and_unlike_ones_not_at_all() -> None:
    likes = Alike(TABLE)
    for token in (1, 2, 3, 4):
        likes.add(token)
    laws = {1: {10: 1.0}, 2: {20: 1.0}, 3: {30: 1.0}, 4: {40: 1.0}}
    law = likes.find(0, laws.get)
    assert law is not None
    assert set(law) == {10, 40}
    assert law[10] > law[40]
    assert sum(law.values()) == pytest.approx(1.0)


def test_nothing_is_alike_where_nothing_is_known() -> None:
    assert Alike(TABLE).find(0, lambda _: None) is None
    assert Alike(None).find(0, lambda _: None) is None
    likes = Alike(TABLE)
    likes.add(99)  # a padded vocabulary is longer than the table
    likes.add(3)
    assert likes.find(0, {3: {1: 1.0}}.get) is None
    assert likes.find(99, {3: {1: 1.0}}.get) is None


def test_more_tokens_than_there_was_room_for_are_kept() -> None:
    table = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    likes = Alike(table)
    for token in range(200):
        likes.add(token)
        likes.add(token)
    assert likes.find(7, lambda token: {token: 1.0}) is not None
    assert len(likes._tokens) == 200


def test_projections_keep_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    table = torch.randn(200, 512)
    table[1] = table[0] + 0.3 * torch.randn(512)
    monkeypatch.setattr(alike, "CHUNK", 64)
    projected = project_embeddings(Model(table))
    assert projected is not None
    assert projected.shape == (200, alike.N_DIMENSIONS)
    exact = torch.nn.functional.normalize(table, dim=1).numpy()
    errors = projected @ projected[0] - exact @ exact[0]
    assert np.abs(errors).max() < 0.5
    assert float(projected[1] @ projected[0]) > 0.6


def test_narrow_embeddings_are_taken_as_they_are() -> None:
    table = torch.randn(5, 3)
    projected = project_embeddings(Model(table))
    assert projected is not None
    exact = torch.nn.functional.normalize(table, dim=1).numpy()
    np.testing.assert_allclose(projected, exact, rtol=1e-6)


def test_a_model_without_a_table_guesses_without_it() -> None:
    assert project_embeddings(Model(None)) is None


def test_a_token_never_seen_is_followed_by_what_follows_its_like() -> None:
    drafter = TreeDrafter(LookaheadOptions(rows=9), make_request(), (1, 2), TABLE)
    drafter.learn_prompt(np.array([[5.0, 0.0]] * 2), np.array([[4, 3], [2, 3]]))
    assert drafter.propose(0, (0,), 9).tokens[0] == 4

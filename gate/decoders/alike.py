"""What followed tokens like one that was never seen, by the model's input embeddings.

Tokens with like embeddings have like successors. Embeddings are compared by their cosine, after a
random projection to N_DIMENSIONS, which keeps cosines to about 1/sqrt(N_DIMENSIONS) (Johnson,
Lindenstrauss, 1984): a table of 64 numbers a token stays on the host, whatever the model's width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gate.decoders.sources import Law

N_DIMENSIONS = 64
CHUNK = 8192
"""Embeddings that are projected at once: bounds the memory of a wide model's table."""
N_ALIKE = 8
"""Seen tokens that speak for an unseen one."""
LEAST_COSINE = 0.2
SHARPNESS = 8.0
"""A seen token's say is exp(SHARPNESS cosine)."""


@torch.inference_mode()
def project_embeddings(model: Any) -> np.ndarray | None:
    """Return (vocab, n <= N_DIMENSIONS) float32, or None where a model shows no such table."""
    table = getattr(model.get_input_embeddings(), "weight", None)
    if not isinstance(table, torch.Tensor) or table.dim() != 2:  # noqa: PLR2004 - a matrix
        return None
    width = table.shape[1]
    generator = torch.Generator().manual_seed(0)
    projection = torch.randn(width, N_DIMENSIONS, generator=generator) / N_DIMENSIONS**0.5
    if width <= N_DIMENSIONS:
        projection = torch.eye(width)
    projection = projection.to(table.device)
    parts = [
        torch.nn.functional.normalize(chunk.float(), dim=1) @ projection
        for chunk in torch.split(table, CHUNK)
    ]
    projected: np.ndarray = torch.cat(parts).cpu().numpy()
    return projected


class Alike:
    """The tokens of one request that a law is known of, and their projected embeddings."""

    def __init__(self, table: np.ndarray | None) -> None:
        """table: (vocab, n), as :func:`project_embeddings` returns it; None: none is alike."""
        self._table = np.zeros((0, 1), dtype=np.float32) if table is None else table
        self._tokens: list[int] = []
        self._known: set[int] = set()
        self._rows = np.zeros((64, self._table.shape[1]), dtype=np.float32)

    def add(self, token: int) -> None:
        """Remember that a law is known of a token."""
        if token in self._known or not 0 <= token < len(self._table):
            return
        if len(self._tokens) == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[len(self._tokens)] = self._table[token]
        self._tokens.append(token)
        self._known.add(token)

    def find(self, token: int, read: Callable[[int], Law | None]) -> Law | None:
        """Return the law of a token's likes. read: token -> its own law."""
        n = len(self._tokens)
        if not n or not 0 <= token < len(self._table):
            return None
        cosines = self._rows[:n] @ self._table[token]
        best = np.argsort(-cosines, kind="stable")[:N_ALIKE]
        mixed: dict[int, float] = {}
        total = 0.0
        for at in best.tolist():
            law = read(self._tokens[at])
            if law is None or cosines[at] < LEAST_COSINE:
                break
            weight = float(np.exp(SHARPNESS * cosines[at]))
            total += weight
            for successor, p in law.items():
                mixed[successor] = mixed.get(successor, 0.0) + weight * p
        return {successor: p / total for successor, p in mixed.items()} if total else None

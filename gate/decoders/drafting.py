"""What a drafter offers per step: a tree of guesses to verify, and rows of its own to run.

The verifier trusts none of it. Guesses only decide how many tokens a step commits,
never which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

import numpy as np

from gate.records import Request

Drafts = Callable[[Request, tuple[int, ...]], Sequence[Sequence[int]]]
"""External drafts: (request, output so far) -> candidate continuations, best first."""


EXTERNAL_ROWS = 128
"""Most rows of external drafts that one step verifies."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Candidate continuations with shared prefixes merged. Row 0 is the last committed token.

    tokens[i]: token of row i + 1. parents[i]: row it follows. depths[i]: its distance from row 0.
    children: (row, token) -> row.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    children: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, candidate: Sequence[int], max_depth: int) -> None:
        """Merge one continuation into the tree, at most ``max_depth`` tokens of it."""
        row = 0
        for token in candidate[:max_depth]:
            child = self.children.get((row, token))
            row = self.append(row, token) if child is None else child

    def append(self, parent: int, token: int) -> int:
        """Add a child that ``parent`` does not have yet; returns its row."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent - 1] + 1 if parent else 1)
        row = self.children[parent, token] = len(self.tokens)
        return row

    def cut(self, n_tokens: int) -> None:
        """Keep the first ``n_tokens`` guesses; parents come before their children."""
        for row in range(n_tokens + 1, len(self.tokens) + 1):
            del self.children[self.parents[row - 1], self.tokens[row - 1]]
        for column in (self.tokens, self.parents, self.depths):
            del column[n_tokens:]

    def mask(self) -> np.ndarray:
        """(n, n) bool over row 0 and the tree: each row sees its ancestors and itself."""
        mask = np.eye(len(self.tokens) + 1, dtype=bool)
        for row, parent in enumerate(self.parents, start=1):
            mask[row] |= mask[parent]
        return mask


@dataclass(frozen=True, kw_only=True)
class ExtraRows:
    """Rows a drafter runs beside the tree to find later guesses.

    tokens, depths: n each. mask: (n, n), among themselves; all see row 0. read: indices
    whose best next token the drafter wants.
    """

    tokens: list[int]
    depths: np.ndarray
    mask: np.ndarray
    read: list[int]


class Drafter(Protocol):
    """Guesses for one request; its state dies with it.

    max_tree: most rows of a tree. n_top: best tokens that it wants of each row; 0: none.
    n_prompt: rows of the prompt, from its first on, that it wants them of as well.
    """

    max_tree: int
    n_top: int
    n_prompt: int

    def propose(self, last: int, output: Sequence[int], max_depth: int) -> Tree:
        """Return guesses that follow ``last``, the last committed token."""
        ...

    def extra_rows(self) -> ExtraRows | None:
        """Return rows to run beside the tree, of the same number at every step."""
        ...

    def observe(self, best: Sequence[int], n_emitted: int) -> None:
        """Take the best next tokens at the rows read, and how many tokens were committed."""
        ...

    def learn(self, tree: Tree, values: np.ndarray, ids: np.ndarray, path: Sequence[int]) -> None:
        """Take what row 0 and the tree said, where ``n_top`` is not 0, and the rows kept.

        values, ids: (1 + len(tree.tokens), n_top): logits, nats, and tokens, best first.
        """
        ...

    def learn_prompt(self, values: np.ndarray, ids: np.ndarray) -> None:
        """Take what the first rows of the prompt said, where ``n_prompt`` is not 0: (n, n_top)."""
        ...


def trim_drafts(drafts: Drafts, vocab_size: int) -> Drafts:
    """The same drafts, each cut at its first token outside the vocabulary."""

    def trimmed(request: Request, output: tuple[int, ...]) -> list[list[int]]:
        known = range(vocab_size)
        return [list(takewhile(known.__contains__, c)) for c in drafts(request, output)]

    return trimmed


class NoDrafts:
    """Plain decoding: nothing is guessed."""

    max_tree = 0
    n_top = 0
    n_prompt = 0

    def propose(self, last: int, output: Sequence[int], max_depth: int) -> Tree:  # noqa: ARG002
        """Return an empty tree."""
        return Tree()

    def extra_rows(self) -> ExtraRows | None:
        """No rows of its own."""
        return None

    def observe(self, best: Sequence[int], n_emitted: int) -> None:
        """Nothing to learn."""

    def learn(self, tree: Tree, values: np.ndarray, ids: np.ndarray, path: Sequence[int]) -> None:
        """Nothing to learn."""

    def learn_prompt(self, values: np.ndarray, ids: np.ndarray) -> None:
        """Nothing to learn."""


class ExternalDrafts(NoDrafts):
    """Guesses supplied from outside, for metamorphic and rate tests; cut to ``max_tree`` rows."""

    max_tree = EXTERNAL_ROWS

    def __init__(self, request: Request, drafts: Drafts) -> None:
        """``drafts`` is asked at every step."""
        self._request = request
        self._drafts = drafts

    def propose(self, last: int, output: Sequence[int], max_depth: int) -> Tree:  # noqa: ARG002
        """Return the supplied continuations as a tree."""
        tree = Tree()
        for candidate in self._drafts(self._request, tuple(output)):
            tree.add(candidate, min(max_depth, self.max_tree - len(tree.tokens)))
        return tree

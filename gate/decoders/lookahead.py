"""Lookahead decoding: guesses from the model's own n-gram trajectories (arXiv:2402.02057).

A window of W columns and N - 1 levels holds the last N - 1 Jacobi iterations of the next
W positions. Each step runs its rows beside the verification tree; the best next tokens of
the newest level complete one n-gram per column, which goes into a pool keyed by its first
token. The pool's continuations of the last committed token are verified in the next step.

Row (level l, column i) stands at i + 1 + l positions after the last committed token. It
sees that token, the level-0 columns up to its own, and its own column's earlier levels.
Unlike the published form the window moves by as many columns as tokens were committed,
and a full match keeps the bonus token.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from gate.decoders.alike import project_embeddings
from gate.decoders.base import Tap
from gate.decoders.decoding import Batch, decode_batches
from gate.decoders.drafting import (
    EXTERNAL_ROWS,
    Drafter,
    Drafts,
    ExternalDrafts,
    ExtraRows,
    Tree,
    trim_drafts,
)
from gate.decoders.engine import check_architecture
from gate.decoders.options import LookaheadOptions
from gate.decoders.sources import SHARED_KEYS, Recycled
from gate.decoders.tree_drafter import TreeDrafter
from gate.noise import mix_int, stream_key
from gate.records import DecoderSpec, Generation, Request

if TYPE_CHECKING:
    from gate.models import LoadedModel


class NgramPool:
    """The last ``capacity`` continuations seen after each token, newest first."""

    def __init__(self, capacity: int) -> None:
        """``capacity``: continuations kept per first token."""
        self._capacity = capacity
        self._by_first: dict[int, OrderedDict[tuple[int, ...], None]] = {}

    def add(self, ngram: Sequence[int]) -> None:
        """Remember an n-gram under its first token."""
        found = self._by_first.setdefault(ngram[0], OrderedDict())
        continuation = tuple(ngram[1:])
        found.pop(continuation, None)
        found[continuation] = None
        if len(found) > self._capacity:
            found.popitem(last=False)

    def add_text(self, ids: Sequence[int], size: int) -> None:
        """Remember every n-gram of ``ids``."""
        for start in range(len(ids) - size + 1):
            self.add(ids[start : start + size])

    def continuations(self, token: int) -> list[tuple[int, ...]]:
        """Return what followed ``token``, newest first."""
        return list(reversed(self._by_first.get(token, ())))


@lru_cache(maxsize=64)
def window_geometry(window: int, n_levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return depths (n,) and mask (n, n) of the window's rows, level by level."""
    level, column = np.divmod(np.arange(window * n_levels), window)
    depths = column + 1 + level
    first = (level[None, :] == 0) & (column[None, :] <= column[:, None])
    own = (column[None, :] == column[:, None]) & (level[None, :] <= level[:, None])
    return depths, first | own


class LookaheadDrafter:
    """Window and pool of one request."""

    def __init__(
        self,
        options: LookaheadOptions,
        request: Request,
        prompt: Sequence[int],
        drafts: Drafts | None,
    ) -> None:
        """``drafts``, where given, replaces the pool's guesses."""
        self._options = options
        self.n_top = self.n_prompt = 0
        self._request = request
        self._drafts = drafts
        self.max_tree = options.guesses * (options.ngram - 1) if drafts is None else EXTERNAL_ROWS
        self._history = list(prompt)
        self._key = stream_key(0, request.id, request.repeat)
        self._n_filled = 0
        self._pool = NgramPool(options.guesses)
        if options.prompt_ngrams:
            self._pool.add_text(prompt, options.ngram)
        self._levels = [self._fill([]) for _ in range(options.ngram - 1)]

    def _fill(self, tokens: Sequence[int]) -> list[int]:
        """Complete a level with tokens of the history, picked by a hash: reproducible."""
        filled = list(tokens)
        while len(filled) < self._options.window:
            self._n_filled += 1
            filled.append(self._history[mix_int(self._key + self._n_filled) % len(self._history)])
        return filled

    def propose(self, last: int, output: Sequence[int], max_depth: int) -> Tree:
        """Return the pool's continuations of ``last`` as a tree."""
        tree = Tree()
        if self._drafts is None:
            candidates: Sequence[Sequence[int]] = self._pool.continuations(last)
        else:
            candidates = self._drafts(self._request, tuple(output))
        for candidate in candidates:
            tree.add(candidate, min(max_depth, self.max_tree - len(tree.tokens)))
        return tree

    def extra_rows(self) -> ExtraRows:
        """Return the window; its newest level is read."""
        window, n_levels = self._options.window, self._options.ngram - 1
        depths, mask = window_geometry(window, n_levels)
        tokens = [token for level in self._levels for token in level]
        newest = range(window * (n_levels - 1), window * n_levels)
        return ExtraRows(tokens=tokens, depths=depths, mask=mask, read=list(newest))

    def observe(self, best: Sequence[int], n_emitted: int) -> None:
        """Add one n-gram per column to the pool, and move the window on."""
        columns = [*self._levels, list(best)]
        for ngram in zip(*columns, strict=True):
            self._pool.add(ngram)
        moved = [level[n_emitted - 1 :] for level in columns[1:]]
        self._levels = [self._fill(level) for level in moved]

    def learn(self, tree: Tree, values: np.ndarray, ids: np.ndarray, path: Sequence[int]) -> None:
        """Nothing: what rejected rows said is not kept."""

    def learn_prompt(self, values: np.ndarray, ids: np.ndarray) -> None:
        """Nothing: the pool holds what the window said."""


class LookaheadDecoder:
    """The candidate of a lookahead release."""

    batch_class: type[Batch] = Batch

    def __init__(self, model: LoadedModel, options: LookaheadOptions) -> None:
        """Make a decoder for a loaded model. Raises UsageError for a cache it cannot hold."""
        check_architecture(model.model.config, model.name)
        self.spec = DecoderSpec(kind="lookahead", options=msgspec.to_builtins(options))
        self.tap: Tap | None = None
        self.drafts: Drafts | None = None
        self._model = model
        self._options = options
        self._embeddings = project_embeddings(model.model) if options.recycles else None
        self._shared: Recycled | None = None
        self.forget()

    @property
    def remembers(self) -> bool:
        """Whether a request may guess what earlier ones taught."""
        return self._shared is not None

    def forget(self) -> None:
        """Drop what requests left behind for later ones; they share nothing unless told to."""
        self._shared = Recycled(SHARED_KEYS) if self._options.shared_rows else None

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Yield one generation per request; all requests of a call share one batch."""
        yield from decode_batches(
            self._model,
            requests,
            self.make_drafter,
            self.tap,
            self._options.context,
            self.batch_class,
        )

    def make_drafter(self, request: Request, prompt: Sequence[int]) -> Drafter:
        """Return the drafter of one request."""
        drafts = self.drafts and trim_drafts(self.drafts, self._model.vocab_size)
        if self._options.rows is not None:
            return (
                ExternalDrafts(request, drafts)
                if drafts
                else TreeDrafter(self._options, request, prompt, self._embeddings, self._shared)
            )
        return LookaheadDrafter(self._options, request, prompt, drafts)

"""Faults of cache, positions and batch: the law itself is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gate.decoders.decoding import Layout
from gate.decoders.drafting import ExtraRows, Tree
from gate.decoders.engine import Engine
from gate.faults.base import Changes, RoomyEngine, RunBatch, RunSampler, fault, thread

KIND = "cache"
CAUGHT = ("token_defects", "divergence", "conformance", "token_unexplained", "error_rate")
N_SHARED = 16  # first tokens that make two prompts share a cache block


@fault("no-rollback", kind=KIND, source=thread("ml-explore/mlx-lm/pull/1109"), expected=CAUGHT)
def no_rollback(_: float) -> Changes:
    """A rejected draft stays in the cache."""

    class Keeping(RoomyEngine):
        n_rows = 0

        def forward(
            self,
            tokens: np.ndarray,
            depths: np.ndarray,
            mask: np.ndarray | None,
            read: Sequence[int],
        ) -> torch.Tensor:
            self.n_rows = tokens.shape[1]
            return super().forward(tokens, depths, mask, read)

        def commit(self, request: int, path: Sequence[int]) -> None:
            super().commit(request, path)
            self.lengths[request] += self.n_rows > len(path)

    return Changes(engine=Keeping)


@fault("cache-reset", kind=KIND, source=thread("paiml/aprender/pull/2014"), expected=CAUGHT)
def cache_reset(_: float) -> Changes:
    """The cache is emptied where it should be rolled back."""

    class Emptying(Engine):
        def commit(self, request: int, path: Sequence[int]) -> None:
            start = int(self.lengths[request])
            super().commit(request, path)
            self._cache.values[:, request, :, :start] = 0

    return Changes(engine=Emptying)


@fault("rows-not-moved", kind=KIND, expected=CAUGHT)
def rows_not_moved(_: float) -> Changes:
    """Rows accepted from a tree of drafts are not moved to where they belong in the cache."""

    class Lazy(Engine):
        def commit(self, request: int, path: Sequence[int]) -> None:
            super().commit(request, range(len(path)))

    return Changes(engine=Lazy)


@fault(
    "position-shift",
    kind=KIND,
    source=thread("vllm-project/vllm/pull/54519"),
    strength=1.0,
    unit="positions by which drafts are shifted",
    expected=CAUGHT,
)
def position_shift(strength: float) -> Changes:
    """Drafts get a position too far."""

    class Shifted(RunBatch):
        def lay_out(
            self, trees: Sequence[Tree], extras: Sequence[ExtraRows | None], last: Sequence[int]
        ) -> Layout:
            layout = super().lay_out(trees, extras, last)
            layout.depths[:, 1 : layout.n_tree] += int(strength)
            return layout

    return Changes(batch=Shifted)


@fault("mask-leak", kind=KIND, expected=CAUGHT)
def mask_leak(_: float) -> Changes:
    """Rows of different drafts see each other."""

    class Leaking(RunBatch):
        def lay_out(
            self, trees: Sequence[Tree], extras: Sequence[ExtraRows | None], last: Sequence[int]
        ) -> Layout:
            layout = super().lay_out(trees, extras, last)
            layout.mask[:, : layout.n_tree, : layout.n_tree] |= np.tri(layout.n_tree, dtype=bool)
            return layout

    return Changes(batch=Leaking)


@fault(
    "batch-order",
    kind=KIND,
    source=thread("vllm-project/vllm/pull/14645"),
    expected=CAUGHT,
)
def batch_order(_: float) -> Changes:
    """Rows of requests with different lengths change places: tokens leak between requests."""

    class Swapping(Engine):
        def forward(
            self,
            tokens: np.ndarray,
            depths: np.ndarray,
            mask: np.ndarray | None,
            read: Sequence[int],
        ) -> torch.Tensor:
            logits = super().forward(tokens, depths, mask, read)
            if len(tokens) > 1 and self.lengths[0] != self.lengths[1]:
                logits[[0, 1]] = logits[[1, 0]]
            return logits

    return Changes(engine=Swapping)


@fault("stale-slot", kind=KIND, expected=CAUGHT)
def stale_slot(_: float) -> Changes:
    """A request that takes over another's place in the batch finds the other's cache there."""

    class Stale(Engine):
        def move_request(self, source: int, target: int) -> None:
            self.lengths[target] = self.lengths[source]

    return Changes(engine=Stale)


@fault(
    "prefix-poison",
    kind=KIND,
    source=thread("vllm-project/vllm/pull/56734"),
    expected=CAUGHT,
)
def prefix_poison(_: float) -> Changes:
    """A cache block of a shared prefix is poisoned for those who come second."""

    class Poisoned(Engine):
        def prefill(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
            logits = super().prefill(prompts)
            heads = [tuple(prompt[:N_SHARED]) for prompt in prompts]
            for b, head in enumerate(heads):
                if head in heads[:b]:
                    self._cache.values[:, b, :, :N_SHARED] = 0
            return logits

    return Changes(engine=Poisoned)


@fault(
    "bonus-entry-stale",
    kind=KIND,
    expected=CAUGHT,
)
def bonus_entry_stale(_: float) -> Changes:
    """The cache entry of a run's last accepted token is another token's."""

    class StaleEntry(Engine):
        def commit(self, request: int, path: Sequence[int]) -> None:
            super().commit(request, [*path[:-1], 0] if len(path) > 1 else path)

    return Changes(engine=StaleEntry)


@fault(
    "candidate-index",
    kind=KIND,
    source=thread("vllm-project/vllm-ascend/issues/16396"),
    expected=CAUGHT,
)
def candidate_index(_: float) -> Changes:
    """Beside sampled requests greedy rows return a candidate's index, not its vocabulary id."""

    class Mixed(RunBatch):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            kinds = {output.request.sampling.temperature > 0 for output in self._outputs}
            for output in self._outputs:
                vars(output._sampler)["is_mixed"] = len(kinds) > 1

    class Index(RunSampler):
        is_mixed = False

        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            token = super().choose(logits, output)
            is_greedy = self.request.sampling.temperature == 0
            if self.is_mixed and is_greedy and token in self.drafts:
                return list(self.drafts).index(token)
            return token

    return Changes(batch=Mixed, sampler=Index)

"""One forward over a slot KV cache with a 4-D mask.

Shapes: L layers, B requests of the batch, H key/value heads, S slots, D head size,
R rows of a step (the same for all requests of a forward; shorter ones are padded).

Every request owns S slots. Its committed tokens fill the first ``lengths[b]`` slots; the
rows of a step are written right behind them, may see the committed slots and, of each
other, what the step's mask says. Dropping rejected rows costs nothing, since the next
step overwrites their slots; accepted rows are moved forward by index.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

from gate.errors import UsageError
from gate.models import cache_argument

PREFILL_ROWS = 512
"""Longest piece of a prompt in one forward: bounds the activations of a prefill."""
PROMPT_ROWS = 128
"""First rows of a prompt that may be read: the same in any batch, and a bound on memory."""


class _SlotLayer(CacheLayerMixin):
    """One layer's view of the slot cache: writes a step's rows, returns the slots in use."""

    is_sliding = False

    def __init__(self, owner: SlotCache, index: int) -> None:
        super().__init__()
        # weak: a cycle would keep every batch's slots until the garbage collector comes by
        self._owner = weakref.proxy(owner)
        self._index = index
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the slots exist from the start."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (B, H, R, D) rows at the step's slots; return (B, H, in use, D) views."""
        owner = self._owner
        keys, values = owner.keys[self._index], owner.values[self._index]
        rows, slots = owner.batch_index, owner.slots
        keys[rows, :, slots] = key_states.transpose(1, 2)
        values[rows, :, slots] = value_states.transpose(1, 2)
        n = key_states.shape[0]
        return keys[:n, :, : owner.n_used], values[:n, :, : owner.n_used]

    def get_seq_length(self) -> int:
        """Slots in use before this step: the same for all requests wherever it is asked for."""
        return int(self._owner.n_past)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Slots in use in this step, and where they begin."""
        return self._owner.n_past + query_length, 0

    def get_max_length(self) -> int:
        """Slots per request."""
        return int(self._owner.keys.shape[3])


class SlotCache(Cache):
    """Keys and values of all layers: two tensors (L, B, H, S, D)."""

    def __init__(
        self, shape: tuple[int, int, int, int, int], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.slots = torch.empty(0, dtype=torch.long)
        self.batch_index = torch.empty(0, dtype=torch.long)
        self.n_used = self.n_past = 0
        super().__init__(layers=[_SlotLayer(self, index) for index in range(shape[0])])

    def move(self, request: int, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy slots ``source`` of a request to ``target``, in all layers."""
        for store in (self.keys, self.values):
            store[:, request, :, target] = store[:, request, :, source]

    def move_request(self, source: int, target: int) -> None:
        """Copy one request over another, slots behind its tokens included.

        What the other left there may not be finite, and a masked slot still takes part in a
        sum with weight 0: 0 times NaN would reach this request.
        """
        for store in (self.keys, self.values):
            store[:, target] = store[:, source]


class Engine:
    """Runs steps of one batch. Knows token ids, rows and slots; nothing of decoding."""

    def __init__(self, model: Any, n_requests: int, n_slots: int) -> None:
        """``model``: a transformers causal language model that check_architecture accepts."""
        self._model = model
        self._device = model.device
        text_config = model.config.get_text_config(decoder=True)
        self._cache = SlotCache(
            cache_shape(text_config, n_requests, n_slots), model.dtype, self._device
        )
        self.lengths = np.zeros(n_requests, dtype=np.int64)
        self._n_first = 0
        self._tell_first: Callable[[torch.Tensor], None] = _ignore
        self._last_position = int(getattr(text_config, "max_position_embeddings", 2**31)) - 1

    def watch_prompts(self, n_rows: int, tell: Callable[[torch.Tensor], None]) -> None:
        """Let ``tell`` have the logits of the first ``n_rows`` rows of the prompts to come.

        It gets (B, n, vocab), n the rows of the longest prompt where that is shorter; rows behind
        the end of a prompt mean nothing. The same rows whatever the batch, of the first piece.
        """
        self._n_first, self._tell_first = n_rows, tell

    def prefill(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Commit the prompts; returns (B, vocab) logits at each last token."""
        longest = max(len(prompt) for prompt in prompts)
        last: list[torch.Tensor | None] = [None] * len(prompts)
        for start in range(0, longest, PREFILL_ROWS):
            pieces = [prompt[start : start + PREFILL_ROWS] for prompt in prompts]
            self._prefill_piece(pieces, last, self._n_first if start == 0 else 0)
        self._n_first, self._tell_first = 0, _ignore  # whoever watched may be our owner
        return torch.stack([row for row in last if row is not None])

    def _prefill_piece(
        self, pieces: Sequence[Sequence[int]], last: list[torch.Tensor | None], n_first: int
    ) -> None:
        n_rows = max(len(piece) for piece in pieces)
        tokens = np.zeros((len(pieces), n_rows), dtype=np.int64)
        for b, piece in enumerate(pieces):
            tokens[b, : len(piece)] = piece
        depths = np.broadcast_to(np.arange(n_rows), tokens.shape)
        n_first = min(n_first, n_rows)
        ends = {len(piece) - 1 for piece in pieces if len(piece)}
        read = sorted(ends | set(range(n_first)))
        logits = self.forward(tokens, depths, None, read)
        if n_first:
            self._tell_first(logits[:, :n_first])
        for b, piece in enumerate(pieces):
            if len(piece):
                # a copy, where the other rows shall not stay in memory
                row = logits[b, read.index(len(piece) - 1)]
                last[b] = row.clone() if n_first else row
                self.lengths[b] += len(piece)

    @torch.inference_mode()
    def forward(
        self,
        tokens: np.ndarray,
        depths: np.ndarray,
        mask: np.ndarray | None,
        read: Sequence[int],
    ) -> torch.Tensor:
        """Run one step. Nothing is committed: :meth:`commit` does that.

        tokens, depths: (B, R), int64; ``depths`` counts from 0 at the first position that
        is not committed. mask: (B, R, R), bool, row r may see row c; None: a chain, each row
        sees the ones before it. read: the rows whose logits are wanted. Returns
        (B, len(read), vocab).

        A chain takes the model's own causal kernel where that is exact: one row each behind
        equally many slots, or the first rows of all.
        """
        n, n_rows = tokens.shape
        if mask is None and not self._is_plainly_causal(n, n_rows):
            mask = np.broadcast_to(np.tri(n_rows, dtype=bool), (n, n_rows, n_rows))
        lengths = torch.from_numpy(self.lengths[:n]).to(self._device)
        rows = torch.arange(n_rows, device=self._device)
        cache = self._cache
        cache.slots = lengths[:, None] + rows
        cache.batch_index = torch.arange(n, device=self._device)[:, None]
        cache.n_past = int(self.lengths[:n].max())
        cache.n_used = cache.n_past + n_rows
        position_ids = lengths[:, None] + torch.from_numpy(depths.copy()).to(self._device)
        # guesses past the end are never kept
        position_ids = position_ids.clamp(max=self._last_position)
        output = self._model(
            input_ids=torch.from_numpy(tokens).to(self._device),
            position_ids=position_ids,
            attention_mask=None if mask is None else self._additive_mask(lengths, mask),
            logits_to_keep=torch.tensor(list(read), device=self._device),
            use_cache=True,
            **{cache_argument(self._model): cache},
        )
        logits: torch.Tensor = output.logits
        return logits

    def _is_plainly_causal(self, n: int, n_rows: int) -> bool:
        """Whether all slots in use are visible, or none was in use before."""
        lengths = self.lengths[:n]
        return bool((n_rows == 1 and lengths.min() == lengths.max()) or lengths.max() == 0)

    def _additive_mask(self, lengths: torch.Tensor, mask: np.ndarray) -> torch.Tensor:
        """(B, 1, R, slots in use): 0 where a row may look, the dtype's minimum elsewhere."""
        n_rows = mask.shape[1]
        seen = torch.from_numpy(np.array(mask)).to(self._device)
        relative = torch.arange(self._cache.n_used, device=self._device) - lengths[:, None]
        index = relative.clamp(0, n_rows - 1)[:, None, :].expand(-1, n_rows, -1)
        among = seen.gather(2, index) & ((relative >= 0) & (relative < n_rows))[:, None, :]
        visible = among | (relative < 0)[:, None, :]
        lowest = torch.finfo(self._model.dtype).min
        additive = torch.zeros(visible.shape, dtype=self._model.dtype, device=self._device)
        return additive.masked_fill_(~visible, lowest)[:, None]

    def commit(self, request: int, path: Sequence[int]) -> None:
        """Keep the rows ``path`` of a request's last step, in order, as its next tokens."""
        start = int(self.lengths[request])
        moved = [(row, at) for at, row in enumerate(path) if row != at]
        if moved:
            source = torch.tensor([start + row for row, _ in moved], device=self._device)
            target = torch.tensor([start + at for _, at in moved], device=self._device)
            self._cache.move(request, source, target)
        self.lengths[request] = start + len(path)

    def move_request(self, source: int, target: int) -> None:
        """Let ``target`` take over ``source``'s tokens: the batch shrinks when requests end."""
        self._cache.move_request(source, target)
        self.lengths[target] = self.lengths[source]


def _ignore(logits: torch.Tensor) -> None:
    """Nobody watches the prompts."""


def cache_shape(text_config: Any, n_requests: int, n_slots: int) -> tuple[int, int, int, int, int]:
    """(L, B, H, S, D) of the slot cache of a model."""
    heads = text_config.num_attention_heads
    size = getattr(text_config, "head_dim", None) or text_config.hidden_size // heads
    kv_heads = getattr(text_config, "num_key_value_heads", None) or heads
    return text_config.num_hidden_layers, n_requests, kv_heads, n_slots, size


def check_architecture(config: Any, name: str) -> None:
    """Refuse what the slot cache cannot hold. Raises UsageError naming the obstacle.

    config: a transformers configuration.
    """
    text_config = config.get_text_config(decoder=True)
    obstacle = _find_stateful_layer(config, text_config) or _find_slot_dependence(text_config)
    if obstacle:
        msg = (
            f"model {name!r} ({config.model_type}) has {obstacle}, which the gate's own decoders "
            "cannot serve; they need full attention in every layer: gate it through "
            "kind = 'python' or a server instead"
        )
        raise UsageError(msg)


def _find_stateful_layer(config: Any, text_config: Any) -> str | None:
    """Layers whose cache is no plain list of tokens.

    A sliding window would need slots that expire, a recurrent state cannot be rolled back by
    index, and compressed keys (multi-head latent attention) have another shape.
    """
    if getattr(config, "is_encoder_decoder", False):
        return "an encoder"
    if getattr(text_config, "is_attention_free", False) or hasattr(text_config, "state_size"):
        return "a recurrent state"
    if getattr(text_config, "kv_lora_rank", None):
        return "compressed keys (multi-head latent attention)"
    try:
        layers = DynamicCache(config=text_config).layers
        cache_shape(text_config, 1, 1)
    except (AttributeError, TypeError, ValueError) as error:
        return f"a cache of unknown shape ({type(error).__name__}: {error})"
    others = (type(one).__name__ for one in layers if type(one) is not DynamicLayer)
    return next((f"a {name}" for name in others), None)


def _find_slot_dependence(text_config: Any) -> str | None:
    """Attention that reads distance from slots or lengths rather than from position ids.

    Rows of a step lie in slots by their place in the tree, not by their position; and
    rotary scaling by the longest length in the batch would let guesses and neighbours count.
    """
    if getattr(text_config, "alibi", False) or text_config.model_type in ("bloom", "mpt"):
        return "ALiBi attention"
    if "local" in (getattr(text_config, "attention_layers", None) or ()):
        return "local attention layers"
    scaling = getattr(text_config, "rope_parameters", None) or {}
    nested = [value for value in scaling.values() if isinstance(value, dict)]
    kinds = {str(one.get("rope_type", "default")) for one in [scaling, *nested]}
    moving = sorted(kinds & {"dynamic", "longrope"})
    if not moving:
        return None
    return f"rotary positions that change with the length (rope_type = {moving[0]!r})"

"""Forwards from memory: the catalogue reads the same prompts and outputs a hundred times.

What a model says of rows that have nothing before them depends on those rows alone, so a decoder
gets from memory, bit for bit, what it would have computed; every step behind it is its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast

from gate.decoders.engine import SlotCache

MOST_BYTES = 2 * 1024**3
"""Of what is remembered. When it is full, nothing more is: baseline and controls come first."""


@dataclass(frozen=True)
class Forward:
    """What a forward left. logits: (B, n_read, vocab). keys, values: (L, B, H, R, D), or none."""

    logits: torch.Tensor
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None


class PrefillMemory:
    """Stands in for a causal language model; rows that begin a text are not run again."""

    def __init__(self, model: Any, most_bytes: int = MOST_BYTES) -> None:
        """``model``: a transformers causal language model, as engine and referee call it."""
        self._model = model
        self._most_bytes = self._n_left = most_bytes
        self._known: dict[tuple[Any, ...], Forward] = {}

    def __getattr__(self, name: str) -> Any:
        """Everything else is the model's own."""
        return getattr(self._model, name)

    def forget(self) -> None:
        """Give the memory back."""
        self._known.clear()
        self._n_left = self._most_bytes

    def __call__(self, **inputs: Any) -> Any:
        """Run a forward, or take it from memory."""
        cache = next((i for i in inputs.values() if isinstance(i, SlotCache)), None)
        if not begins_a_text(inputs, cache):
            return self._model(**inputs)
        key = tuple((name, describe(value)) for name, value in sorted(inputs.items()))
        known = self._known.get(key)
        if known is None:
            logits = self._model(**inputs).logits
            self._remember(key, logits, cache, inputs["input_ids"].shape)
            return CausalLMOutputWithPast(logits=logits)
        if cache is not None and known.keys is not None and known.values is not None:
            n, n_rows = inputs["input_ids"].shape
            cache.keys[:, :n, :, :n_rows] = known.keys
            cache.values[:, :n, :, :n_rows] = known.values
        return CausalLMOutputWithPast(logits=known.logits.clone())  # a decoder may write into it

    def _remember(
        self,
        key: tuple[Any, ...],
        logits: torch.Tensor,
        cache: SlotCache | None,
        shape: tuple[int, int],
    ) -> None:
        n, n_rows = shape
        parts = [] if cache is None else [cache.keys, cache.values]
        held = [logits.clone(), *(part[:, :n, :, :n_rows].clone() for part in parts)]
        size = sum(part.nbytes for part in held)
        if size <= self._n_left:
            self._n_left -= size
            self._known[key] = Forward(*held)


def begins_a_text(inputs: dict[str, Any], cache: SlotCache | None) -> bool:
    """Whether the rows of a forward see nothing but one another, each all before it."""
    if inputs.get("attention_mask") is not None:
        return False
    return cache.n_past == 0 if cache is not None else inputs.get("use_cache") is False


def describe(value: Any) -> Any:
    """Return an argument as part of a key: a cache that is empty says nothing."""
    if isinstance(value, SlotCache):
        return "slots"
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.cpu().numpy().tobytes()
    return value

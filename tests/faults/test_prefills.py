from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gate.decoders.engine import Engine
from gate.faults.prefills import PrefillMemory
from gate.models import LoadedModel

PROMPTS = [[5, 6, 7, 8], [9, 10]]
ROWS = [[1, 2], [3, 4]]


class Counting:
    """A model that counts its forwards."""

    def __init__(self, model: Any) -> None:
        self.model, self.n = model, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, **inputs: Any) -> Any:
        self.n += 1
        return self.model(**inputs)


def read_prompts(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits behind the prompts, and of a step of two rows behind them."""
    engine = Engine(model, 2, 16)
    first = engine.prefill(PROMPTS)
    step = engine.forward(np.array(ROWS), np.array([[0, 1], [0, 1]]), None, (0, 1))
    return first, step


@pytest.mark.parametrize("n_before", [1, 2])
def test_a_prefill_from_memory_and_the_step_behind_it_are_those_of_the_model(
    toy: LoadedModel, n_before: int
) -> None:
    counting = Counting(toy.model)
    memory = PrefillMemory(counting)
    for _ in range(n_before):
        read_prompts(memory)
    found = read_prompts(memory)
    assert counting.n == 1 + n_before + 1  # one prefill, and every step
    for part, wanted in zip(found, read_prompts(toy.model), strict=True):
        assert torch.equal(part, wanted)


def test_what_a_decoder_writes_into_its_logits_is_not_remembered(toy: LoadedModel) -> None:
    memory = PrefillMemory(toy.model)
    wanted, _ = read_prompts(memory)
    found, _ = read_prompts(memory)
    found.zero_()
    again, _ = read_prompts(memory)
    assert torch.equal(again, wanted)


def test_a_full_memory_runs_the_model(toy: LoadedModel) -> None:
    counting = Counting(toy.model)
    memory = PrefillMemory(counting, most_bytes=1)
    for _ in range(2):
        read_prompts(memory)
    assert counting.n == 4


def test_the_referee_reads_an_output_once(toy: LoadedModel) -> None:
    counting = Counting(toy.model)
    memory = PrefillMemory(counting)
    ids = torch.tensor([[5, 6, 7, 8]])
    found = [memory(input_ids=ids, use_cache=False, logits_to_keep=n).logits for n in (2, 2, 3)]
    assert counting.n == 2
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[2][:, 1:], found[0])

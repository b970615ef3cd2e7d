"""The conformance requests under transformers' speculative decoding, on the toy."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from gate.decoders.assisted import AssistedDecoder, PromptLookupDecoder
from gate.decoders.options import AssistedOptions, PromptLookupOptions
from gate.models import wrap_model
from tests.conformance_toy import Bench


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


def make_assisted(bench: Bench) -> AssistedDecoder:
    model = copy.deepcopy(bench.model.model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.01)
    draft = wrap_model(model, bench.model.tokenizer, "draft")
    return AssistedDecoder(bench.model, AssistedOptions(draft="draft"), draft)


@pytest.mark.parametrize("kind", ["prompt_lookup", "assisted"])
def test_every_request_of_the_set_passes(bench: Bench, kind: str) -> None:
    decoder: Any = (
        make_assisted(bench)
        if kind == "assisted"
        else PromptLookupDecoder(bench.model, PromptLookupOptions(num_tokens=5))
    )
    arm = bench.run(decoder, decoder.spec)
    assert bench.failures(arm) == []
    steps = [s for g in arm.generations.values() if g.trace for s in g.trace.steps]
    assert sum(step.n_accepted for step in steps) > 30

"""Plain decoding against transformers' own generate."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList, MinNewTokensLengthLogitsProcessor

from gate.models import LoadedModel
from gate.records import Generation
from tests.decoders.helpers import (
    TINY,
    build_tiny,
    decode_plainly,
    draw_prompt,
    emitted,
    make_request,
    stock_logits,
)


@pytest.fixture(scope="module", params=sorted(TINY))
def tiny(request: pytest.FixtureRequest, byte_tokenizer: Any) -> LoadedModel:
    """A tiny model of each accepted shape."""
    return build_tiny(request.param, byte_tokenizer)


@torch.inference_mode()
def run_generate(
    model: LoadedModel,
    prompt: Sequence[int],
    max_tokens: int,
    eos_ids: Sequence[int] = (),
    min_tokens: int = 0,
) -> tuple[int, ...]:
    """New tokens of transformers' greedy generate for one prompt."""
    processors = LogitsProcessorList()
    if min_tokens:
        processors.append(
            MinNewTokensLengthLogitsProcessor(len(prompt), min_tokens, list(eos_ids), device="cpu")
        )
    ids = torch.tensor([prompt])
    found = model.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=list(eos_ids) or None,
        pad_token_id=0,
        logits_processor=processors,
    )
    return tuple(found[0, len(prompt) :].tolist())


def drawn_prompts(n: int) -> list[tuple[int, ...]]:
    """Prompts of different lengths, the shortest a single token."""
    rng = random.Random(3)
    return [
        draw_prompt(rng, length) for length in (1, *(rng.randrange(2, 40) for _ in range(n - 1)))
    ]


def test_greedy_output_equals_generate_one_at_a_time(tiny: LoadedModel) -> None:
    for prompt in drawn_prompts(6):
        [generation] = decode_plainly(tiny, [make_request(prompt=prompt, max_tokens=24)])
        assert generation.token_ids == run_generate(tiny, prompt, 24)
        assert generation.finish == "length"


def test_greedy_output_equals_generate_in_a_batch_of_unequal_prompts(tiny: LoadedModel) -> None:
    prompts = drawn_prompts(8)
    requests = [make_request(f"r{i}", p, max_tokens=6 + 3 * i) for i, p in enumerate(prompts)]
    for request, generation in zip(requests, decode_plainly(tiny, requests), strict=True):
        assert generation.token_ids == run_generate(tiny, request.prompt, request.max_tokens)  # type: ignore[arg-type]


def test_toy_outputs_are_neither_constant_nor_all_alike(toy: LoadedModel) -> None:
    requests = [make_request(f"r{i}", p, max_tokens=32) for i, p in enumerate(drawn_prompts(8))]
    outputs = [generation.token_ids or () for generation in decode_plainly(toy, requests)]
    assert len(set(outputs)) == len(outputs)
    assert sum(len(set(output)) for output in outputs) > 6 * len(outputs)


def test_any_of_several_eos_ids_ends_the_output_and_is_its_last_token(toy: LoadedModel) -> None:
    n_ended = 0
    for prompt in drawn_prompts(12):
        free = run_generate(toy, prompt, 24)
        eos_ids = (free[9], free[4], 276)
        [generation] = decode_plainly(
            toy, [make_request(prompt=prompt, max_tokens=24, eos_ids=eos_ids)]
        )
        assert generation.token_ids == run_generate(toy, prompt, 24, eos_ids)
        assert generation.finish == "eos"
        n_ended += (generation.token_ids or ())[-1] in eos_ids
    assert n_ended == 12


@pytest.mark.parametrize("min_tokens", [1, 3, 8, 24])
def test_minimum_tokens_mask_eos_exactly_as_long_as_transformers_does(
    toy: LoadedModel, min_tokens: int
) -> None:
    for prompt in drawn_prompts(8):
        free = run_generate(toy, prompt, 24)
        eos_ids = (free[0], free[2], free[6])
        request = make_request(prompt=prompt, max_tokens=24, min_tokens=min_tokens, eos_ids=eos_ids)
        [generation] = decode_plainly(toy, [request])
        assert generation.token_ids == run_generate(toy, prompt, 24, eos_ids, min_tokens)


@pytest.mark.parametrize("max_tokens", [1, 2, 7])
def test_exactly_max_tokens_are_delivered_and_counted(toy: LoadedModel, max_tokens: int) -> None:
    [generation] = decode_plainly(toy, [make_request(prompt=(9, 8, 7), max_tokens=max_tokens)])
    assert len(generation.token_ids or ()) == max_tokens
    assert generation.usage is not None
    assert (generation.usage.n_prompt, generation.usage.n_output) == (3, max_tokens)


def test_a_prompt_that_fills_the_context_to_the_last_token_is_decoded(toy: LoadedModel) -> None:
    prompt = draw_prompt(random.Random(0), toy.context - 3)
    [generation] = decode_plainly(toy, [make_request(prompt=prompt, max_tokens=3)])
    assert generation.token_ids == run_generate(toy, prompt, 3)


def test_each_token_is_the_argmax_of_a_stock_forward(toy: LoadedModel) -> None:
    request = make_request(prompt=(1, 2, 3), max_tokens=40)
    [generation] = decode_plainly(toy, [request])
    logits = stock_logits(toy, request.prompt, emitted(generation))
    assert tuple(logits.argmax(-1).tolist())[:-1] == generation.token_ids


def test_plain_trace_has_one_row_and_one_token_per_forward_after_the_prefill(
    toy: LoadedModel,
) -> None:
    [generation] = decode_plainly(toy, [make_request(prompt=(1, 2, 3), max_tokens=5)])
    assert generation.trace is not None
    counts = [(s.n_rows, s.n_drafted, s.n_accepted, s.n_emitted) for s in generation.trace.steps]
    assert counts == [(3, 0, 0, 1)] + [(1, 0, 0, 1)] * 4
    times(generation)


def times(generation: Generation) -> None:
    """Times are ordered as they happened."""
    trace = generation.trace
    assert trace is not None
    assert trace.ttft_s is not None
    assert trace.total_s is not None
    assert trace.device_s is not None
    assert 0.0 < trace.ttft_s <= trace.total_s
    assert trace.device_s <= trace.total_s * 1.001

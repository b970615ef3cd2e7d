"""Requests for decoder tests, and references that share no code with the decoders."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.lookahead import LookaheadDecoder
from gate.decoders.options import AutoregressiveOptions, LookaheadOptions
from gate.decoders.sampling import Sampler
from gate.models import LoadedModel, wrap_model
from gate.noise import gumbel
from gate.records import Generation, Request, Sampling

Decode = Callable[..., list[Generation]]
"""decode_plainly or decode_ahead."""

TIE = 1e-3  # nats: forks are tolerated only where the scores lie closer than this
N_TEXT_IDS = 276  # the ids below are ordinary tokens, those above special ones


def make_request(name: str = "r", prompt: Sequence[int] = (72, 105), **fields: Any) -> Request:
    """A request with what the test does not care about filled in."""
    known: dict[str, Any] = {"max_tokens": 16, "task": "t", "request_class": "c"} | fields
    return Request(id=name, prompt=tuple(prompt), **known)


def draw_prompt(rng: random.Random, n_tokens: int) -> tuple[int, ...]:
    """Random ordinary tokens."""
    return tuple(rng.randrange(N_TEXT_IDS) for _ in range(n_tokens))


def draw_sampling(rng: random.Random) -> Sampling:
    """Greedy in four of ten cases; every processor now and then, several together."""
    return Sampling(
        temperature=rng.choice((0.0, 0.0, 0.5, 1.0, 1.7)),
        top_k=rng.choice((0, 0, 0, 1, 5, 300)),
        top_p=rng.choice((1.0, 1.0, 0.9, 0.4)),
        min_p=rng.choice((0.0, 0.0, 0.1)),
        repetition_penalty=rng.choice((1.0, 1.0, 1.3, 0.8)),
        presence_penalty=rng.choice((0.0, 0.0, 0.7)),
        frequency_penalty=rng.choice((0.0, 0.0, 0.4, -0.3)),
        bad_words=rng.choice(((), (), ((101,), (258, 258)))),
        logit_bias=rng.choice(({}, {}, {110: 1.5, 258: -2.0})),
        seed=rng.choice((None, 1, 2)),
    )


def draw_request(rng: random.Random, name: str) -> Request:
    """A request with random prompt, budget, stops and parameters."""
    max_tokens = rng.choice((1, 2, 5, 12, 24))
    return make_request(
        name,
        draw_prompt(rng, rng.choice((1, 2, 7, 19))),
        max_tokens=max_tokens,
        min_tokens=rng.choice((0, 0, min(4, max_tokens))),
        stop=rng.choice(((), (), ("n", "in"), ("\x1b\x1b", " t t"))),
        eos_ids=rng.choice(((), (276,), (276, 110), (5, 50, 71, 258, 93))),
        sampling=draw_sampling(rng),
        stream=rng.random() < 0.3,
    )


def decode_plainly(
    model: LoadedModel,
    requests: Sequence[Request],
    **fields: Any,
) -> list[Generation]:
    """What the autoregressive decoder returns, in request order."""
    return decode_with(AutoregressiveDecoder(model, AutoregressiveOptions()), requests, **fields)


def decode_ahead(
    model: LoadedModel,
    requests: Sequence[Request],
    options: LookaheadOptions | None = None,
    **fields: Any,
) -> list[Generation]:
    """What the lookahead decoder returns, in request order."""
    return decode_with(LookaheadDecoder(model, options or LookaheadOptions()), requests, **fields)


def decode_with(decoder: Any, requests: Sequence[Request], **fields: Any) -> list[Generation]:
    """Decode, with the decoder's ``drafts`` or ``tap`` set; generations in request order."""
    for name, value in fields.items():
        setattr(decoder, name, value)
    found = {(g.request_id, g.repeat): g for g in decoder.generate(requests)}
    return [found[request.id, request.repeat] for request in requests]


def emitted(generation: Generation) -> tuple[int, ...]:
    """All tokens decoded, those cut off included."""
    return (*(generation.token_ids or ()), *generation.tail_ids)


def assert_same_outputs(
    model: LoadedModel,
    requests: Sequence[Request],
    left: Sequence[Generation],
    right: Sequence[Generation],
) -> None:
    """Same outputs, except after a near-tie of the scores."""
    for request, one, other in zip(requests, left, right, strict=True):
        if not is_forked_at_tie(model, request, one, other):
            assert strip(one) == strip(other)


def strip(generation: Generation) -> dict[str, object]:
    """What a decoder promises: everything but timing, with log-probabilities to four digits."""
    return {
        "key": (generation.request_id, generation.repeat),
        "text": generation.text,
        "ids": generation.token_ids,
        "tail": generation.tail_ids,
        "finish": generation.finish,
        "error": generation.error,
        "usage": generation.usage,
    }


def is_forked_at_tie(
    model: LoadedModel, request: Request, one: Generation, other: Generation
) -> bool:
    """Whether the outputs part where a stock forward scores both tokens within TIE."""
    a, b = emitted(one), emitted(other)
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if at is None:
        return False
    z = stock_logits(model, request.prompt, a[:at])[-1]
    sampler = Sampler(request, request.prompt, seed=0)  # type: ignore[arg-type]
    scores = sampler.scores(z, a[:at]).double()
    if request.sampling.temperature:
        noise = gumbel(sampler.key, at, torch.arange(scores.numel()))
        scores += request.sampling.temperature * noise
    return abs(float(scores[a[at]] - scores[b[at]])) < TIE


@torch.inference_mode()
def stock_logits(model: LoadedModel, prompt: Iterable[Any], output: Sequence[int]) -> torch.Tensor:
    """(n_output + 1, vocab) logits of a plain forward: row j decides output token j."""
    ids = torch.tensor([[*prompt, *output]])
    logits: torch.Tensor = model.model(input_ids=ids, use_cache=False).logits
    return logits[0, -len(output) - 1 :]


def build_tiny(kind: str, tokenizer: Any, **fields: Any) -> LoadedModel:
    """A random two-layer model of a transformers model type, with wide weights."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    torch.manual_seed(1)
    config = AutoConfig.for_model(kind, **(TINY[kind] | {"vocab_size": len(tokenizer)} | fields))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, 0.6 if "lm_head" in name else 0.25)
    model.generation_config.eos_token_id = None
    return wrap_model(model, tokenizer, kind)


def wrap_again(toy: LoadedModel, model: Any) -> LoadedModel:
    """Another model with the toy's tokenizer."""
    return wrap_model(model, toy.tokenizer, "changed toy")


_LLAMA_LIKE: dict[str, object] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
TINY: dict[str, dict[str, object]] = {
    "llama": _LLAMA_LIKE,
    "mistral": _LLAMA_LIKE | {"sliding_window": None},
    "qwen2": _LLAMA_LIKE,
    "qwen3": _LLAMA_LIKE | {"head_dim": 16},
    "gpt2": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 256,
        "bos_token_id": None,
        "eos_token_id": None,
        "tie_word_embeddings": False,
    },
}


def build_cycling(toy: LoadedModel) -> LoadedModel:
    """A toy whose next token depends on the last one alone and runs in cycles of five."""
    model = copy.deepcopy(toy.model)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        ids = torch.arange(280)
        known = model.model.embed_tokens.weight
        model.lm_head.weight[ids // 5 * 5 + (ids + 1) % 5] = known / known.norm(
            dim=-1, keepdim=True
        )
    return wrap_model(model, toy.tokenizer, "cycling")


def greedy_requests(n: int, max_tokens: int = 40) -> list[Request]:
    """Prompts of different lengths."""
    rng = random.Random(8)
    return [
        make_request(f"g{i}", draw_prompt(rng, rng.randrange(1, 30)), max_tokens=max_tokens)
        for i in range(n)
    ]

"""Bad requests fail alone, with one sentence; a broken model fails its own requests only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.lookahead import LookaheadDecoder
from gate.decoders.options import AutoregressiveOptions, LookaheadOptions
from gate.models import LoadedModel
from gate.records import Request, Sampling
from tests.conftest import build_toy_model
from tests.decoders.helpers import (
    Decode,
    assert_same_outputs,
    decode_ahead,
    decode_plainly,
    decode_with,
    make_request,
    wrap_again,
)

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "text prompt": ({"prompt": "text"}, "prompt"),
    "empty prompt": ({"prompt": ()}, "prompt"),
    "messages": ({"prompt": ({"role": "user", "content": "x"},)}, "prompt"),
    "token beyond the vocabulary": ({"prompt": (1, 280)}, "vocabulary of 280"),
    "negative token": ({"prompt": (1, -1)}, "vocabulary of 280"),
    "mixed prompt": ({"prompt": (1, "a")}, "wrong type"),
    "no budget": ({"max_tokens": 0}, "max_tokens = 0"),
    "budget of the wrong type": ({"max_tokens": "5"}, "wrong type"),
    "negative minimum": ({"min_tokens": -1}, "min_tokens = -1"),
    "minimum above the budget": ({"min_tokens": 17}, "min_tokens = 17"),
    "empty stop": ({"stop": ("a", "")}, "stop"),
    "beyond the context": ({"prompt": (1,) * 500, "max_tokens": 13}, "context of 512"),
    "eos beyond the vocabulary": ({"eos_ids": (280,)}, "vocabulary"),
    "negative logprobs": ({"n_logprobs": -1}, "n_logprobs = -1"),
    "too many logprobs": ({"n_logprobs": 281}, "n_logprobs = 281"),
    "response format": ({"response_format": {"type": "json_object"}}, "response_format"),
}
SAMPLING_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "negative temperature": ({"temperature": -0.1}, "temperature = -0.1"),
    "infinite temperature": ({"temperature": math.inf}, "temperature = inf"),
    "temperature that is no number": ({"temperature": math.nan}, "temperature = nan"),
    "temperature below float32": ({"temperature": 1e-300}, "temperature = 1e-300"),
    "no temperature": ({"temperature": None}, "wrong type"),
    "top-p 0": ({"top_p": 0.0}, "top_p = 0.0"),
    "top-p above 1": ({"top_p": 1.01}, "top_p = 1.01"),
    "top-p that is no number": ({"top_p": math.nan}, "top_p = nan"),
    "negative top-k": ({"top_k": -1}, "top_k = -1"),
    "min-p above 1": ({"min_p": 1.1}, "min_p = 1.1"),
    "repetition penalty 0": ({"repetition_penalty": 0.0}, "repetition_penalty = 0.0"),
    "endless presence penalty": ({"presence_penalty": math.inf}, "presence_penalty"),
    "frequency penalty that is no number": ({"frequency_penalty": math.nan}, "frequency_penalty"),
    "infinite bias": ({"logit_bias": {1: math.inf}}, "logit_bias"),
    "bias beyond the vocabulary": ({"logit_bias": {280: 1.0}}, "vocabulary"),
    "empty bad word": ({"bad_words": ((),)}, "bad_words"),
    "bad word beyond the vocabulary": ({"bad_words": ((1, 280),)}, "vocabulary"),
    "seed of text": ({"seed": "seven"}, "seed = 'seven'"),
    "seed with a fraction": ({"seed": 1.5}, "seed = 1.5"),
    "everything forbidden": ({"bad_words": tuple((t,) for t in range(280))}, "no token to choose"),
    "everything forbidden while sampling": (
        {"temperature": 1.0, "bad_words": tuple((t,) for t in range(280))},
        "no token to choose",
    ),
    "bias beyond float32": ({"logit_bias": {1: 1e300}, "temperature": 1.0}, "no token to choose"),
}
ALL = {
    **{name: ({"request": fields}, text) for name, (fields, text) in FAULTS.items()},
    **{name: ({"sampling": fields}, text) for name, (fields, text) in SAMPLING_FAULTS.items()},
}
DECODERS = pytest.mark.parametrize("decode", [decode_plainly, decode_ahead])


def make_faulty(fields: dict[str, Any], name: str = "faulty") -> Request:
    """A request with what is wrong put in past all checks."""
    known = {"prompt": (72, 105), "max_tokens": 16, "task": "t", "request_class": "c"}
    sampling = Sampling(**fields.get("sampling", {}))
    return Request(**({"id": name, "sampling": sampling} | known | fields.get("request", {})))


@DECODERS
@pytest.mark.parametrize("name", ALL)
def test_a_faulty_request_fails_alone_with_one_sentence(
    toy: LoadedModel, decode: Decode, name: str
) -> None:
    fields, text = ALL[name]
    sound = [
        make_request("sound 1", (3, 4), max_tokens=5),
        make_request("sound 2", (5,), max_tokens=5),
    ]
    expected = decode(toy, sound)
    first, failed, second = decode(toy, [sound[0], make_faulty(fields), sound[1]])
    assert failed.finish == "error"
    assert failed.token_ids is None
    assert text in str(failed.error)
    assert "\n" not in str(failed.error)
    assert_same_outputs(toy, sound, expected, [first, second])


def test_many_faults_at_once_fail_one_by_one(toy: LoadedModel) -> None:
    requests = [make_faulty(fields, name) for name, (fields, _) in ALL.items()]
    generations = decode_plainly(toy, requests)
    assert [generation.finish for generation in generations] == ["error"] * len(ALL)
    for generation, (_, text) in zip(generations, ALL.values(), strict=True):
        assert text in str(generation.error)


def test_sound_requests_at_the_limits_are_served(toy: LoadedModel) -> None:
    edges: list[dict[str, Any]] = [
        {"request": {"prompt": (1,) * 508, "max_tokens": 4}},
        {"request": {"min_tokens": 16, "eos_ids": (1,)}},
        {"request": {"n_logprobs": 280}},
        {"sampling": {"temperature": 1e-6, "top_p": 1e-300}},
        {"sampling": {"temperature": 1e6, "min_p": 1.0}},
        {"sampling": {"temperature": 1.0, "top_k": 10**9, "seed": -(10**30)}},
        {"sampling": {"repetition_penalty": 1e-3, "logit_bias": {0: -1e30}}},
    ]
    requests = [make_faulty(fields, f"edge {n}") for n, fields in enumerate(edges)]
    assert [generation.error for generation in decode_plainly(toy, requests)] == [None] * len(edges)


@pytest.mark.parametrize(("context", "limit"), [(None, 512), (16, 16), (10**6, 512)])
def test_a_decoders_own_context_can_only_narrow_the_models(
    toy: LoadedModel, context: int | None, limit: int
) -> None:
    requests = [
        make_request(name, (1,) * (limit - n_free), max_tokens=4)
        for name, n_free in (("fits", 4), ("one too many", 3))
    ]
    for decoder in (
        AutoregressiveDecoder(toy, AutoregressiveOptions(context=context)),
        LookaheadDecoder(toy, LookaheadOptions(context=context)),
    ):
        fitting, refused = decode_with(decoder, requests)
        assert fitting.error is None
        assert f"context of {limit} tokens" in str(refused.error)


@DECODERS
def test_an_empty_call_returns_nothing(toy: LoadedModel, decode: Decode) -> None:
    assert decode(toy, []) == []


# -------------------------------------------------------------- broken models


def break_model(toy: LoadedModel, damage: Callable[[Any], None]) -> LoadedModel:
    """A toy of its own with damaged weights."""
    model = build_toy_model(toy.vocab_size)
    with torch.no_grad():
        damage(model)
    return wrap_again(toy, model)


def poison_token(model: Any) -> None:
    """Whoever reads token 200 gets NaN."""
    model.model.embed_tokens.weight[200] = torch.nan


@DECODERS
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_not_finite_fail_the_request(
    toy: LoadedModel, decode: Decode, value: float
) -> None:
    def damage(model: Any) -> None:
        model.lm_head.weight[7] = value

    [generation] = decode(break_model(toy, damage), [make_request()])
    assert generation.finish == "error"
    assert "not finite at output position 0" in str(generation.error)


@DECODERS
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_request_poisoned_with_nan_leaves_its_neighbours_alone(
    toy: LoadedModel, decode: Decode, at: int
) -> None:
    poisoned = break_model(toy, poison_token)
    sound = [
        make_request("long", (3,) * 40, max_tokens=20),
        make_request("short", (5, 6), max_tokens=30),
    ]
    expected = decode(poisoned, sound)
    assert [generation.error for generation in expected] == [None, None]
    requests = [*sound[:at], make_request("poisoned", (4,) * 20 + (200,) + (4,) * 12), *sound[at:]]
    generations = decode(poisoned, requests)
    failed = generations.pop(at)
    assert "not finite at output position 0" in str(failed.error)
    assert_same_outputs(toy, sound, expected, generations)


@DECODERS
def test_a_request_poisoned_while_decoding_fails_where_it_happens(
    toy: LoadedModel, decode: Decode
) -> None:
    poisoned = break_model(toy, poison_token)
    sound = make_request("sound", (5, 6), max_tokens=30)
    forced = make_request(
        "forced", (3,) * 60, max_tokens=9, sampling=Sampling(logit_bias={200: 50.0})
    )
    expected = decode(poisoned, [sound])
    failed, generation = decode(poisoned, [forced, sound])
    assert "not finite at output position 1" in str(failed.error)
    assert failed.trace is not None
    assert failed.trace.steps[-1].n_emitted == 0
    assert_same_outputs(toy, [sound], expected, [generation])


@DECODERS
def test_a_model_that_raises_fails_every_request_and_nothing_is_raised(
    toy: LoadedModel, decode: Decode
) -> None:
    def damage(model: Any) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            msg = "out of memory"
            raise RuntimeError(msg)

        model.lm_head.forward = refuse

    generations = decode(break_model(toy, damage), [make_request("a"), make_request("b")])
    assert [generation.error for generation in generations] == ["RuntimeError: out of memory"] * 2

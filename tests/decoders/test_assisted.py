"""Speculative decoding through transformers: our semantics, whole traces, clear refusals."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from gate.decoders.assisted import AssistedDecoder, PromptLookupDecoder, inspect_draft
from gate.decoders.base import read_spec
from gate.decoders.options import AssistedOptions, PromptLookupOptions
from gate.decoders.watching import count_equal
from gate.errors import UsageError
from gate.models import LoadedModel, ResolvedModel, wrap_model
from gate.records import Generation, Request, Sampling
from gate.referee import Referee
from tests.conftest import build_toy_model
from tests.decoders.helpers import (
    assert_same_outputs,
    build_tiny,
    decode_plainly,
    decode_with,
    draw_request,
    emitted,
    make_request,
)

CYCLE = (72, 105, 46) * 6


@pytest.fixture(scope="module")
def draft(toy: LoadedModel) -> LoadedModel:
    """A model that agrees with the toy most of the time."""
    model = build_toy_model(toy.vocab_size)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.01)
    return wrap_model(model, toy.tokenizer, "draft")


@pytest.fixture(scope="module", params=["prompt_lookup", "assisted"])
def decoder(request: pytest.FixtureRequest, toy: LoadedModel, draft: LoadedModel) -> Any:
    if request.param == "assisted":
        return AssistedDecoder(toy, AssistedOptions(draft="draft"), draft)
    return PromptLookupDecoder(toy, PromptLookupOptions(num_tokens=5))


def greedy(request: Request) -> Request:
    sampling = msgspec.structs.replace(request.sampling, temperature=0.0)
    return msgspec.structs.replace(request, sampling=sampling)


def n_accepted(generations: list[Generation]) -> int:
    return sum(s.n_accepted for g in generations if g.trace for s in g.trace.steps)


def test_greedy_output_is_that_of_plain_decoding_whatever_the_parameters(
    toy: LoadedModel, decoder: Any
) -> None:
    rng = random.Random(3)
    requests = [greedy(draw_request(rng, f"r{n}")) for n in range(40)]
    found = decode_with(decoder, requests)
    assert_same_outputs(toy, requests, decode_plainly(toy, requests), found)
    assert n_accepted(found) > 0


def test_the_counts_of_every_trace_add_up(decoder: Any) -> None:
    requests = [make_request("a", CYCLE), make_request("b", (110,), max_tokens=1)]
    for generation in decode_with(decoder, requests):
        trace = generation.trace
        assert trace is not None
        assert sum(step.n_emitted for step in trace.steps) == len(emitted(generation))
        assert all(s.n_accepted <= min(s.n_drafted, s.n_emitted) for s in trace.steps)
        assert trace.steps[0].n_rows >= len(CYCLE) or generation.request_id == "b"
        assert all(0 <= step.draft_s <= step.wall_s for step in trace.steps)


def test_the_drafters_own_time_is_traced(toy: LoadedModel, draft: LoadedModel) -> None:
    decoder = AssistedDecoder(toy, AssistedOptions(draft="draft"), draft)
    (found,) = decode_with(decoder, [make_request(prompt=CYCLE)])
    assert found.trace is not None
    assert all(step.draft_s > 0 for step in found.trace.steps if step.n_drafted)
    assert "generate" not in vars(draft.model)


def test_a_stop_string_inside_an_accepted_run_cuts_text_and_ids(
    toy: LoadedModel, decoder: Any
) -> None:
    (plain,) = decode_plainly(toy, [make_request(prompt=CYCLE)])
    stop = plain.text[2:5]
    requests = [make_request(prompt=CYCLE, stop=(stop,), stream=True)]
    (found,) = decode_with(decoder, requests)
    assert_same_outputs(toy, requests, decode_plainly(toy, requests), [found])
    assert found.finish == "stop"
    assert found.trace is not None
    assert "".join(chunk.text for chunk in found.trace.chunks) == found.text


def test_log_probabilities_and_laws_are_those_of_plain_decoding(
    toy: LoadedModel, decoder: Any
) -> None:
    requests = [make_request(prompt=CYCLE, n_logprobs=3, logprobs_kind="processed")]
    laws: list[torch.Tensor] = []
    (found,) = decode_with(decoder, requests, tap=lambda _r, _p, law: laws.append(law.logits))
    decoder.tap = None
    (plain,) = decode_plainly(toy, requests)
    assert found.logprobs is not None
    assert plain.logprobs is not None
    ours, theirs = ([one.logprob for one in g.logprobs or ()] for g in (plain, found))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert len(laws) == len(emitted(found))


def test_a_json_schema_constrains_the_output(toy: LoadedModel, decoder: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    shape: dict[str, object] = {"type": "json_schema", "json_schema": {"schema": schema}}
    requests = [
        make_request(
            prompt=CYCLE, max_tokens=20, eos_ids=(276,), response_format=shape, sampling=sampling
        )
        for sampling in (Sampling(), Sampling(temperature=1.0))
    ]
    found = decode_with(decoder, requests[:1]) + decode_with(decoder, requests[1:])
    assert [g.error for g in found] == [None, None]
    assert_same_outputs(toy, requests[:1], decode_plainly(toy, requests[:1]), found[:1])


def test_sampled_output_has_the_referees_law_and_repeats_differ(
    toy: LoadedModel, decoder: Any
) -> None:
    s = Sampling(temperature=0.8, top_k=20)
    requests = [
        make_request("s", CYCLE, max_tokens=24, sampling=s, repeat=repeat) for repeat in range(16)
    ]
    found = decode_with(decoder, requests)
    scores = list(Referee(toy).score(requests, found))
    pit = np.sort([value for one in scores for value in one.pit])
    distance = float(np.abs(pit - (np.arange(len(pit)) + 0.5) / len(pit)).max())
    assert distance < 1.95 / len(pit) ** 0.5  # Kolmogorov's bound at 0.1%
    assert len({g.token_ids for g in found}) > 12
    assert [g.token_ids for g in decode_with(decoder, requests[:2])] == [
        g.token_ids for g in found[:2]
    ]


def test_a_request_that_cannot_be_served_fails_alone(decoder: Any) -> None:
    nothing = Sampling(logit_bias=dict.fromkeys(range(280), -3.0e38), bad_words=((1,),))
    requests = [
        make_request("bad", max_tokens=0),
        make_request("long", (72,) * 600),
        make_request("none", sampling=Sampling(bad_words=tuple((i,) for i in range(280)))),
        make_request("good"),
        make_request("biased", sampling=nothing),
    ]
    found = {g.request_id: g.error for g in decode_with(decoder, requests)}
    assert "max_tokens = 0" in str(found["bad"])
    assert "context" in str(found["long"])
    assert "leave no token" in str(found["none"])
    assert found["good"] is None


def test_the_models_own_generation_defaults_change_nothing_and_stay(
    toy: LoadedModel, decoder: Any
) -> None:
    before = toy.model.generation_config
    toy.model.generation_config = type(before)(repetition_penalty=1.5, eos_token_id=105)
    try:
        (found,) = decode_with(decoder, [make_request(prompt=CYCLE)])
        assert toy.model.generation_config.repetition_penalty == 1.5
    finally:
        toy.model.generation_config = before
    assert found.token_ids == decode_plainly(toy, [make_request(prompt=CYCLE)])[0].token_ids


def test_the_callers_random_numbers_go_on_as_if_nothing_had_happened(decoder: Any) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    decode_with(decoder, [make_request(sampling=Sampling(temperature=1.0))])
    assert torch.equal(torch.rand(1), expected)


def test_accepted_drafts_are_those_at_the_head_of_a_run() -> None:
    assert count_equal([1, 2, 3], [1, 2]) == 2
    assert count_equal([1, 9], [1, 2, 3]) == 1
    assert count_equal([5], []) == 0


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"kind": "assisted"}, "draft"),
        ({"kind": "assisted", "draft": " "}, "draft is blank"),
        ({"kind": "assisted", "draft": "d", "num_tokens": 0}, "num_tokens = 0; allowed is 1"),
        ({"kind": "assisted", "draft": "d", "confidence": 1.0}, "confidence = 1.0"),
        ({"kind": "assisted", "draft": "d", "schedule": "x"}, "schedule"),
        ({"kind": "prompt_lookup", "max_ngram": 0}, "max_ngram = 0; allowed is 1"),
        ({"kind": "prompt_lookup", "num_tokens": 1000}, "allowed is 1 to 256"),
        ({"kind": "prompt_lookup", "context": 0}, "context = 0"),
    ],
)
def test_options_out_of_range_are_refused_by_name(table: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        read_spec("candidate", table)


def write_draft(folder: Path, model: LoadedModel, tokenizer: Any) -> None:
    model.model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def resolved(folder: Path) -> ResolvedModel:
    return ResolvedModel(name="toy", folder=folder, weights_sha256="w", tokenizer_sha256="t")


def test_a_draft_model_that_does_not_share_the_vocabulary_is_refused_before_the_run(
    tmp_path: Path, toy: LoadedModel, draft: LoadedModel, byte_tokenizer: Any
) -> None:
    write_draft(tmp_path / "toy", toy, byte_tokenizer)
    write_draft(tmp_path / "draft", draft, byte_tokenizer)
    spec = read_spec("candidate", {"kind": "assisted", "draft": "draft"})
    parts = inspect_draft(spec, tmp_path, resolved(tmp_path / "toy"))
    assert len(parts["draft_weights_sha256"]) == 64

    swapped = tmp_path / "draft" / "tokenizer.json"
    swapped.write_text(
        swapped.read_text().replace('"A": 65', '"A": 66').replace('"B": 66', '"B": 65')
    )
    with pytest.raises(UsageError, match="gives tokens other ids"):
        inspect_draft(spec, tmp_path, resolved(tmp_path / "toy"))

    larger = build_tiny("llama", byte_tokenizer, vocab_size=400)
    write_draft(tmp_path / "draft", larger, byte_tokenizer)
    with pytest.raises(UsageError, match="has 400 tokens, the model's 280"):
        inspect_draft(spec, tmp_path, resolved(tmp_path / "toy"))

    missing = read_spec("candidate", {"kind": "assisted", "draft": "nowhere"})
    with pytest.raises(UsageError, match="draft = 'nowhere'"):
        inspect_draft(missing, tmp_path, resolved(tmp_path / "toy"))

from __future__ import annotations

import builtins
import json
import random
from typing import Any

import msgspec
import pytest
import torch

from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.checks import find_fault
from gate.decoders.options import AutoregressiveOptions
from gate.grammar import GrammarError, Matcher, compile_format, load_vocabulary, open_matcher
from gate.models import LoadedModel
from gate.records import Generation, Request, Sampling
from gate.referee import Referee
from gate.referee_law import FORBIDDEN, grammar_masks
from tests.conftest import END, STOP
from tests.decoders.helpers import (
    assert_same_outputs,
    decode_ahead,
    decode_plainly,
    emitted,
    make_request,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 2, 12]}},
    "required": ["ok", "n"],
    "additionalProperties": False,
}


def wrap_schema(schema: dict[str, Any]) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"schema": schema}}


FORMAT = wrap_schema(SCHEMA)


def constrain(name: str, **fields: Any) -> Request:
    known: dict[str, Any] = {"max_tokens": 80, "eos_ids": (END, STOP), "response_format": FORMAT}
    return make_request(name, **(known | fields))


def mixed_requests() -> list[Request]:
    rng = random.Random(7)
    sampled = [
        constrain(
            f"sampled-{i}",
            prompt=tuple(rng.randrange(256) for _ in range(5)),
            sampling=Sampling(temperature=1.0, top_p=rng.choice((1.0, 0.8)), seed=i),
        )
        for i in range(6)
    ]
    penalty = Sampling(presence_penalty=1.0, logit_bias={32: -4.0})
    penalised = constrain("penalised", sampling=penalty)
    free = make_request("free", sampling=Sampling(temperature=1.0))
    return [constrain("greedy"), *sampled, penalised, free]


def test_every_finished_output_is_what_the_schema_says(toy: LoadedModel) -> None:
    for generation in decode_plainly(toy, mixed_requests())[:-1]:
        assert generation.finish == "eos"
        data = json.loads(generation.text)
        assert set(data) == {"ok", "n"}
        assert isinstance(data["ok"], bool)
        assert data["n"] in {1, 2, 12}


def test_lookahead_equals_plain_decoding_under_a_grammar(toy: LoadedModel) -> None:
    requests = mixed_requests()
    assert_same_outputs(toy, requests, decode_plainly(toy, requests), decode_ahead(toy, requests))


@pytest.mark.parametrize("wrong", [False, True], ids=["oracle", "rejected"])
def test_the_matcher_moves_over_accepted_drafts_and_not_over_rejected_ones(
    toy: LoadedModel,
    wrong: bool,  # noqa: FBT001
) -> None:
    requests = mixed_requests()
    plain = decode_plainly(toy, requests)
    known = {g.request_id: emitted(g) for g in plain}

    def draft(request: Request, output: tuple[int, ...]) -> list[tuple[int, ...]]:
        rest = known[request.id][len(output) : len(output) + 6]
        return [(*rest[:2], 123, 123, *rest[4:])] if wrong else [rest]

    drafted = decode_plainly(toy, requests, drafts=draft)
    assert_same_outputs(toy, requests, plain, drafted)
    steps = [step for g in drafted if g.trace for step in g.trace.steps]
    assert sum(step.n_accepted for step in steps) > 20


def test_end_of_sequence_is_allowed_exactly_where_the_output_is_complete(toy: LoadedModel) -> None:
    matcher = open_matcher(constrain("r"), toy.tokenizer)
    assert matcher is not None
    ids = toy.tokenizer('{"ok": true, "n": 1}')["input_ids"]
    for n in range(len(ids)):
        allowed = matcher.allowed(ids[:n], toy.vocab_size)
        assert allowed[ids[n]]
        assert not allowed[[END, STOP]].any()
    assert matcher.allowed(ids, toy.vocab_size).nonzero()[0].tolist() == [END, STOP]


def test_a_shorter_history_rolls_the_matcher_back(toy: LoadedModel) -> None:
    def start() -> Matcher:
        return Matcher(compile_format(FORMAT), load_vocabulary(toy.tokenizer), (END,))

    matcher = start()
    ids, other = (toy.tokenizer(text)["input_ids"] for text in ('{"ok": true', '{"ok":false'))
    matcher.allowed(ids, toy.vocab_size)
    for history in (ids[:4], other, ids[:0], other[:7]):
        expected = start().allowed(history, toy.vocab_size)
        assert (matcher.allowed(history, toy.vocab_size) == expected).all()


def test_the_referee_reads_the_same_masks_by_a_walk_of_its_own(toy: LoadedModel) -> None:
    request = constrain("r")
    matcher = open_matcher(request, toy.tokenizer)
    assert matcher is not None
    ids = toy.tokenizer('{"ok": false,\n  "n": 12}')["input_ids"]
    masks = grammar_masks(request, toy.tokenizer, ids, toy.vocab_size)
    assert len(masks) == len(ids) + 1
    for n, mask in enumerate(masks):
        assert mask is not None
        assert torch.equal(mask, torch.from_numpy(matcher.allowed(ids[:n], toy.vocab_size)))


def test_the_referee_finds_no_regret_in_constrained_outputs(toy: LoadedModel) -> None:
    requests = mixed_requests()
    scores = list(Referee(toy).score(requests, decode_plainly(toy, requests)))
    assert len(scores) == len(requests)
    assert max(r for s in scores for r in s.regret) < 1e-3


def test_the_referee_forbids_the_first_token_that_leaves_the_grammar(toy: LoadedModel) -> None:
    request = constrain("r")
    unbound = msgspec.structs.replace(request, response_format=None, max_tokens=6)
    free = decode_plainly(toy, [unbound])
    score = next(Referee(toy).score([request], free))
    assert score.regret[0] == FORBIDDEN
    assert all(r < FORBIDDEN for r in score.regret[1:])  # one finding, not one per token behind it


def test_an_output_under_a_grammar_that_cannot_be_compiled_stays_unscored(toy: LoadedModel) -> None:
    request = constrain("r", response_format={"type": "regex"})
    generation = Generation(request_id="r", token_ids=(65,), finish="length")
    assert list(Referee(toy).score([request], [generation])) == []


@pytest.mark.parametrize(
    ("response_format", "words"),
    [
        ({"type": "grammar"}, "response_format.type = 'grammar'"),
        ({}, "response_format.type = None"),
        ({"type": "json_schema"}, "schema is missing"),
        (wrap_schema({"type": "strin"}), "Invalid type: strin"),
        (wrap_schema({"not": {}}), "Unimplemented"),
        ("json", "must be a mapping"),
    ],
)
def test_a_bad_format_is_one_sentence_for_that_request_alone(
    toy: LoadedModel,
    response_format: Any,
    words: str,
) -> None:
    bad = constrain("bad", response_format=response_format)
    generations = decode_plainly(toy, [bad, constrain("good")])
    assert generations[0].finish == "error"
    assert words in str(generations[0].error)
    assert "\n" not in str(generations[0].error)
    assert generations[1].finish == "eos"


def test_without_any_end_of_sequence_id_a_format_is_refused(toy: LoadedModel) -> None:
    fault = find_fault(constrain("r", eos_ids=()), 512, toy.vocab_size, toy.tokenizer)
    assert fault is not None
    assert "end-of-sequence" in fault


def test_a_json_object_may_hold_anything(toy: LoadedModel) -> None:
    request = constrain("r", response_format={"type": "json_object"}, max_tokens=8)
    assert decode_plainly(toy, [request])[0].text.startswith("{")


def test_the_missing_package_is_named_with_the_command(
    toy: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("llguidance"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    decoder = AutoregressiveDecoder(toy, AutoregressiveOptions())
    (generation,) = decoder.generate([constrain("r")])
    assert "pip install llguidance" in str(generation.error)


def test_a_slow_tokenizer_is_refused_by_name() -> None:
    with pytest.raises(GrammarError, match="fast tokenizer"):
        load_vocabulary("no tokenizer")

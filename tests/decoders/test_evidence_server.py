"""Prompt scoring by the baseline's server: a toy behind vLLM's shapes, and answers of no sense."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from gate.decoders.evidence_server import ServerEvidence, make_scores, read_table
from gate.decoders.late import score_late
from gate.models import LoadedModel
from gate.records import Generation, Request, Sampling, Usage
from gate.referee import Referee
from tests.decoders.helpers import decode_plainly, make_request


class ToyServer:
    """Scores prompts with the toy model, as vLLM's completions API answers."""

    identity = SimpleNamespace(model="toy")
    profile = SimpleNamespace(tokenize_path="/tokenize")

    def __init__(self, toy: LoadedModel, spoil: str = "") -> None:
        self._toy = toy
        self._spoil = spoil

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        if self._spoil == "refuse":
            return SimpleNamespace(value=None, error="HTTP 400 no")
        if path == "/tokenize":
            ids = self._toy.tokenizer.apply_chat_template(
                body["messages"], add_generation_prompt=True, return_dict=True
            )["input_ids"]
            return SimpleNamespace(value={"tokens": list(ids)}, error=None)
        if self._spoil == "nonsense":
            return SimpleNamespace(value={"choices": []}, error=None)
        return SimpleNamespace(value={"choices": [{"prompt_logprobs": self._score(body)}]})

    @torch.inference_mode()
    def _score(self, body: dict[str, Any]) -> list[Any]:
        ids = body["prompt"]
        rows = Referee(self._toy).logits(ids[:1], ids[1:])[:-1].float().log_softmax(-1)
        tables: list[Any] = [None]
        for token, row in zip(ids[1:], rows, strict=True):
            top = row.topk(body["prompt_logprobs"])
            listed = {int(i): float(v) for v, i in zip(*top, strict=True)}
            listed[token] = float(row[token])
            tables.append({str(i): {"logprob": v, "rank": 1} for i, v in listed.items()})
        return tables[: -1 if self._spoil == "short" else None]


def serve(toy: LoadedModel, **fields: Any) -> tuple[Request, Generation]:
    request = msgspec.structs.replace(
        make_request("a", **fields), prompt=({"role": "user", "content": "hello"},)
    )
    found = toy.tokenizer.apply_chat_template(
        list(request.prompt), add_generation_prompt=True, return_dict=True
    )
    tokenised = msgspec.structs.replace(request, prompt=tuple(found["input_ids"]))
    (generation,) = decode_plainly(toy, [tokenised])
    usage = Usage(n_prompt=len(tokenised.prompt), n_output=16)
    return request, msgspec.structs.replace(generation, usage=usage)


def test_regret_gap_and_choice_are_those_of_the_servers_law(toy: LoadedModel) -> None:
    request, generation = serve(toy)
    ids = list(generation.token_ids or ())
    ids[5] = (ids[5] + 1) % 200
    wrong = msgspec.structs.replace(generation, token_ids=tuple(ids))
    scorer = ServerEvidence(ToyServer(toy))
    (right,) = scorer.score([request], [generation])
    (found,) = scorer.score([request], [wrong])
    assert max(right.regret) < 1e-4
    assert found.regret[5] > 0.01
    assert found.best_id[5] == (generation.token_ids or ())[5]
    assert all(gap >= 0 for gap in found.gap)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("refuse", "refuses to score (HTTP 400 no)"),
        ("nonsense", "an answer of no sense"),
        ("short", "another number of tokens than it was sent"),
    ],
)
def test_what_the_server_does_not_score_is_counted(
    toy: LoadedModel, spoil: str, reason: str
) -> None:
    pair = serve(toy)
    late = score_late(
        ServerEvidence(ToyServer(toy, spoil)), {"baseline": [pair], "candidate": [pair]}
    )
    assert late.scores == {"baseline": (), "candidate": ()}
    assert any(reason in note for note in late.notes)
    assert "not independent" in late.notes[0]
    assert late.bound.weakness


def test_sampled_and_processed_requests_are_left_alone(toy: LoadedModel) -> None:
    scorer = ServerEvidence(ToyServer(toy))
    for fields in ({"sampling": Sampling(temperature=1.0)}, {"min_tokens": 3}):
        request, generation = serve(toy, **fields)
        assert list(scorer.score([request], [generation])) == []
    assert scorer.unscored == {}


def test_log_probabilities_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="that are none"):
        read_table({"1": {"logprob": 3.0}})
    with pytest.raises(ValueError, match="leaves out a token"):
        make_scores(make_request(), [1], [{2: -0.5}])

"""Whole runs against servers of the toy model, whose tokens a referee or the baseline scores."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gate.decoders.remote_conformance import read_words
from gate.models import LoadedModel
from gate.records import Request
from tests.decoders.helpers import decode_plainly, make_request
from tests.decoders.test_evidence_server import ToyServer
from tests.endpoint_project import QUICK, run, verdict, write_project
from tests.fake_server import serve

Answer = Callable[[str, dict[str, Any]], Any]
METRICS = """\
vllm:spec_decode_num_draft_tokens_total 0
vllm:spec_decode_num_accepted_tokens_total 0
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, toy: LoadedModel) -> Path:
    """A project whose prompts give more than 1,000 tokens, and the toy model on disk."""
    folder = write_project(tmp_path_factory.mktemp("scored"), n_documents=18, max_tokens=48)
    toy.model.save_pretrained(folder / "model")
    toy.tokenizer.save_pretrained(folder / "model")
    return folder


def make_model(toy: LoadedModel, wrong_at: int = -1, *, scores: bool = False) -> Answer:
    """A vLLM-like server's answers. wrong_at: where each output holds a wrong token."""
    scorer, one_at_a_time = ToyServer(toy), threading.Lock()

    def answer(path: str, body: dict[str, Any]) -> Any:
        with one_at_a_time:
            if path == "/tokenize" or "prompt_logprobs" in body:
                is_asked = scores and not isinstance(body.get("prompt"), str)
                return scorer.ask(path, body).value if is_asked else _decline(path, scores=scores)
            return _decode(toy, body, wrong_at)

    return answer


def _decline(path: str, *, scores: bool) -> Any:
    """Answer the probe: its prompts are no token ids."""
    if not scores:
        return {}
    if path == "/tokenize":
        return {"tokens": [1]}
    return {"choices": [{"prompt_logprobs": [None]}]}


def _decode(toy: LoadedModel, body: dict[str, Any], wrong_at: int) -> Any:
    ids = toy.tokenizer.apply_chat_template(
        body["messages"], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    request: Request = msgspec.structs.replace(
        make_request("a", ids),
        max_tokens=body["max_tokens"],
        stop=tuple(body.get("stop", ())),
        eos_ids=toy.eos_ids,
    )
    (found,) = decode_plainly(toy, [request])
    tokens, text = [*(found.token_ids or ()), *found.tail_ids], found.text
    if 0 <= wrong_at < len(tokens) and found.finish == "length":
        tokens[wrong_at] = (tokens[wrong_at] + 1) % 200
        text = toy.tokenizer.decode(tokens)
    choice = {
        "index": 0,
        "message": {"content": text},
        "finish_reason": "length" if found.finish == "length" else "stop",
        "stop_reason": body["stop"][0] if found.finish == "stop" else None,
        "token_ids": tokens,
    }
    usage = {"prompt_tokens": len(ids), "completion_tokens": len(tokens)}
    return {"model": body["model"], "choices": [choice], "usage": usage}


def gate(project: Path, baseline: Answer, candidate: Answer, referee: str = "") -> dict[str, Any]:
    """Gate two such servers."""
    told: dict[str, Any] = {"owner": "vllm", "metrics": METRICS}
    with serve(model=baseline, **told) as first, serve(model=candidate, **told) as second:
        arms = [f'base_url = "{server.url}"\n{QUICK}' for server in (first, second)]
        lines = f'skip_conformance = "the toy is greedy"\nrepeat_requests = 1\n{referee}'
        return run(project, *arms, run=lines, timing=0)[1]


REFEREE = '[referee]\nid = "model"'


def test_a_referee_beside_the_servers_certifies_both_arms(project: Path, toy: LoadedModel) -> None:
    decision = gate(project, make_model(toy), make_model(toy), REFEREE)
    found = verdict(decision, "token certificate")
    assert found["outcome"] == "PASS"
    assert found["comparison"]["difference"]["n"] > 1000
    assert verdict(decision, "baseline certificate")["outcome"] == "PASS"
    assert verdict(decision, "exercised")["outcome"] == "INCONCLUSIVE"
    assert decision["outcome"] == "INCONCLUSIVE"  # the counters say that nothing was drafted
    assert any("which neither server has a hand in" in note for note in decision["notes"])


def test_a_referee_finds_a_wrong_token_in_each_output_of_the_candidate(
    project: Path, toy: LoadedModel
) -> None:
    decision = gate(project, make_model(toy), make_model(toy, 7), REFEREE)
    assert decision["outcome"] == "FAIL"
    assert verdict(decision, "token certificate")["outcome"] == "FAIL"
    assert verdict(decision, "baseline certificate")["outcome"] == "PASS"


def test_the_baselines_prompt_scoring_finds_it_too_and_is_called_not_independent(
    project: Path, toy: LoadedModel
) -> None:
    decision = gate(project, make_model(toy, scores=True), make_model(toy, 7))
    assert verdict(decision, "token certificate")["outcome"] == "FAIL"
    assert verdict(decision, "baseline certificate")["outcome"] == "PASS"
    assert any("which is not independent of it" in note for note in decision["notes"])


def test_both_servers_are_sent_the_words_that_only_the_baseline_encoded(project: Path) -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        if path == "/tokenize":
            return {"tokens": list(str(body["prompt"]).encode())}
        varied = str(sorted(body.items()))[-12:]  # so that the probe sees its options at work
        choice = {"message": {"content": varied}, "finish_reason": "length"}
        usage = {"prompt_tokens": 3, "completion_tokens": 4}
        return {"model": body.get("model"), "choices": [choice], "usage": usage}

    told: dict[str, Any] = {"owner": "vllm", "metrics": METRICS, "model": answer}
    with serve(**told) as first, serve(**told) as second:
        arms = [f'base_url = "{server.url}"\n{QUICK}' for server in (first, second)]
        run(project, *arms, run="repeat_requests = 1", timing=0)
        words = [[b["bad_words"] for b in s.bodies if "bad_words" in b] for s in (first, second)]
    assert words[0]
    assert all(word for listed in words[0] for word in listed)
    assert sorted(words[0]) == sorted(words[1])
    known = read_words(project / "reports/latest")  # what a resumed run goes on with
    assert {word for listed in words[0] for word in listed} <= set(known.values())

"""Whole runs on the toy model with decoders that are not our own engine's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gate.cli import main
from tests import toy_project
from tests.conftest import build_toy_model
from tests.decoders.helpers import build_tiny
from tests.test_gate_run import run, verdict
from tests.toy_project import faulty, write_gate

LOOK_UP = 'kind = "prompt_lookup"\nnum_tokens = 6\nmax_ngram = 1'


@pytest.fixture(scope="module")
def project(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A toy project with a draft model that mostly agrees, and one of another vocabulary."""
    folder = toy_project.write_project(tmp_path_factory.mktemp("kinds"), toy)
    draft = build_toy_model(toy.vocab_size)
    with torch.no_grad():
        draft.lm_head.weight *= 0.9
        draft.lm_head.weight[::7] *= 0.8
    draft.save_pretrained(folder / "draft")
    toy.tokenizer.save_pretrained(folder / "draft")
    build_tiny("llama", toy.tokenizer, vocab_size=400).model.save_pretrained(folder / "foreign")
    toy.tokenizer.save_pretrained(folder / "foreign")
    yield folder
    toy_project.forget_modules()


def note(decision: dict[str, Any], word: str) -> str:
    """Return the first note that holds a word."""
    return next((text for text in decision["notes"] if word in text), "")


def test_draft_model_decoding_through_transformers_passes(project: Path) -> None:
    code, decision = run(project, candidate='kind = "assisted"\ndraft = "draft"\nnum_tokens = 3')
    assert (code, decision["outcome"]) == (0, "PASS")
    decoder = decision["provenance"]["candidate"]["decoder"]
    assert len(decoder["draft_weights_sha256"]) == 64
    acceptance = next(c for c in decision["comparisons"] if c["measure"] == "acceptance")
    assert acceptance["detail"]["draft_s"] > 0
    assert acceptance["candidate"] > 0.5


def test_prompt_lookup_through_transformers_decides_as_the_model_does(project: Path) -> None:
    """The toy repeats itself too little for the 30 accepted drafts that a PASS needs."""
    code, decision = run(project, candidate=LOOK_UP)
    assert (code, decision["outcome"]) == (4, "INCONCLUSIVE")
    assert "20 drafts were accepted" in decision["reason"]
    blocking = [v for v in decision["verdicts"] if v["blocking"] and v["half"] == "content"]
    undecided = {v["criterion"] for v in blocking if v["outcome"] not in ("PASS", "NOT_JUDGED")}
    assert undecided == {"exercised"}


def test_a_draft_model_of_another_vocabulary_is_refused_before_a_run_exists(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_gate(project, candidate='kind = "assisted"\ndraft = "foreign"')
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    assert "its vocabulary has 400 tokens, the model's 280" in capsys.readouterr().err
    assert not (project / "reports/latest").exists()


def test_what_a_decoder_says_it_does_not_offer_is_left_out_and_named(project: Path) -> None:
    candidate = faulty("none") + (
        '\nunsupported = ["sampling", "repetition_penalty", "presence_frequency", "logit_bias",'
        ' "bad_words", "min_tokens", "logprobs", "streaming", "grammar", "extra_eos"]'
    )
    _, decision = run(project, candidate=candidate, skip_conformance="")
    conformance = verdict(decision, "conformance")
    assert conformance["outcome"] == "PASS"
    assert 0 < conformance["comparison"]["difference"]["n"] < 20
    assert "does not offer bad_words" in note(decision, "does not offer")


def test_an_option_that_is_ignored_still_blocks_beside_a_declared_one(project: Path) -> None:
    candidate = faulty("none") + '\nunsupported = ["grammar"]'
    code, decision = run(project, candidate=candidate, skip_conformance="")
    assert (code, verdict(decision, "conformance")["outcome"]) == (3, "FAIL")
    failures = json.dumps(verdict(decision, "conformance")["comparison"]["detail"]["failures"])
    assert "conformance/json" not in failures


@pytest.mark.parametrize(
    ("declared", "named"),
    [('["nothing"]', "names 'nothing'; allowed is"), ('["stop"]', "which task 'toy_maths' asks")],
)
def test_a_declaration_that_cannot_be_true_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], declared: str, named: str
) -> None:
    config = write_gate(project, candidate=faulty("none") + f"\nunsupported = {declared}")
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    assert named in capsys.readouterr().err


ROUTED = (
    'kind = "routed"\n[candidate.routes]\nmaths = { kind = "lookahead" }\n'
    'default = { kind = "autoregressive" }'
)


def test_a_routed_candidate_passes_and_the_plain_class_is_named_as_not_covered(
    project: Path,
) -> None:
    code, decision = run(project, candidate=ROUTED, skip_conformance="")
    assert (code, decision["outcome"]) == (0, "PASS")
    exercised = verdict(decision, "exercised")["comparison"]["detail"]["by_class"]
    assert exercised["maths"] > 0
    assert exercised["structured"] == 0
    assert "nothing was accepted in structured" in note(decision, "nothing was accepted")
    routes = decision["provenance"]["candidate"]["decoder"]["options"]["routes"]
    assert {name: one["kind"] for name, one in routes.items()} == {
        "maths": "lookahead",
        "default": "autoregressive",
    }


def test_conformance_tries_the_decoder_that_is_routed_to(project: Path) -> None:
    """The faulty decoder is greedy only; it serves one class, and the default is the baseline."""
    candidate = (
        'kind = "routed"\n[candidate.routes]\ndefault = { kind = "autoregressive" }\n'
        'maths = { kind = "python", target = "faulty_decoders:make", fault = "none" }'
    )
    code, decision = run(project, candidate=candidate, skip_conformance="")
    assert (code, verdict(decision, "conformance")["outcome"]) == (3, "FAIL")
    decoder = decision["provenance"]["candidate"]["decoder"]
    assert decoder["maths.source_sha256"].startswith("sha256:")


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("maths = { kind = 'lookahead' }", "routes.default is missing"),
        ("default = { kind = 'lookahead' }\nverse = { kind = 'lookahead' }", "no request class"),
        ("default = { kind = 'wishful' }", "candidate.routes.default.kind = 'wishful'"),
        ("default = { kind = 'lookahead', window = 0 }", "window = 0"),
        ("default = { kind = 'routed' }", "not to further routes"),
        ("default = 3", "candidate.routes.default = 3"),
    ],
)
def test_routes_that_lead_nowhere_are_refused(
    project: Path, capsys: pytest.CaptureFixture[str], table: str, named: str
) -> None:
    config = write_gate(project, candidate=f'kind = "routed"\n[candidate.routes]\n{table}')
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    assert named in capsys.readouterr().err

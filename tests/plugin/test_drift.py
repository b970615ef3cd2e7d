"""The fixtures gate_model, gate_decoder and assert_no_drift, on a toy model of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gate.errors import UsageError
from gate.records import Request, Sampling
from gate.testing import drift
from gate.testing.drift import DriftError, Options
from tests import faulty_decoders, toy_project

pytest_plugins = ("pytester",)

PROMPTS = [toy_project.make_prompt("maths", n) for n in range(6)]
CONFTEST = """
import pytest
from gate.models import wrap_model
from tests.conftest import build_byte_tokenizer, build_toy_model

@pytest.fixture(scope="session")
def gate_model():
    tokenizer = build_byte_tokenizer()
    return wrap_model(build_toy_model(len(tokenizer)), tokenizer, "toy")
"""
TESTS = """
from tests.faulty_decoders import make

def test_lossless(gate_decoder, assert_no_drift):
    found = assert_no_drift(
        gate_decoder("autoregressive"), gate_decoder(make), evalset=[{prompts}], max_tokens=24
    )
    assert found.n_requests == 6
    assert found.n_accepted > 10

def test_drifting(gate_decoder, assert_no_drift):
    assert_no_drift(
        gate_decoder("autoregressive"),
        gate_decoder(make, fault="unverified-first"),
        evalset=[{prompts}],
        max_tokens=24,
    )
"""


def test_a_lossless_decoder_passes_and_a_drifting_one_shows_its_fork(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS.format(prompts=", ".join(map(repr, PROMPTS))))
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *DriftError: FAIL token certificate: *",
            "E *first fork: request prompt-*, output position *",
            "E *evidence   defect; regret: baseline 0 nat, candidate * nat; gap * nat",
            "E *before     *",
            "E *baseline   [[]*",
            "E *candidate  [[]*",
        ]
    )


def compare(toy: Any, fault: str, **options: Any) -> drift.Drift:
    """Compare plain decoding with a decoder of a fault."""
    folder = Path(__file__).parent
    baseline = drift.make_decoder(toy, folder, "autoregressive", {})
    candidate = drift.make_decoder(toy, folder, faulty_decoders.make, {"fault": fault})
    defaults: dict[str, Any] = {"evalset": PROMPTS, "max_tokens": 24}
    given = Options(**(defaults | options))
    return drift.compare(toy, folder, baseline, candidate, given)


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("relaxed", "token certificate"),
        ("eos-in-run", "FAIL"),
        ("crashing", "the candidate failed 6 of 6 requests; prompt-0: RuntimeError: no luck"),
        ("losing", "the candidate failed 3 of 6 requests"),
        ("never-drafts", "INCONCLUSIVE exercised"),
        ("silent", "INCONCLUSIVE exercised"),
        ("tampering", "changed the model's weights"),
    ],
)
def test_what_the_gate_would_not_pass_is_drift(toy: Any, fault: str, named: str) -> None:
    with pytest.raises(DriftError, match=named):
        compare(toy, fault, evalset=PROMPTS)


def test_a_decoder_that_does_not_draft_passes_where_the_test_says_so(toy: Any) -> None:
    assert compare(toy, "never-drafts", min_accepted=0).n_accepted == 0


def test_a_baseline_at_fault_is_named(toy: Any) -> None:
    plain = drift.make_decoder(toy, Path(), "autoregressive", {})
    bad = faulty_decoders.make(toy, "unverified-first")
    with pytest.raises(DriftError, match="ERROR baseline certificate"):
        drift.compare(toy, Path(), bad, plain, Options(evalset=PROMPTS, min_accepted=0))


def test_the_built_in_prompts_serve_where_none_are_given(toy: Any) -> None:
    found = compare(toy, "none", evalset=None, n_requests=4, max_tokens=16)
    assert found.n_requests == 4


def test_an_evalset_folder_serves_its_documents(toy: Any, tmp_path: Path) -> None:
    toy_project.write_evalset(tmp_path / "mine", n_documents=3, max_tokens=12)
    plain = drift.make_decoder(toy, tmp_path, "autoregressive", {})
    options = Options(evalset="mine", min_accepted=0)
    assert drift.compare(toy, tmp_path, plain, plain, options).n_requests == 6


def sampled(n: int) -> Request:
    """Return a request that samples."""
    return Request(
        id=f"s{n}",
        task="mine",
        request_class="mine",
        prompt=({"role": "user", "content": PROMPTS[n]},),
        max_tokens=12,
        sampling=Sampling(temperature=0.8, seed=n),
    )


def test_sampled_output_of_the_gates_own_decoders_is_compared(toy: Any) -> None:
    plain = drift.make_decoder(toy, Path(), "autoregressive", {})
    lookahead = drift.make_decoder(toy, Path(), "lookahead", {})
    options = Options(evalset=[sampled(n) for n in range(3)], min_accepted=0)
    assert drift.compare(toy, Path(), plain, lookahead, options).n_requests == 3


def test_sampled_output_with_noise_of_its_own_is_refused(toy: Any) -> None:
    with pytest.raises(UsageError, match="draws with noise of its own"):
        compare(toy, "none", evalset=[sampled(0)])


@pytest.mark.parametrize("evalset", [[], [sampled(0), sampled(0)]], ids=["none", "twice"])
def test_requests_that_prove_nothing_are_refused(toy: Any, evalset: list[Request]) -> None:
    with pytest.raises(UsageError, match="give at least one, and each an id of its own"):
        compare(toy, "none", evalset=evalset)


@pytest.mark.parametrize("kind", ["medusa", "nowhere:make"])
def test_a_decoder_that_is_not_there_is_refused(toy: Any, kind: str) -> None:
    with pytest.raises(UsageError, match=kind):
        drift.make_decoder(toy, Path(), kind, {})


def test_a_model_that_is_not_there_is_one_sentence(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ngate_model = ./no-such-folder")
    pytester.makepyfile("def test_mine(gate_model): pass")
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["gate_model: model.id = './no-such-folder' is not there*"])


@pytest.mark.parametrize(
    "wrong", [{"max_tokens": 0}, {"n_requests": 0}, {"batch": 0}, {"min_accepted": -1}]
)
def test_options_that_would_compare_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} = .*at least"):
        Options(**wrong)  # type: ignore[arg-type]

"""Evidence on servers' tokens: a referee beside the servers, and the baseline's own noise band."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gate.config import ModelConfig
from gate.decoders.evidence_referee import RefereeEvidence, check_referee
from gate.decoders.late import LEAST_POSITIONS, bound_noise, find_weakness, score_late
from gate.errors import UsageError
from gate.models import LoadedModel
from gate.records import Generation, Request, Sampling, TokenLogprob, TokenScores, Usage
from tests.decoders.helpers import decode_plainly, make_request


@pytest.fixture(scope="module")
def referee(toy: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> RefereeEvidence:
    folder = tmp_path_factory.mktemp("referee") / "model"
    toy.model.save_pretrained(folder)
    toy.tokenizer.save_pretrained(folder)
    return RefereeEvidence(ModelConfig(id=str(folder)), folder)


def make_scores(name: str, regrets: list[float], **fields: Any) -> TokenScores:
    n = len(regrets)
    known: dict[str, Any] = {
        "token_ids": (1,) * n,
        "regret": tuple(regrets),
        "gap": (1.0,) * n,
        "entropy": (1.0,) * n,
        "best_id": (1,) * n,
        "rank": (0,) * n,
        "logprob": (-1.0,) * n,
    }
    return TokenScores(request_id=name, **(known | fields))


def make_output(name: str, n: int, moved: float = 0.0, **fields: Any) -> tuple[Request, Generation]:
    logprobs = tuple(TokenLogprob(token_id=1, logprob=-1.0 - moved) for _ in range(n))
    generation = Generation(request_id=name, token_ids=(1,) * n, logprobs=logprobs, finish="length")
    return make_request(name, **fields), generation


def test_the_bound_is_the_larger_quantile_of_the_baselines_regrets_and_moved_logprobs() -> None:
    outputs = [make_output("a", 1000, moved=0.02)]
    bound = bound_noise("x", outputs, [make_scores("a", [0.0] * 998 + [0.3, 0.3])])
    assert bound.bound == pytest.approx(0.3, abs=1e-3)
    assert bound.q999_wide == pytest.approx(0.02)
    assert (bound.n_positions, bound.weakness) == (1000, "")


def test_conformance_sampled_and_failed_outputs_do_not_widen_the_band() -> None:
    outputs = [
        make_output("a", 1000),
        make_output("b", 10, task="conformance"),
        make_output("c", 10, sampling=Sampling(temperature=1.0)),
    ]
    scores = [make_scores("a", [0.0] * 1000), *(make_scores(n, [50.0] * 10) for n in "bc")]
    assert bound_noise("x", outputs, scores).bound == 1e-3


def test_a_band_that_is_too_wide_or_rests_on_too_little_says_so() -> None:
    assert "2 nat wide" in find_weakness(2.0, LEAST_POSITIONS)
    assert "rests on 999 tokens" in find_weakness(0.1, 999)
    assert find_weakness(1.0, LEAST_POSITIONS) == ""
    assert "rests on 0 tokens" in bound_noise("x", [], []).weakness


def served(toy: LoadedModel, request: Request, n_prompt: int) -> Generation:
    """What a server of the toy would return."""
    messages: Any = request.prompt
    found = toy.tokenizer.apply_chat_template(
        list(messages), add_generation_prompt=True, return_dict=True
    )
    tokenised = msgspec.structs.replace(request, prompt=tuple(found["input_ids"]))
    (generation,) = decode_plainly(toy, [tokenised])
    usage = Usage(n_prompt=n_prompt or len(tokenised.prompt), n_output=16)
    return msgspec.structs.replace(generation, usage=usage)


def test_a_servers_tokens_are_scored_through_the_referees_own_template(
    toy: LoadedModel, referee: RefereeEvidence
) -> None:
    request = msgspec.structs.replace(
        make_request("a"), prompt=({"role": "user", "content": "hello"},)
    )
    (scores,) = referee.score([request], [served(toy, request, 0)])
    assert max(scores.regret) < 1e-3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"token_ids": None}, "returns no token ids"),
        ({"token_ids": (9999,)}, "outside the referee's vocabulary"),
        ({"usage": Usage(n_prompt=3, n_output=16)}, "another number of tokens"),
        ({"usage": None}, "another number of tokens"),
        ({"token_ids": (1,) * 600}, "longer than the referee's context"),
    ],
)
def test_what_cannot_be_scored_is_counted_with_its_reason(
    toy: LoadedModel, referee: RefereeEvidence, change: dict[str, Any], reason: str
) -> None:
    request = msgspec.structs.replace(
        make_request("a"), prompt=({"role": "user", "content": "hello"},)
    )
    generation = msgspec.structs.replace(served(toy, request, 0), **change)
    referee.unscored.clear()
    late = score_late(referee, {"baseline": [(request, generation)], "candidate": []})
    assert late.scores == {"baseline": (), "candidate": ()}
    assert any("1 output not scored" in note and reason in note for note in late.notes)


def test_a_referee_that_is_not_there_is_refused_by_its_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\[referee\]"):
        check_referee(ModelConfig(id="nowhere"), tmp_path)

"""The referee's second look: what it forgives in 16 bits, and what it does not."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
import torch
from msgspec.structs import replace

from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.options import AutoregressiveOptions
from gate.records import Generation, Request
from gate.referee import MOST_SUSPECTS, Referee, find_suspects
from tests.decoders.helpers import make_request, wrap_again

if TYPE_CHECKING:
    from gate.models import LoadedModel

N_TOKENS = 24
LAST = N_TOKENS - 1
REQUEST = make_request("r", (97, 98, 99, 100), max_tokens=N_TOKENS, eos_ids=())


@pytest.fixture(scope="module")
def rounded(toy: LoadedModel) -> LoadedModel:
    return wrap_again(toy, copy.deepcopy(toy.model).to(torch.bfloat16))


def decode(model: LoadedModel) -> Generation:
    return next(iter(AutoregressiveDecoder(model, AutoregressiveOptions()).generate([REQUEST])))


def make_wrong(model: LoadedModel, positions: Sequence[int]) -> tuple[Request, Generation]:
    """An output with the fifth best token at some positions, and what then no longer follows."""
    ids = list(decode(model).token_ids or ())
    for at in positions:
        row = Referee(model).logits(REQUEST.prompt, ids[:at])[-1]  # type: ignore[arg-type]
        ids[at] = int(row.float().topk(5).indices[-1])
    return REQUEST, replace(decode(model), token_ids=tuple(ids), text="")


def test_only_a_regret_of_three_spacings_is_suspect_and_none_in_float32() -> None:
    logits = torch.tensor([[8.0, 0.0]] * 3)
    regret = [0.18, 0.19, 0.0]  # a spacing at 8 is 2^(3 - 7) = 0.0625
    assert find_suspects(regret, logits.to(torch.bfloat16)) == [1]
    assert find_suspects(regret, logits.to(torch.float16)) == [0, 1]
    assert find_suspects(regret, logits) == []


def test_all_looks_give_the_same_law(toy: LoadedModel) -> None:
    referee, ids = Referee(toy), decode(toy).token_ids or ()
    prompt = (97, 98, 99, 100)
    with torch.inference_mode():
        plain = referee.logits(prompt, ids)
        for law in (referee._padded_logits, referee._stepwise_logits):
            assert torch.allclose(law(prompt, ids), plain, atol=1e-4)


def test_a_wrong_token_stays_wrong_at_every_look(rounded: LoadedModel) -> None:
    request, wrong = make_wrong(rounded, [LAST])
    scores = next(Referee(rounded).score([request], [wrong]))
    assert scores.regret[LAST] > 0.5
    assert scores.rank[LAST] >= 3


def test_a_suspect_that_another_honest_law_explains_is_none(
    rounded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, wrong = make_wrong(rounded, [LAST])
    ids = wrong.token_ids or ()

    def explain(_: Referee, __: Sequence[int], emitted: Sequence[int]) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.tensor([*emitted, 0]), 280).float() * 9.0

    monkeypatch.setattr(Referee, "_padded_logits", explain)
    scores = next(Referee(rounded).score([request], [wrong]))
    assert (scores.regret[LAST], scores.token_ids[LAST]) == (0.0, ids[LAST])


def test_many_suspects_are_no_chance_and_get_no_second_look(
    rounded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, wrong = make_wrong(rounded, range(2, 3 + MOST_SUSPECTS))
    monkeypatch.setattr(Referee, "_padded_logits", None)
    monkeypatch.setattr(Referee, "_stepwise_logits", None)
    scores = next(Referee(rounded).score([request], [wrong]))
    assert sum(regret > 0.5 for regret in scores.regret) > MOST_SUSPECTS - 1

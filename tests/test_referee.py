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
from gate.records import Generation
from gate.referee import CHANCE_IN_BATCH, CHANCE_IN_OUTPUT, Referee, find_suspects, most_by_chance
from tests.decoders.helpers import make_request, wrap_again

if TYPE_CHECKING:
    from gate.models import LoadedModel

N_TOKENS = 24
LAST = N_TOKENS - 1
PROMPT = (97, 98, 99, 100)
REQUEST = make_request("r", PROMPT, max_tokens=N_TOKENS, eos_ids=())


@pytest.fixture(scope="module")
def rounded(toy: LoadedModel) -> LoadedModel:
    return wrap_again(toy, copy.deepcopy(toy.model).to(torch.bfloat16))


def decode(model: LoadedModel) -> Generation:
    return next(iter(AutoregressiveDecoder(model, AutoregressiveOptions()).generate([REQUEST])))


def make_wrong(model: LoadedModel, positions: Sequence[int], rank: int = 4) -> Generation:
    """An output with the token of that rank at some positions, and what then follows no longer."""
    ids = list(decode(model).token_ids or ())
    for at in positions:
        row = Referee(model).logits(PROMPT, ids[:at])[-1]
        ids[at] = int(row.float().topk(rank + 1).indices[-1])
    return replace(decode(model), token_ids=tuple(ids), text="")


def test_only_a_regret_of_three_spacings_is_suspect_and_none_in_float32() -> None:
    logits = torch.tensor([[8.0, 0.0]] * 3)
    regret = [0.18, 0.19, 0.0]  # a spacing at 8 is 2^(3 - 7) = 0.0625
    assert find_suspects(regret, logits.to(torch.bfloat16)) == [1]
    assert find_suspects(regret, logits.to(torch.float16)) == [0, 1]
    assert find_suspects(regret, logits) == []


def test_more_suspects_are_laid_to_chance_where_there_are_more_tokens() -> None:
    assert most_by_chance(CHANCE_IN_OUTPUT, 24) == 4
    assert most_by_chance(CHANCE_IN_OUTPUT, 1000) == 20
    assert most_by_chance(CHANCE_IN_BATCH, 10_000) == 100


def test_all_looks_give_the_law_of_the_plain_forward(toy: LoadedModel) -> None:
    referee, ids = Referee(toy), decode(toy).token_ids or ()
    with torch.inference_mode():
        plain = referee.logits(PROMPT, ids)
        looks = [rows for start in (0, 7) for rows in referee._look(PROMPT, ids, start)]
    assert len(looks) == 8
    assert all(torch.allclose(rows, plain, atol=1e-4) for rows in looks)


@pytest.mark.parametrize("rank", [1, 4])
def test_a_wrong_token_stays_wrong_at_every_look(rounded: LoadedModel, rank: int) -> None:
    positions = [5, LAST]
    wrong = make_wrong(rounded, positions, rank)
    before = Referee(rounded)
    before._look_again = lambda *_: None  # type: ignore[method-assign]
    plain = next(before.score([REQUEST], [wrong])).regret
    looked = next(Referee(rounded).score([REQUEST], [wrong])).regret
    for at in positions:
        assert looked[at] > 0.8 * plain[at] > 0.0


def test_a_suspect_that_another_honest_law_explains_is_none(
    rounded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = make_wrong(rounded, [LAST])

    def explain(_: Referee, __: object, emitted: Sequence[int], *___: int) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.tensor([*emitted, 0]), 280).float() * 9.0

    monkeypatch.setattr(Referee, "_decode", explain)
    scores = next(Referee(rounded).score([REQUEST], [wrong]))
    assert scores.regret[LAST] == 0.0


def test_many_suspects_are_no_chance_and_get_no_second_look(
    rounded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = make_wrong(rounded, range(2, 3 + CHANCE_IN_OUTPUT[0]))
    monkeypatch.setattr(Referee, "_look", None)  # any look would raise
    scores = next(Referee(rounded).score([REQUEST], [wrong]))
    assert sum(regret > 0.5 for regret in scores.regret) > CHANCE_IN_OUTPUT[0] - 1

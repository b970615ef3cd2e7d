"""What the referee keeps of the runners-up: only where a choice was wrong or close."""

from __future__ import annotations

import pytest
import torch

from gate.records import Request
from gate.referee import judge_greedy, keep_doubtful
from gate.referee_law import N_RANKED, judge_token

LOGITS = torch.tensor([[0.0, 5.0, 4.9, 1.0, 2.0, 3.0], [9.0, 0.0, 1.0, 2.0, 3.0, 4.0]])
REQUEST = Request(id="r", task="t", request_class="c", prompt=(1,), max_tokens=4)


def test_a_close_choice_keeps_its_runners_up_and_a_clear_one_keeps_none() -> None:
    kept = keep_doubtful(judge_greedy(LOGITS, (1, 0)))
    assert list(kept) == [0]
    assert [token for token, _ in kept[0]] == [1, 2, 5, 4, 3]
    assert [nats for _, nats in kept[0]] == pytest.approx([0, 0.1, 2, 3, 4], abs=1e-5)


def test_a_wrong_choice_keeps_them_however_clear_it_was() -> None:
    assert list(keep_doubtful(judge_greedy(LOGITS, (1, 5)))) == [0, 1]


def test_the_ranking_is_the_same_with_processors_and_without() -> None:
    plain = judge_greedy(LOGITS, (1, 0)).top[0]
    processed = judge_token(LOGITS[0], REQUEST, 1, (1,), 1).top
    assert [token for token, _ in processed] == [token for token, _ in plain]
    assert [nats for _, nats in processed] == pytest.approx([nats for _, nats in plain], abs=1e-5)


def test_a_vocabulary_smaller_than_the_list_is_listed_whole() -> None:
    columns = judge_greedy(LOGITS[:1, :3], (1,))
    assert len(columns.top[0]) == 3 < N_RANKED


def test_forbidden_tokens_are_no_alternatives() -> None:
    barred = LOGITS[0].clone()
    barred[2:] = -torch.inf
    assert [token for token, _ in judge_token(barred, REQUEST, 1, (1,), 1).top] == [1, 0]

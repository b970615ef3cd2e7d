"""Processors against transformers' own, and greedy choices."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import torch
import transformers as tf

from gate.decoders.sampling import NothingAllowedError, Sampler, keep_mask, mask_forbidden, penalise
from gate.records import Sampling
from tests.decoders.helpers import draw_sampling, make_request

VOCAB = 40
Processor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Position:
    """A row of logits with the history it follows."""

    logits: torch.Tensor
    prompt: tuple[int, ...]
    output: tuple[int, ...]

    def through(self, processor: Processor) -> torch.Tensor:
        """What a transformers processor makes of it."""
        ids = torch.tensor([[*self.prompt, *self.output]])
        return processor(ids, self.logits[None].clone())[0]


def positions(n: int = 200) -> list[Position]:
    """Random rows, peaked and flat, with histories that repeat tokens."""
    rng = random.Random(0)
    generator = torch.Generator().manual_seed(0)
    return [
        Position(
            logits=torch.randn(VOCAB, generator=generator) * rng.choice((0.5, 2.0, 6.0)),
            prompt=tuple(rng.randrange(VOCAB) for _ in range(rng.randrange(1, 9))),
            output=tuple(rng.randrange(VOCAB) for _ in range(rng.randrange(9))),
        )
        for _ in range(n)
    ]


def assert_equal(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Same forbidden tokens, same scores."""
    assert torch.equal(ours.isinf(), theirs.isinf())
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def cut(position: Position, s: Sampling) -> torch.Tensor:
    """Logits with what the cuts drop at -inf."""
    return position.logits.masked_fill(~keep_mask(position.logits, s), -torch.inf)


# ------------------------------------------------- against transformers' own


@pytest.mark.parametrize("penalty", [0.7, 1.3, 4.0])
def test_repetition_penalty_equals_transformers(penalty: float) -> None:
    processor = tf.RepetitionPenaltyLogitsProcessor(penalty)
    s = Sampling(repetition_penalty=penalty)
    for p in positions():
        assert_equal(penalise(p.logits, p.prompt, p.output, s), p.through(processor))


def test_logit_bias_equals_transformers_sequence_bias() -> None:
    bias = {3: 2.5, 17: -4.0, 39: 0.25}
    processor = tf.SequenceBiasLogitsProcessor({(token,): value for token, value in bias.items()})
    for p in positions():
        ours = penalise(p.logits, p.prompt, p.output, Sampling(logit_bias=bias))
        assert_equal(ours, p.through(processor))


def test_bad_words_equal_transformers() -> None:
    rng = random.Random(1)
    for p in positions():
        history = (*p.prompt, *p.output)
        words = (
            (rng.randrange(VOCAB),),
            (*history[-2:], 5),
            (history[-1], 7),
            (1, 2, 3),
            (*range(30), 1),
        )
        processor = tf.NoBadWordsLogitsProcessor([list(word) for word in words], eos_token_id=[])
        request = make_request(sampling=Sampling(bad_words=words))
        ours = mask_forbidden(p.logits.clone(), p.prompt, p.output, request)
        assert_equal(ours, p.through(processor))
        assert ours[5].isinf()
        assert ours[7].isinf()


@pytest.mark.parametrize("min_tokens", [0, 1, 4, 8])
def test_minimum_tokens_equal_transformers(min_tokens: int) -> None:
    request = make_request(min_tokens=min_tokens, eos_ids=(4, 9))
    for p in positions():
        processor = tf.MinNewTokensLengthLogitsProcessor(
            len(p.prompt), min_tokens, [4, 9], device="cpu"
        )
        ours = mask_forbidden(p.logits.clone(), p.prompt, p.output, request)
        assert_equal(ours, p.through(processor))


@pytest.mark.parametrize("top_k", [1, 2, 7, VOCAB, VOCAB + 5])
def test_top_k_equals_transformers_ties_included(top_k: int) -> None:
    processor = tf.TopKLogitsWarper(top_k)
    for p in positions():
        p.logits[3] = p.logits[4]
        assert_equal(cut(p, Sampling(temperature=1.0, top_k=top_k)), p.through(processor))


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
def test_top_p_equals_transformers(top_p: float) -> None:
    processor = tf.TopPLogitsWarper(top_p)
    for p in positions():
        assert_equal(cut(p, Sampling(temperature=1.0, top_p=top_p)), p.through(processor))


@pytest.mark.parametrize("min_p", [0.01, 0.1, 0.6, 1.0])
def test_min_p_equals_transformers(min_p: float) -> None:
    processor = tf.MinPLogitsWarper(min_p)
    for p in positions():
        assert_equal(cut(p, Sampling(temperature=1.0, min_p=min_p)), p.through(processor))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.8])
def test_temperature_and_all_cuts_together_equal_transformers_in_its_order(
    temperature: float,
) -> None:
    s = Sampling(temperature=temperature, top_k=12, top_p=0.9, min_p=0.05)
    chain = tf.LogitsProcessorList(
        [
            tf.TemperatureLogitsWarper(temperature),
            tf.TopKLogitsWarper(12),
            tf.TopPLogitsWarper(0.9),
            tf.MinPLogitsWarper(0.05),
        ]
    )
    for p in positions():
        sampler = Sampler(make_request(sampling=s), p.prompt, seed=0)
        law = sampler.law(p.logits, p.output)
        assert_equal(law.processed, p.through(chain).log_softmax(-1))
        assert torch.equal(law.logits, p.logits)


# ------------------------------------------- presence, frequency, the order


@pytest.mark.parametrize(("presence", "frequency"), [(0.7, 0.0), (0.0, 0.4), (-1.0, 0.3)])
def test_presence_and_frequency_penalties_count_the_output_only(
    presence: float, frequency: float
) -> None:
    s = Sampling(presence_penalty=presence, frequency_penalty=frequency)
    for p in positions():
        expected = p.logits.clone()
        for token in range(VOCAB):
            n = sum(1 for seen in p.output if seen == token)
            expected[token] -= presence * (n > 0) + frequency * n
        assert_equal(penalise(p.logits, p.prompt, p.output, s), expected)


def test_repetition_comes_before_presence_before_bias_before_bans() -> None:
    s = Sampling(
        repetition_penalty=2.0,
        presence_penalty=1.0,
        logit_bias={0: 10.0, 1: 10.0},
        bad_words=((1,),),
    )
    sampler = Sampler(make_request(sampling=s), (0,), seed=0)
    z = sampler.scores(torch.tensor([4.0, 4.0, -4.0]), (0, 2))
    assert z.tolist() == [4.0 / 2 - 1 + 10, -torch.inf, -4.0 * 2 - 1]


def test_scores_leave_the_models_logits_untouched() -> None:
    s = Sampling(repetition_penalty=2.0, bad_words=((1,),), logit_bias={2: 1.0}, temperature=1.0)
    p = positions(1)[0]
    before = p.logits.clone()
    sampler = Sampler(make_request(sampling=s, min_tokens=9, eos_ids=(5,)), p.prompt, seed=0)
    sampler.choose(p.logits, p.output)
    sampler.law(p.logits, p.output)
    assert torch.equal(p.logits, before)


@pytest.mark.parametrize("field", ["top_p", "min_p"])
def test_a_cut_that_underflows_keeps_the_likeliest_token(field: str) -> None:
    s = msgspec.structs.replace(
        Sampling(temperature=1.0), **{field: 1e-60 if field == "top_p" else 1.0}
    )
    for p in positions(20):
        assert keep_mask(p.logits, s).nonzero().flatten().tolist() == [int(p.logits.argmax())]


# ------------------------------------------------------------ greedy choices


def test_greedy_is_the_argmax_of_the_penalised_and_masked_logits() -> None:
    rng = random.Random(2)
    for p in positions():
        s = msgspec.structs.replace(
            draw_sampling(rng), temperature=0.0, logit_bias={}, bad_words=((3,),)
        )
        sampler = Sampler(make_request(sampling=s), p.prompt, seed=0)
        law = sampler.law(p.logits, p.output).processed
        assert sampler.choose(p.logits, p.output) == int(law.argmax())
        assert float(law.exp().sum()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"sampling": Sampling(repetition_penalty=1.1)},
        {"sampling": Sampling(presence_penalty=0.1)},
        {"sampling": Sampling(frequency_penalty=0.1)},
        {"sampling": Sampling(bad_words=((1,),))},
        {"sampling": Sampling(logit_bias={1: 1.0})},
        {"sampling": Sampling(temperature=0.1)},
        {"min_tokens": 1, "eos_ids": (1,)},
    ],
)
def test_only_greedy_on_raw_logits_takes_the_shortcut(fields: dict[str, Any]) -> None:
    assert Sampler(make_request(), (1,), seed=0).is_plain
    assert not Sampler(make_request(**fields), (1,), seed=0).is_plain


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_parameters_that_forbid_every_token_are_an_error(temperature: float) -> None:
    words = tuple((token,) for token in range(VOCAB))
    s = Sampling(temperature=temperature, bad_words=words)
    with pytest.raises(NothingAllowedError, match="no token to choose at output position 2"):
        Sampler(make_request(sampling=s), (1,), seed=0).choose(torch.zeros(VOCAB), (1, 2))

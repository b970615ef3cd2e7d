"""Sampled equality at length: over 10,000 tokens of mixed parameters, lookahead against plain."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gate.records import Sampling
from tests.decoders.helpers import (
    assert_same_outputs,
    decode_ahead,
    decode_plainly,
    draw_prompt,
    draw_sampling,
    emitted,
    make_request,
)

if TYPE_CHECKING:
    from gate.models import LoadedModel
    from gate.records import Request

N_TOKENS = 10_000
BATCH = 16
LONGEST = 200


def draw_long_request(rng: random.Random, number: int) -> Request:
    """A long output under random processors; two in three sampled, most of them cool."""
    sampling = draw_sampling(rng)
    if number % 3 == 0:
        sampling = Sampling(temperature=rng.choice((0.1, 0.3, 0.7)), seed=number)
    prompt = draw_prompt(rng, 6) * 4
    return make_request(
        f"long{number}", prompt, max_tokens=LONGEST, sampling=sampling, stop=("qz",)
    )


def test_ten_thousand_sampled_tokens_equal_plain_decoding_up_to_ties(toy: LoadedModel) -> None:
    rng = random.Random(31)
    n_tokens = number = n_accepted = 0
    while n_tokens < N_TOKENS:
        requests = [draw_long_request(rng, number + i) for i in range(BATCH)]
        number += BATCH
        plain, ahead = decode_plainly(toy, requests), decode_ahead(toy, requests)
        assert_same_outputs(toy, requests, plain, ahead)
        n_tokens += sum(len(emitted(g)) for g in ahead)
        n_accepted += sum(step.n_accepted for g in ahead if g.trace for step in g.trace.steps)
    print(f"{n_tokens} tokens of {number} requests, {n_accepted} accepted drafts")
    assert n_accepted > N_TOKENS // 20

"""Metamorphic: nothing but the request decides its output."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gate.decoders.drafting import Drafts
from gate.decoders.options import LookaheadOptions
from gate.models import LoadedModel
from gate.records import Request, Sampling
from tests.decoders.helpers import (
    Decode,
    assert_same_outputs,
    decode_ahead,
    decode_plainly,
    draw_prompt,
    draw_request,
    emitted,
    make_request,
)

RUN = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SEEDS = st.integers(0, 2**32)
DECODERS = pytest.mark.parametrize("decode", [decode_plainly, decode_ahead])
BATCH = 12


def draw_batch(seed: int, n: int = BATCH) -> list[Request]:
    """Requests of all sorts."""
    rng = random.Random(seed)
    return [draw_request(rng, f"p{i}") for i in range(n)]


# -------------------------------------------------------------------- drafts


def no_drafts(_: Request, __: tuple[int, ...]) -> list[Sequence[int]]:
    """Nothing, and an empty continuation."""
    return [()]


def random_drafts(request: Request, output: tuple[int, ...]) -> Sequence[Sequence[int]]:
    """Reproducible noise, broad and deep, some of it shared."""
    rng = random.Random(f"{request.id}{output}")
    head = draw_prompt(rng, 2)
    return [(*head, *draw_prompt(rng, rng.randrange(4))) for _ in range(4)] + [draw_prompt(rng, 6)]


def oracle_drafts(known: dict[str, tuple[int, ...]]) -> Drafts:
    """The output itself, among others."""

    def draft(request: Request, output: tuple[int, ...]) -> list[Sequence[int]]:
        ahead = known[request.id][len(output) : len(output) + 5]
        return [(1, 2, 3), ahead, (*ahead[:1], 4, 5)]

    return draft


def adversarial_drafts(known: dict[str, tuple[int, ...]]) -> Drafts:
    """Right beginnings with wrong ends, wrong beginnings with right ends, EOS everywhere."""

    def draft(request: Request, output: tuple[int, ...]) -> list[Sequence[int]]:
        ahead = known[request.id][len(output) :]
        wrong = tuple((token + 1) % 276 for token in ahead[:3])
        return [
            (*ahead[:2], *wrong),
            (*wrong[:1], *ahead[1:4]),
            (*ahead[:1], 276, *ahead[1:3]),
            (276,),
        ]

    return draft


@RUN
@given(seed=SEEDS)
@DECODERS
def test_no_draft_changes_the_output(toy: LoadedModel, decode: Decode, seed: int) -> None:
    requests = draw_batch(seed)
    plain = decode_plainly(toy, requests)
    known = {generation.request_id: emitted(generation) for generation in plain}
    for drafts in (no_drafts, random_drafts, oracle_drafts(known), adversarial_drafts(known)):
        assert_same_outputs(toy, requests, plain, decode(toy, requests, drafts=drafts))


def test_oracle_drafts_are_accepted_whole_and_wrong_ones_never(toy: LoadedModel) -> None:
    requests = [make_request(f"o{i}", (i, i + 1), max_tokens=21) for i in range(8)]
    plain = decode_plainly(toy, requests)
    known = {generation.request_id: emitted(generation) for generation in plain}

    def wrong(request: Request, output: tuple[int, ...]) -> list[Sequence[int]]:
        right = known[request.id][len(output)]
        return [((right + n) % 280, right) for n in (1, 2)]

    for generation in decode_plainly(toy, requests, drafts=oracle_drafts(known)):
        assert generation.trace is not None
        assert [step.n_emitted for step in generation.trace.steps] == [1, 6, 6, 6, 2]
    for generation in decode_plainly(toy, requests, drafts=wrong):
        assert generation.trace is not None
        assert all(step.n_accepted == 0 for step in generation.trace.steps)
        assert sum(step.n_drafted for step in generation.trace.steps) > 60


@pytest.mark.parametrize("token", [-1, 280, 10**9])
def test_drafts_outside_the_vocabulary_end_there(toy: LoadedModel, token: int) -> None:
    requests = [make_request(f"v{i}", (i, i + 1), max_tokens=9) for i in range(3)]
    plain = decode_plainly(toy, requests)

    def broken(_: Request, __: tuple[int, ...]) -> list[Sequence[int]]:
        return [(5, token, 6), (token,)]

    for decode in (decode_plainly, decode_ahead):
        assert_same_outputs(toy, requests, plain, decode(toy, requests, drafts=broken))


def test_more_drafts_than_fit_a_step_are_left_out(toy: LoadedModel) -> None:
    request = make_request(prompt=(4, 5), max_tokens=9)

    def many(_: Request, __: tuple[int, ...]) -> list[Sequence[int]]:
        return [(a, b) for a in range(100) for b in range(3)]

    [generation] = decode_plainly(toy, [request], drafts=many)
    assert generation.trace is not None
    assert max(step.n_drafted for step in generation.trace.steps) == 128
    assert_same_outputs(toy, [request], decode_plainly(toy, [request]), [generation])


# --------------------------------------------------------------------- batch


@RUN
@given(seed=SEEDS)
@DECODERS
def test_order_and_grouping_do_not_change_any_output(
    toy: LoadedModel, decode: Decode, seed: int
) -> None:
    requests = draw_batch(seed)
    whole = decode(toy, requests)
    shuffled = random.Random(seed).sample(requests, len(requests))
    found = {generation.request_id: generation for generation in decode(toy, shuffled)}
    assert_same_outputs(toy, requests, whole, [found[request.id] for request in requests])
    alone = [decode(toy, [request])[0] for request in requests[:4]]
    rest = decode(toy, requests[4:])
    assert_same_outputs(toy, requests, whole, [*alone, *rest])


@RUN
@given(seed=SEEDS, window=st.integers(1, 7), ngram=st.integers(2, 5), guesses=st.integers(1, 6))
def test_lookahead_equals_plain_decoding_whatever_its_shape(
    toy: LoadedModel, seed: int, window: int, ngram: int, guesses: int
) -> None:
    requests = draw_batch(seed)
    options = LookaheadOptions(
        window=window, ngram=ngram, guesses=guesses, prompt_ngrams=seed % 2 == 0
    )
    ahead = decode_ahead(toy, requests, options)
    assert_same_outputs(toy, requests, decode_plainly(toy, requests), ahead)


@DECODERS
def test_running_again_gives_the_same(toy: LoadedModel, decode: Decode) -> None:
    for seed in range(10):
        requests = draw_batch(seed)
        first, second = decode(toy, requests), decode(toy, requests)
        assert list(map(emitted, first)) == list(map(emitted, second))


@DECODERS
def test_a_prompt_twice_in_a_batch_gives_the_same_greedy_output_twice(
    toy: LoadedModel, decode: Decode
) -> None:
    requests = [make_request(f"d{i}", (i // 2, 7, 8), max_tokens=20) for i in range(8)]
    outputs = [emitted(generation) for generation in decode(toy, requests)]
    assert outputs[::2] == outputs[1::2]


@DECODERS
def test_repeats_of_a_sampled_prompt_differ_and_of_a_greedy_one_do_not(
    toy: LoadedModel, decode: Decode
) -> None:
    sampled = make_request(prompt=(3, 4), max_tokens=20, sampling=Sampling(temperature=1.0, seed=5))
    greedy = make_request("g", prompt=(3, 4), max_tokens=20)
    for request, n_distinct in ((sampled, 6), (greedy, 1)):
        repeats = [msgspec.structs.replace(request, repeat=n) for n in range(6)]
        assert len({emitted(generation) for generation in decode(toy, repeats)}) == n_distinct


@DECODERS
def test_seeded_unseeded_and_greedy_requests_share_a_batch(
    toy: LoadedModel, decode: Decode
) -> None:
    kinds: dict[str, Any] = {
        "greedy": Sampling(),
        "unseeded": Sampling(temperature=1.0),
        "seeded": Sampling(temperature=1.0, seed=3),
        "otherwise seeded": Sampling(temperature=1.0, seed=4),
    }
    requests = [make_request("same", (3, 4), repeat=n, max_tokens=20) for n in range(4)]
    mixed = [
        msgspec.structs.replace(request, id=name, repeat=0, sampling=sampling)
        for request, (name, sampling) in zip(requests, kinds.items(), strict=True)
    ]
    together = decode(toy, mixed)
    assert len(set(map(emitted, together))) == 4
    assert_same_outputs(toy, mixed, together, [decode(toy, [request])[0] for request in mixed])


def test_the_seed_alone_changes_a_sampled_output(toy: LoadedModel) -> None:
    outputs = {
        emitted(
            decode_plainly(
                toy, [make_request(max_tokens=20, sampling=Sampling(temperature=1.0, seed=n))]
            )[0]
        )
        for n in range(6)
    }
    assert len(outputs) == 6

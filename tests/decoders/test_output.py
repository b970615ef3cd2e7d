"""Log-probabilities and taps against a stock forward."""

from __future__ import annotations

import random

import msgspec
import pytest
import torch

from gate.decoders.sampling import Law, Sampler
from gate.models import LoadedModel
from gate.records import Generation, Request, Sampling
from tests.decoders.helpers import (
    Decode,
    decode_ahead,
    decode_plainly,
    draw_request,
    emitted,
    make_request,
    stock_logits,
)

DECODERS = pytest.mark.parametrize("decode", [decode_plainly, decode_ahead])


def drawn(kind: str, n_logprobs: int) -> list[Request]:
    """Requests of all sorts that ask for log-probabilities."""
    rng = random.Random(21)
    return [
        msgspec.structs.replace(
            draw_request(rng, f"l{i}"), n_logprobs=n_logprobs, logprobs_kind=kind
        )
        for i in range(24)
    ]


def expected_rows(toy: LoadedModel, request: Request, generation: Generation) -> torch.Tensor:
    """(n, vocab) log-probabilities that a stock forward gives, raw or processed."""
    ids = emitted(generation)
    logits = stock_logits(toy, request.prompt, ids)[:-1]
    if request.logprobs_kind == "raw":
        return logits.log_softmax(-1)
    sampler = Sampler(request, request.prompt, seed=0)  # type: ignore[arg-type]
    return torch.stack([sampler.law(row, ids[:at]).processed for at, row in enumerate(logits)])


@DECODERS
@pytest.mark.parametrize("kind", ["raw", "processed"])
@pytest.mark.parametrize("n_logprobs", [0, 3])
def test_logprobs_equal_those_of_a_stock_forward(
    toy: LoadedModel,
    decode: Decode,
    kind: str,
    n_logprobs: int,
) -> None:
    requests = drawn(kind, n_logprobs)
    for request, generation in zip(requests, decode(toy, requests), strict=True):
        rows = expected_rows(toy, request, generation)
        assert [one.token_id for one in generation.logprobs or ()] == list(
            generation.token_ids or ()
        )
        for one, row in zip(generation.logprobs or (), rows, strict=False):
            assert one.logprob == pytest.approx(float(row[one.token_id]), abs=1e-3)
            values, _ = row.topk(n_logprobs)
            finite = [value for value in values.tolist() if value > -torch.inf]
            assert [value for _, value in one.top] == pytest.approx(finite, abs=1e-3)
            assert all(
                value == pytest.approx(float(row[token]), abs=1e-3) for token, value in one.top
            )


def test_raw_and_processed_logprobs_differ_where_parameters_move_the_law(toy: LoadedModel) -> None:
    request = make_request(n_logprobs=0, sampling=Sampling(temperature=1.0, top_k=3))
    raw, processed = (
        decode_plainly(toy, [msgspec.structs.replace(request, logprobs_kind=kind)])[0]
        for kind in ("raw", "processed")
    )
    assert emitted(raw) == emitted(processed)
    assert all(
        a.logprob < b.logprob
        for a, b in zip(raw.logprobs or (), processed.logprobs or (), strict=True)
    )


def test_likeliest_tokens_outside_the_cuts_are_left_out_and_survive_storage(
    toy: LoadedModel,
) -> None:
    request = make_request(
        n_logprobs=5, logprobs_kind="processed", sampling=Sampling(temperature=1.0, top_k=2)
    )
    [generation] = decode_plainly(toy, [request])
    assert {len(one.top) for one in generation.logprobs or ()} == {2}
    again = msgspec.json.decode(msgspec.json.encode(generation), type=Generation)
    assert again == generation


def test_no_logprobs_are_reported_unasked(toy: LoadedModel) -> None:
    [generation] = decode_plainly(toy, [make_request()])
    assert generation.logprobs is None


@DECODERS
def test_tap_sees_the_law_of_every_token_once_and_in_order(
    toy: LoadedModel, decode: Decode
) -> None:
    rng = random.Random(22)
    requests = [draw_request(rng, f"t{i}") for i in range(24)]
    seen: dict[str, list[tuple[int, Law]]] = {}

    def tap(request: Request, position: int, law: Law) -> None:
        seen.setdefault(request.id, []).append((position, law))

    untapped = decode(toy, requests)
    for request, generation in zip(requests, decode(toy, requests, tap=tap), strict=True):
        ids = emitted(generation)
        assert [position for position, _ in seen[request.id]] == list(range(len(ids)))
        rows = stock_logits(toy, request.prompt, ids)
        processed = expected_rows(
            toy, msgspec.structs.replace(request, logprobs_kind="processed"), generation
        )
        for (at, law), row in zip(seen[request.id], processed, strict=True):
            torch.testing.assert_close(law.logits, rows[at], rtol=1e-4, atol=1e-3)
            torch.testing.assert_close(law.processed.exp(), row.exp(), rtol=1e-3, atol=1e-3)
            assert law.processed[ids[at]] > -torch.inf
    assert list(map(emitted, untapped)) == list(map(emitted, decode(toy, requests)))

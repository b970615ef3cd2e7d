"""A batch that would not fit is made smaller, or refused, before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gate.decoders.base import read_spec
from gate.decoders.lookahead import LookaheadDecoder
from gate.decoders.memory import GIB, decoder_bytes, fit_batch, free_bytes, request_bytes
from gate.decoders.options import LookaheadOptions
from gate.errors import RunError
from gate.records import Request

if TYPE_CHECKING:
    from gate.models import LoadedModel


def make_request(n_prompt: int, max_tokens: int = 8) -> Request:
    return Request(
        id="r", task="t", request_class="c", prompt=(1,) * n_prompt, max_tokens=max_tokens
    )


def test_the_cache_is_counted_as_it_is_allocated(toy: LoadedModel) -> None:
    from gate.decoders.engine import Engine  # noqa: PLC0415

    n_slots = 100 + 8 + 31
    cache = Engine(toy.model, 1, n_slots)._cache
    allocated = sum(t.numel() * t.element_size() for t in (cache.keys, cache.values))
    logits = (31 + 8) * toy.vocab_size * 4
    assert request_bytes(toy, make_request(100), 31) >= allocated + logits


def test_a_batch_shrinks_to_the_budget(toy: LoadedModel) -> None:
    request = make_request(100)
    three = 3.5 * request_bytes(toy, request, 31) / GIB
    assert fit_batch(toy, [request], 31, 8, three) == 3
    assert fit_batch(toy, [request], 31, 2, three) == 2


def test_the_neediest_request_decides(toy: LoadedModel) -> None:
    budget = 1.5 * request_bytes(toy, make_request(400), 31) / GIB
    assert fit_batch(toy, [make_request(4), make_request(400)], 31, 8, budget) == 1


def test_not_even_one_request_fits_is_one_sentence(toy: LoadedModel) -> None:
    with pytest.raises(RunError, match=r"raise run\.memory_gib"):
        fit_batch(toy, [make_request(100)], 31, 8, 1e-6)


def test_without_a_budget_what_is_free_counts(toy: LoadedModel) -> None:
    assert free_bytes(toy.device) > 0
    assert fit_batch(toy, [make_request(100)], 31, 8, None) == 8


def test_what_a_decoder_holds_once_is_declared_once(toy: LoadedModel) -> None:
    tree = read_spec("candidate", {"kind": "lookahead", "rows": 8})
    held = decoder_bytes(toy, [read_spec("baseline", {"kind": "autoregressive"}), tree])
    table = LookaheadDecoder(toy, LookaheadOptions(rows=8))._embeddings
    assert table is not None
    assert held == table.nbytes
    request = make_request(100)
    budget = (3.5 * request_bytes(toy, request, 8) + held) / GIB
    assert fit_batch(toy, [request], 8, 8, budget, held) == 3


def test_decoders_without_a_tree_hold_nothing(toy: LoadedModel) -> None:
    tables: list[dict[str, object]] = [{}, {"rows": 1}, {"rows": 8, "sources": ["ngrams"]}]
    specs = [read_spec("candidate", {"kind": "lookahead", **table}) for table in tables]
    assert decoder_bytes(toy, specs) == 0


def test_every_route_counts_and_shared_rows_too(toy: LoadedModel) -> None:
    tree: dict[str, object] = {"kind": "lookahead", "rows": 8}
    one = decoder_bytes(toy, [read_spec("candidate", tree)])
    routes = {"a": tree, "default": {**tree, "shared_rows": True}}
    both = decoder_bytes(toy, [read_spec("candidate", {"kind": "routed", "routes": routes})])
    assert both > 2 * one

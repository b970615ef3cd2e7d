"""Lookahead decoding: the same output as plain decoding, in fewer forwards, honestly counted."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from gate.decoders.decoding import Layout
from gate.decoders.drafting import Tree
from gate.decoders.lookahead import LookaheadDrafter, NgramPool, window_geometry
from gate.decoders.options import LookaheadOptions
from gate.models import LoadedModel
from gate.records import Generation, Request, Sampling
from tests.decoders.helpers import (
    TINY,
    assert_same_outputs,
    build_cycling,
    build_tiny,
    decode_ahead,
    decode_plainly,
    draw_prompt,
    draw_request,
    emitted,
    greedy_requests,
    make_request,
)

SHAPES = [(1, 2, 1), (1, 4, 3), (3, 2, 2), (5, 4, 5), (4, 3, 7), (8, 5, 4)]


def count_accepted(generation: Generation) -> int:
    """Accepted drafts of all steps."""
    assert generation.trace is not None
    return sum(step.n_accepted for step in generation.trace.steps)


# ------------------------------------------------------------------ equality


@pytest.mark.parametrize(("window", "ngram", "guesses"), SHAPES)
def test_output_equals_plain_decoding_one_at_a_time(
    toy: LoadedModel, window: int, ngram: int, guesses: int
) -> None:
    options = LookaheadOptions(window=window, ngram=ngram, guesses=guesses)
    for request in greedy_requests(4):
        plain, ahead = decode_plainly(toy, [request]), decode_ahead(toy, [request], options)
        assert_same_outputs(toy, [request], plain, ahead)


@pytest.mark.parametrize(("window", "ngram", "guesses"), SHAPES)
def test_output_equals_plain_decoding_in_a_mixed_batch(
    toy: LoadedModel, window: int, ngram: int, guesses: int
) -> None:
    rng = random.Random(window * 100 + ngram)
    requests = [draw_request(rng, f"m{i}") for i in range(16)]
    options = LookaheadOptions(
        window=window, ngram=ngram, guesses=guesses, prompt_ngrams=window > 3
    )
    ahead = decode_ahead(toy, requests, options)
    assert all(generation.error is None for generation in ahead)
    assert_same_outputs(toy, requests, decode_plainly(toy, requests), ahead)


@pytest.mark.parametrize("kind", sorted(TINY))
def test_output_equals_plain_decoding_for_each_model_shape(kind: str, byte_tokenizer: Any) -> None:
    tiny = build_tiny(kind, byte_tokenizer)
    requests = greedy_requests(6, max_tokens=32)
    ahead = decode_ahead(tiny, requests)
    assert_same_outputs(tiny, requests, decode_plainly(tiny, requests), ahead)


def test_sampled_output_equals_plain_sampling_with_drafts_accepted(toy: LoadedModel) -> None:
    prompt = (5, 6, 7, 8) * 8
    requests = [
        make_request(f"s{i}", prompt, max_tokens=48, sampling=Sampling(temperature=0.2, seed=i))
        for i in range(8)
    ]
    ahead = decode_ahead(toy, requests)
    assert_same_outputs(toy, requests, decode_plainly(toy, requests), ahead)
    assert sum(map(count_accepted, ahead)) > 30


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_guesses_past_the_end_of_the_context_change_nothing(
    kind: str,
    byte_tokenizer: Any,
) -> None:
    tiny = build_tiny(kind, byte_tokenizer)
    prompt = draw_prompt(random.Random(1), tiny.context - 12)
    requests = [make_request(prompt=prompt, max_tokens=12), make_request("q", max_tokens=30)]
    ahead = decode_ahead(tiny, requests)
    assert [generation.error for generation in ahead] == [None, None]
    assert_same_outputs(tiny, requests, decode_plainly(tiny, requests), ahead)


# --------------------------------------------------------------------- trace


def test_forwards_are_saved_and_accepted_tokens_counted(toy: LoadedModel) -> None:
    requests = greedy_requests(8)
    generations = decode_ahead(toy, requests)
    assert sum(map(count_accepted, generations)) > 30
    for generation in generations:
        assert generation.trace is not None
        n_tokens, n_accepted = len(emitted(generation)), count_accepted(generation)
        assert len(generation.trace.steps) == n_tokens - n_accepted


def test_counts_of_every_step_add_up(toy: LoadedModel) -> None:
    rng = random.Random(11)
    requests = [draw_request(rng, f"t{i}") for i in range(40)]
    options = LookaheadOptions(window=4, ngram=3, guesses=3)
    for request, generation in zip(requests, decode_ahead(toy, requests, options), strict=True):
        assert generation.trace is not None
        prefill, *steps = generation.trace.steps
        assert (prefill.n_rows, prefill.n_drafted, prefill.n_emitted) == (len(request.prompt), 0, 1)
        assert sum(step.n_emitted for step in generation.trace.steps) == len(emitted(generation))
        for step in steps:
            assert step.n_rows == 1 + step.n_drafted + 4 * 2
            assert step.n_accepted <= step.n_drafted <= 3 * 2
            assert step.n_emitted in (step.n_accepted, step.n_accepted + 1)
        assert all(step.n_emitted == step.n_accepted + 1 for step in steps[:-1])


def test_a_full_match_keeps_the_bonus_token(toy: LoadedModel) -> None:
    request = make_request(prompt=(9, 9, 9), max_tokens=13)
    [plain] = decode_plainly(toy, [request])
    ids = emitted(plain)

    def foresee(_: Request, output: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [ids[len(output) : len(output) + 3]]

    for decode in (decode_plainly, decode_ahead):
        [generation] = decode(toy, [request], drafts=foresee)
        assert generation.token_ids == ids
        assert generation.trace is not None
        assert [step.n_emitted for step in generation.trace.steps] == [1, 4, 4, 4]


def test_no_guess_reaches_past_the_budget(toy: LoadedModel) -> None:
    request = make_request(prompt=(9, 9, 9), max_tokens=4)
    ids = emitted(decode_plainly(toy, [make_request(prompt=(9, 9, 9), max_tokens=40)])[0])

    def foresee(_: Request, output: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [ids[len(output) :]]

    [generation] = decode_plainly(toy, [request], drafts=foresee)
    assert generation.token_ids == ids[:4]
    assert generation.trace is not None
    assert [(s.n_drafted, s.n_emitted) for s in generation.trace.steps] == [(0, 1), (2, 3)]


# ----------------------------------------------------- pool, window, layout


def test_pool_keeps_the_newest_continuations_newest_first() -> None:
    pool = NgramPool(2)
    for ngram in ((1, 2, 3), (1, 4, 5), (1, 2, 3), (1, 6, 7), (2, 2, 2)):
        pool.add(ngram)
    assert pool.continuations(1) == [(6, 7), (2, 3)]
    assert pool.continuations(3) == []


def test_prompt_ngrams_are_offered_from_the_first_step_when_asked_for() -> None:
    for asked, expected in ((True, [2, 3]), (False, [])):
        options = LookaheadOptions(ngram=3, prompt_ngrams=asked)
        drafter = LookaheadDrafter(options, make_request(), (1, 2, 3, 4), None)
        assert drafter.propose(1, (), 9).tokens == expected


def test_window_rows_see_the_first_level_up_to_their_column_and_their_own_past() -> None:
    depths, mask = window_geometry(3, 3)
    for row, (level, column) in enumerate((le, c) for le in range(3) for c in range(3)):
        assert depths[row] == column + 1 + level
        seen = {(0, c) for c in range(column + 1)} | {(le, column) for le in range(level + 1)}
        assert {divmod(int(i), 3) for i in np.flatnonzero(mask[row])} == seen
        assert sorted(depths[mask[row]]) == list(range(1, depths[row] + 1))  # no gap, none twice


def test_window_moves_by_the_tokens_committed_and_forms_one_ngram_per_column() -> None:
    drafter = LookaheadDrafter(
        LookaheadOptions(window=3, ngram=3, guesses=4), make_request(), (7,), None
    )
    drafter._levels = [[1, 2, 3], [4, 5, 6]]
    drafter.observe([10, 20, 30], 2)
    assert drafter._pool.continuations(1) == [(4, 10)]
    assert drafter._pool.continuations(3) == [(6, 30)]
    assert drafter._levels == [[5, 6, 7], [20, 30, 7]]


@pytest.mark.parametrize("ngram", [2, 3, 4])
def test_window_foresees_a_cycle_wholly_once_it_has_seen_it(toy: LoadedModel, ngram: int) -> None:
    request = make_request(prompt=(10, 11, 12, 13, 14), max_tokens=80)
    options = LookaheadOptions(window=6, ngram=ngram, guesses=64)
    [generation] = decode_ahead(build_cycling(toy), [request], options)
    assert generation.token_ids == (10, 11, 12, 13, 14) * 16
    assert generation.trace is not None
    late = [step.n_emitted for step in generation.trace.steps][2 * ngram : -1]
    assert late == [ngram] * len(late)
    assert late


def test_tree_merges_shared_beginnings_and_rows_see_their_ancestors_only() -> None:
    tree = Tree()
    for candidate in ((1, 2, 3), (1, 2, 4), (5,), (1, 2)):
        tree.add(candidate, 9)
    assert tree.tokens == [1, 2, 3, 4, 5]
    assert tree.depths == [1, 2, 3, 3, 1]
    seen = [set(np.flatnonzero(row)) for row in tree.mask()]
    assert seen == [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 4}, {0, 5}]


def test_layout_pads_shorter_trees_with_rows_nobody_sees() -> None:
    short, long = Tree(), Tree()
    long.add((1, 2), 9)
    layout = Layout([short, long], [None, None], [8, 9])
    assert layout.tokens.tolist() == [[8, 0, 0], [9, 1, 2]]
    assert layout.n_rows == [1, 3]
    assert layout.mask[0].tolist() == np.eye(3, dtype=bool).tolist()


def test_layout_lets_the_window_see_the_last_token_and_nothing_of_the_trees() -> None:
    drafter = LookaheadDrafter(LookaheadOptions(window=2, ngram=3), make_request(), (7,), None)
    tree, extra = Tree(), drafter.extra_rows()
    tree.add((1, 2), 9)
    layout = Layout([Tree(), tree], [extra, extra], [8, 9])
    for b in range(2):
        window = layout.mask[b, 3:]
        assert window[:, 0].all()
        assert not window[:, 1:3].any()
        assert window[:, 3:].tolist() == extra.mask.tolist()
        assert not layout.mask[b, :3, 3:].any()
    assert layout.depths[1].tolist() == [0, 1, 2, *extra.depths.tolist()]
    assert layout.read == [0, 1, 2, 5, 6]  # row 0, the longest tree, the newest level


@pytest.mark.parametrize(("key", "value"), [("window", 0), ("ngram", 1), ("guesses", 0)])
def test_options_that_could_never_guess_are_refused(key: str, value: int) -> None:
    fields: dict[str, Any] = {key: value}
    with pytest.raises(ValueError, match=f"{key} = {value} cannot guess"):
        LookaheadOptions(**fields)

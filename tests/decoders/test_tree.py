"""Guesses grown as a tree to a budget of rows: the same output, fewer forwards, counted rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from gate.collect import step_rows
from gate.decoders.base import read_spec
from gate.decoders.decoding import decode_batches
from gate.decoders.drafting import Tree
from gate.decoders.engine import PROMPT_ROWS
from gate.decoders.mixture import Mixture, find_situation
from gate.decoders.options import LookaheadOptions
from gate.decoders.sources import Common, History, Places, Recycled, make_laws
from gate.decoders.tops import find_best, find_tops
from gate.decoders.tree_drafter import TreeDrafter
from gate.errors import UsageError
from gate.models import LoadedModel
from gate.records import Generation, Request, Sampling, Step
from tests.decoders.helpers import (
    TINY,
    assert_same_outputs,
    build_cycling,
    build_tiny,
    decode_ahead,
    decode_plainly,
    draw_request,
    emitted,
    greedy_requests,
    make_request,
)

STEEP, FLAT = ((1, 1.0), (2, 100.0), (3, 200.0)), ((1, 1.0), (64, 1.001))


def steps_of(generation: Generation) -> Sequence[Step]:
    """Forwards after the prefill."""
    assert generation.trace is not None
    return generation.trace.steps[1:]


def counts(generation: Generation) -> list[tuple[int, int, int]]:
    """What each step ran and committed, without its time."""
    return [(s.n_rows, s.n_accepted, s.n_emitted) for s in steps_of(generation)]


# ------------------------------------------------------------------ equality

OPTIONS: tuple[dict[str, Any], ...] = (
    {"rows": 1},
    {"rows": 2},
    {"rows": 7, "sources": ("ngrams",)},
    {"rows": 16, "sources": ("window", "recycled")},
    {"rows": 40, "shared_noise": False},
    {"rows": 24, "step_cost": ((1, 1.0), (8, 1.2), (24, 3.0))},
)


@pytest.mark.parametrize("fields", OPTIONS, ids=str)
def test_output_equals_plain_decoding_in_a_mixed_batch(
    toy: LoadedModel, fields: dict[str, Any]
) -> None:
    rng = random.Random(5)
    requests = [draw_request(rng, f"m{i}") for i in range(16)]
    ahead = decode_ahead(toy, requests, LookaheadOptions(**fields))
    assert all(generation.error is None for generation in ahead)
    assert_same_outputs(toy, requests, decode_plainly(toy, requests), ahead)
    assert all(s.n_rows <= fields["rows"] for g in ahead for s in steps_of(g))


@pytest.mark.parametrize("kind", sorted(TINY))
def test_output_equals_plain_decoding_for_each_model_shape(kind: str, byte_tokenizer: Any) -> None:
    tiny = build_tiny(kind, byte_tokenizer)
    requests = greedy_requests(4, max_tokens=24)
    ahead = decode_ahead(tiny, requests, LookaheadOptions(rows=20))
    assert_same_outputs(tiny, requests, decode_plainly(tiny, requests), ahead)


@pytest.mark.parametrize("shared_noise", [True, False])
def test_sampled_output_equals_plain_sampling_with_drafts_accepted(
    toy: LoadedModel,
    shared_noise: bool,  # noqa: FBT001
) -> None:
    requests = [
        make_request(f"s{i}", (5, 6) * 8, max_tokens=40, sampling=Sampling(temperature=0.3, seed=i))
        for i in range(6)
    ]
    options = LookaheadOptions(rows=24, shared_noise=shared_noise)
    ahead = decode_ahead(toy, requests, options)
    assert_same_outputs(toy, requests, decode_plainly(toy, requests), ahead)
    assert sum(s.n_accepted for g in ahead for s in steps_of(g)) > 10


def test_guesses_that_know_the_noise_are_accepted_more_often(toy: LoadedModel) -> None:
    cycling = build_cycling(toy)
    requests = [
        make_request(f"s{i}", (10, 11), max_tokens=80, sampling=Sampling(temperature=2.0, seed=i))
        for i in range(4)
    ]
    known, unknown = (
        decode_ahead(cycling, requests, LookaheadOptions(rows=6, shared_noise=shared))
        for shared in (True, False)
    )
    assert_same_outputs(cycling, requests, known, unknown)
    assert sum(len(steps_of(g)) for g in known) < sum(len(steps_of(g)) for g in unknown)


# ---------------------------------------------------------------- the budget


def test_fewer_forwards_than_the_window_and_pool_of_as_many_rows(toy: LoadedModel) -> None:
    requests = greedy_requests(8, max_tokens=64)
    pool = decode_ahead(toy, requests)
    tree = decode_ahead(toy, requests, LookaheadOptions(rows=31))
    assert sum(len(steps_of(g)) for g in tree) < sum(len(steps_of(g)) for g in pool)


def test_one_row_is_plain_decoding(toy: LoadedModel) -> None:
    for generation in decode_ahead(toy, greedy_requests(3), LookaheadOptions(rows=1)):
        assert {s.n_rows for s in steps_of(generation)} == {1}
        assert len(steps_of(generation)) == len(emitted(generation)) - 1


def test_neighbours_and_earlier_requests_change_no_guess(toy: LoadedModel) -> None:
    requests = greedy_requests(5)
    options = LookaheadOptions(rows=24, step_cost=((1, 1.0), (24, 2.0)))
    together = decode_ahead(toy, requests, options)
    for request, generation in zip(requests, together, strict=True):
        [alone] = decode_ahead(toy, [request], options)
        assert counts(alone) == counts(generation)


@pytest.mark.parametrize(("cost", "widest"), [(STEEP, 1), (FLAT, 24)])
def test_rows_are_taken_where_they_pay(
    toy: LoadedModel, cost: tuple[tuple[int, float], ...], widest: int
) -> None:
    options = LookaheadOptions(rows=24, step_cost=cost)
    generations = decode_ahead(toy, greedy_requests(3), options)
    assert max(s.n_rows for g in generations for s in steps_of(g)) == widest


def test_counts_of_every_step_add_up(toy: LoadedModel) -> None:
    rng = random.Random(11)
    requests = [draw_request(rng, f"t{i}") for i in range(30)]
    for generation in decode_ahead(toy, requests, LookaheadOptions(rows=12)):
        for step in steps_of(generation):
            assert step.n_rows == 1 + step.n_drafted <= 12
            assert step.n_accepted <= step.n_drafted
            assert step.n_emitted in (step.n_accepted, step.n_accepted + 1)
        assert generation.trace is not None
        n_emitted = sum(step.n_emitted for step in generation.trace.steps)
        assert n_emitted == len(emitted(generation))


# --------------------------------------------------------------- the parts


def test_ignorance_takes_the_weight_of_sources_that_are_always_wrong() -> None:
    mixture = Mixture()
    laws = (None, None, {1: 0.9}, None, None)
    situation = find_situation(laws, 0)
    before = sum(mixture.mix(laws, situation).values())
    for _ in range(100_000):  # weights that fade away do no harm
        mixture.observe(laws, situation, 2)
    assert sum(mixture.mix(laws, situation).values()) < 0.1 < before


def test_repeated_text_is_foreseen_by_ngrams_alone() -> None:
    options = LookaheadOptions(rows=9, sources=("ngrams",))
    drafter = TreeDrafter(options, make_request(), (1, 2, 3, 4, 5, 6, 7, 1, 2, 3))
    assert drafter.propose(4, (4,), 9).tokens[:3] == [5, 6, 7]


def test_a_rejected_row_says_what_follows_its_last_tokens() -> None:
    drafter = TreeDrafter(LookaheadOptions(rows=9, sources=("recycled",)), make_request(), (1, 2))
    tree = Tree()
    tree.add((8, 9), 9)
    drafter.propose(3, (3,), 9)
    drafter.learn(tree, np.array([[5.0, 0.0]] * 3), np.array([[4, 0], [9, 0], [7, 0]]), [0])
    assert drafter.propose(9, (3, 9), 9).tokens[0] == 7


def test_a_row_of_the_prompt_says_what_follows_its_last_tokens() -> None:
    drafter = TreeDrafter(LookaheadOptions(rows=9), make_request(), (1, 2, 3))
    drafter.learn_prompt(np.array([[5.0, 0.0]] * 3), np.array([[2, 9], [7, 9], [4, 9]]))
    assert drafter.propose(2, (2,), 9).tokens[0] == 7  # 2 stands at the prompt's second row


def test_the_prompt_is_not_read_where_rows_have_a_price_or_nothing_learns() -> None:
    for fields, n in (
        ({"rows": 9}, PROMPT_ROWS),
        ({"rows": 9, "step_cost": STEEP}, 0),
        ({"rows": 9, "sources": ("ngrams",)}, 0),
        ({"rows": 1}, 0),
    ):
        options: Any = fields
        drafter = TreeDrafter(LookaheadOptions(**options), make_request(), (1, 2))
        assert drafter.n_prompt == n


def test_what_rows_say_most_often_is_guessed_behind_a_token_never_seen() -> None:
    drafter = TreeDrafter(LookaheadOptions(rows=9), make_request(), (1, 2, 3))
    drafter.learn_prompt(np.array([[5.0, 0.0]] * 3), np.array([[6, 9], [7, 9], [6, 9]]))
    assert drafter.propose(8, (8,), 9).tokens[:2] == [6, 7]


def test_the_common_law_is_the_mean_of_all_rows() -> None:
    common = Common()
    assert common.find() is None
    for law in ({1: 0.5, 2: 0.25}, {2: 0.25}):
        common.add(law)
    assert common.find() == {1: 0.25, 2: 0.25}


def test_the_prompt_teaches_the_same_whatever_the_batch(toy: LoadedModel) -> None:
    told: dict[str, list[tuple[int, ...]]] = {}

    class Listening(TreeDrafter):
        name = ""

        def learn_prompt(self, values: np.ndarray, ids: np.ndarray) -> None:
            told.setdefault(self.name, []).append(tuple(ids[:, 0].tolist()))
            super().learn_prompt(values, ids)

    def make(request: Request, prompt: Sequence[int]) -> TreeDrafter:
        drafter = Listening(LookaheadOptions(rows=9), request, prompt)
        drafter.name = request.id
        return drafter

    requests = [make_request("a", (5, 6, 7)), make_request("b", tuple(range(5, 140)), max_tokens=4)]
    for batch in (requests, requests[:1], requests[1:]):
        list(decode_batches(toy, batch, make))
    assert [len(set(one)) for one in told.values()] == [1, 1]
    assert [len(told[name][0]) for name in ("a", "b")] == [3, PROMPT_ROWS]


def test_the_window_keeps_what_rejected_rows_said_of_a_position() -> None:
    drafter = TreeDrafter(LookaheadOptions(rows=3, sources=("window",)), make_request(), (1, 2))
    tree = Tree()
    tree.add((8,), 9)
    drafter.propose(3, (3,), 9)
    drafter.learn(tree, np.array([[5.0, 0.0]] * 2), np.array([[4, 0], [7, 0]]), [0])
    assert drafter.propose(6, (3, 6), 9).tokens[0] == 7


def test_no_guess_reaches_past_the_depth_asked_for() -> None:
    drafter = TreeDrafter(LookaheadOptions(rows=40), make_request(), (1, 2, 3) * 9)
    assert max(drafter.propose(1, (1,), 2).depths) == 2
    assert drafter.propose(2, (1, 2), 0).tokens == []


def test_matches_are_the_earlier_places_with_the_same_end() -> None:
    rng = random.Random(3)
    history = History()
    history.extend([rng.randrange(3) for _ in range(40)])
    for place, length in history.match_end():
        end = history.tokens[: place + 1]
        assert place < 39
        assert end[-length:] == history.tokens[-length:]


def test_matches_of_a_child_end_like_it() -> None:
    rng = random.Random(4)
    history = History()
    history.extend([rng.randrange(3) for _ in range(60)])
    for token in range(3):
        line = [*history.tokens, token]
        found = history.match_child(history.match_end(), history.tokens[-1], token)
        assert found
        for place, length in found:
            assert history.tokens[: place + 1][-length:] == line[-length:]


def test_a_source_that_does_not_pay_loses_its_weight() -> None:
    mixture = Mixture()
    laws = (None, None, {1: 0.9}, {2: 0.9}, None)
    situation = find_situation(laws, 1)
    before = mixture.mix(laws, situation)
    for _ in range(12):
        mixture.observe(laws, situation, 2)
    after = mixture.mix(laws, situation)
    assert before[1] > before[2]
    assert after[2] > 0.5
    assert after[2] > after[1]
    assert sum(after.values()) <= 1.0


def test_laws_have_mass_below_one_and_keep_the_order() -> None:
    for temperature in (0.0, 0.7, 1.0):
        laws = make_laws(np.array([[3.0, 2.0, 2.0, -1.0]]), temperature)[0]
        assert laws.sum() < 1.0
        assert laws[0] > laws[1] == laws[2] > laws[3]


def test_recycled_rows_answer_to_each_length_of_key() -> None:
    recycled = Recycled()
    recycled.add((1, 2, 3), {7: 1.0})
    assert recycled.find((1, 2, 3)) == ({7: 1.0}, {7: 1.0}, {7: 1.0})
    assert recycled.find((9, 2, 3)) == (None, {7: 1.0}, {7: 1.0})
    assert recycled.find((3,)) == ({7: 1.0},) * 3


def test_places_that_are_decided_are_forgotten() -> None:
    places = Places()
    places.add([(4, 1.0, {1: 1.0}), (6, 3.0, {2: 1.0}), (6, 1.0, {3: 1.0})])
    places.forget(5)
    assert places.find(4) is None
    assert places.find(6) == {2: 0.75, 3: 0.25}


def test_a_tree_can_be_cut_to_its_first_rows() -> None:
    tree = Tree()
    tree.add((1, 2), 9)
    tree.add((3,), 9)
    tree.cut(1)
    assert (tree.tokens, tree.parents, tree.depths) == ([1], [0], [1])
    assert tree.children == {(0, 1): 1}


@pytest.mark.parametrize("n_vocab", [40, 280, 1024])
def test_the_best_tokens_are_those_of_a_full_sort(n_vocab: int) -> None:
    torch.manual_seed(0)
    logits = torch.randint(0, 50, (5, n_vocab)).float()  # with ties
    peaks, best = find_best(logits)
    assert torch.equal(peaks, logits.max(-1).values)
    assert torch.equal(best, logits.max(-1).indices)
    values, ids = find_tops(logits, 8)
    assert torch.equal(values, logits.topk(8).values)
    assert torch.equal(logits.gather(1, ids), values)


def test_logits_that_are_not_numbers_show() -> None:
    logits = torch.zeros(2, 1024)
    logits[1, 700] = torch.nan
    assert find_best(logits)[0].isnan().tolist() == [False, True]


# ------------------------------------------------------------------ options

WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"rows": 0}, "rows = 0"),
    ({"rows": 2000}, "rows = 2000"),
    ({"rows": 8, "sources": []}, "name at least one"),
    ({"rows": 8, "sources": ["ngrams", "ngrams"]}, "once"),
    ({"rows": 8, "sources": ["oracle"]}, "oracle"),
    ({"rows": 8, "step_cost": [[2, 1.0]]}, "begin with 1"),
    ({"rows": 8, "step_cost": [[1, 1.0], [1, 2.0]]}, "rise"),
    ({"rows": 8, "step_cost": [[1, 0.0]]}, "positive"),
    ({"rows": 8, "step_cost": [[1, float("nan")]]}, "positive"),
    ({"step_cost": [[1, 1.0]]}, "set rows"),
    ({"rows": 8, "window": 7}, "not used beside rows"),
    ({"sources": ["ngrams"]}, "set rows"),
    ({"shared_rows": True}, "set rows"),
    ({"rows": 8, "shared_rows": True, "sources": ["ngrams"]}, "add 'recycled'"),
)


@pytest.mark.parametrize(("fields", "text"), WRONG, ids=str)
def test_options_that_mean_nothing_are_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        read_spec("candidate", {"kind": "lookahead", **fields})


def test_the_rows_of_a_step_are_known_to_the_plan() -> None:
    for fields, rows in (({}, 31), ({"rows": 40}, 40), ({"rows": 1}, 1)):
        assert step_rows(read_spec("candidate", {"kind": "lookahead", **fields})) == rows

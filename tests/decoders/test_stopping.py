"""Where an output ends and what is delivered, against a short reference on the final text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.decoders.stopping import Stopper
from gate.endings import check_output
from gate.models import LoadedModel
from gate.records import Chunk, Generation, Request, Trace, Usage
from tests.conftest import END, STOP, build_byte_tokenizer
from tests.decoders.helpers import (
    Decode,
    decode_ahead,
    decode_plainly,
    draw_request,
    make_request,
)

TOKENIZER = build_byte_tokenizer()
A, B, N, NEWLINE = (ord(letter) for letter in "abn\n")
THE, T_BLANK, AB, ABC, EURO_HEAD, EURO, BLANK_E2, A_C3 = 257, 258, 261, 262, 268, 269, 272, 273


class Ended(NamedTuple):
    """What an output came to."""

    text: str
    ids: tuple[int, ...]
    tail: tuple[int, ...]
    finish: str


def read(ids: Sequence[int]) -> str:
    """Text as users see it."""
    return str(
        TOKENIZER.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )


def find_all(text: str, stop: str) -> list[int]:
    """Every place where ``stop`` begins."""
    return [at for at in range(len(text)) if text.startswith(stop, at)]


def refer(request: Request, free: Sequence[int]) -> Ended:
    """The reference: the first prefix of ``free`` whose whole text says that it ends."""
    for n in range(1, request.max_tokens + 1):
        ids, text = tuple(free[:n]), read(free[:n])
        if ids[-1] in request.eos_ids:
            return Ended(text, ids, (), "eos")
        floor = len(read(free[: request.min_tokens])) if n > request.min_tokens else len(text)
        starts = [at for stop in request.stop for at in find_all(text, stop) if at >= floor]
        if starts:
            return cut_ids(ids, text[: min(starts)])
    return Ended(text, ids, (), "length")


def cut_ids(ids: tuple[int, ...], kept: str) -> Ended:
    """The fewest tokens whose text begins with the kept text."""
    n = next(n for n in range(len(ids) + 1) if read(ids[:n]).startswith(kept))
    return Ended(kept, ids[:n], ids[n:], "stop")


def run_stopper(
    request: Request, free: Sequence[int], widths: Sequence[int] = (1,)
) -> tuple[Ended, list[Chunk]]:
    """Push tokens in runs of the given widths, streaming after each run."""
    stopper, chunks, pushed = Stopper(request, TOKENIZER), [], 0
    while stopper.finish is None:
        for _ in range(widths[pushed % len(widths)]):
            if stopper.push(free[len(stopper.ids)]) is not None:
                break
        pushed += 1
        chunks += [chunk] if (chunk := stopper.stream(0.0)) else []
    return Ended(*stopper.result(), stopper.finish), chunks


def end(free: Sequence[int], **fields: Any) -> Ended:
    """What the stopper makes of the tokens; the budget is all of them unless given."""
    request = make_request(**({"max_tokens": len(free)} | fields))
    ended, _ = run_stopper(request, free)
    assert ended == refer(request, free)
    return ended


# ------------------------------------------------------------------- examples


def test_an_ending_eos_is_delivered_and_its_text_is_not() -> None:
    assert end([A, END, B], eos_ids=(END,)) == Ended("a", (A, END), (), "eos")


def test_the_first_of_several_eos_ids_ends_the_output() -> None:
    assert end([A, N, STOP, END], eos_ids=(END, STOP)).ids == (A, N, STOP)


def test_eos_wins_over_a_stop_string_completed_by_the_same_token() -> None:
    assert end([A, B], eos_ids=(B,), stop=("ab",)) == Ended("ab", (A, B), (), "eos")


def test_a_stop_string_wins_over_the_budget_at_the_same_token() -> None:
    assert end([A, B], stop=("b",)) == Ended("a", (A,), (B,), "stop")


def test_a_stop_string_across_tokens_is_found_and_its_head_is_cut() -> None:
    assert end([A, T_BLANK, 104, 101, N], stop=("the",)) == Ended(
        "a ", (A, T_BLANK), (104, 101), "stop"
    )


def test_a_stop_string_inside_one_token_keeps_the_token_that_holds_the_kept_text() -> None:
    assert end([N, ABC, A], stop=("bc",)) == Ended("na", (N, ABC), (), "stop")


def test_the_stop_that_starts_earliest_wins_whatever_its_place_in_the_list() -> None:
    for stop in (("bc", "ab"), ("ab", "bc")):
        assert end([N, ABC], stop=stop) == Ended("n", (N,), (ABC,), "stop")


def test_the_stop_that_is_complete_first_wins_over_one_that_started_earlier() -> None:
    assert end([A, B, N, N], stop=("abnn", "b")).text == "a"


def test_a_stop_at_the_start_leaves_nothing() -> None:
    assert end([A, B], stop=("a",)) == Ended("", (), (A,), "stop")


def test_a_stop_of_a_character_split_over_tokens_is_found_at_its_last_token() -> None:
    assert end([A, 0xE2, 0x82, 0xAC, B], stop=("€",)) == Ended(
        "a", (A,), (0xE2, 0x82, 0xAC), "stop"
    )


def test_ids_are_cut_behind_a_whole_character() -> None:
    assert end([0xE2, 0x82, 0xAC, B], stop=("b",)) == Ended("€", (0xE2, 0x82, 0xAC), (B,), "stop")


def test_a_stop_ahead_of_an_unfinished_character_in_the_same_token_is_found_at_once() -> None:
    assert end([N, A_C3], stop=("a",)) == Ended("n", (N,), (A_C3,), "stop")
    assert end([N, BLANK_E2, END], stop=(" ",), eos_ids=(END,)).finish == "stop"


def test_broken_bytes_do_not_hide_a_stop() -> None:
    assert end([0xFF, 0xFF, A, B], stop=("b",)) == Ended(
        "\ufffd\ufffda", (0xFF, 0xFF, A), (B,), "stop"
    )


def test_a_stop_must_start_after_the_text_of_the_first_min_tokens_tokens() -> None:
    assert end([A, B, A, B], stop=("ab",), min_tokens=1).text == "ab"
    assert end([A, B, N, B], stop=("b",), min_tokens=2).text == "abn"
    assert end([A, B, N], stop=("ab",), min_tokens=1).finish == "length"


def test_special_tokens_among_the_first_min_tokens_take_no_text() -> None:
    assert end([STOP, B, N], stop=("b",), min_tokens=1) == Ended("", (), (STOP, B), "stop")


def test_length_keeps_an_unfinished_character_as_replacement() -> None:
    assert end([A, 0xE2]) == Ended("a\ufffd", (A, 0xE2), (), "length")


# ----------------------------------------------------------------- properties

TOKENS = st.one_of(
    st.sampled_from((A, B, N, NEWLINE, 32, AB, ABC, THE, T_BLANK, 101, 104, 116)),
    st.sampled_from((0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80, 0xFF)),
    st.sampled_from(range(256, 280)),
)
STOPS = st.one_of(
    st.sampled_from(
        ("a", "ab", "abc", "b", "bn", "\n\n", " the", "the", "€", "é", "😀", "n€", "a\n")
    ),
    st.text("abn €é", min_size=1, max_size=4),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Request, list[int], list[int]]:
    """A request, the tokens that a model would emit, and the widths of the runs."""
    free = draw(st.lists(TOKENS, min_size=1, max_size=14))
    request = make_request(
        max_tokens=len(free),
        min_tokens=draw(st.sampled_from((0, 0, 1, 2, 5))),
        stop=tuple(draw(st.lists(STOPS, max_size=3))),
        eos_ids=tuple(draw(st.lists(st.sampled_from((END, STOP, N, AB)), max_size=2))),
        stream=True,
    )
    return request, free, draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))


@settings(max_examples=4000, deadline=None, derandomize=True)
@given(case=cases())
def test_stopper_agrees_with_the_reference_on_the_final_text(
    case: tuple[Request, list[int], list[int]],
) -> None:
    request, free, widths = case
    ended, chunks = run_stopper(request, free, widths)
    assert ended == refer(request, free)
    assert_streamed(ended, chunks)


def assert_streamed(ended: Ended, chunks: Sequence[Chunk]) -> None:
    """Every token and character once, in order, and none that is cut later."""
    assert "".join(chunk.text for chunk in chunks) == ended.text
    assert tuple(token for chunk in chunks for token in chunk.token_ids) == ended.ids
    sent: tuple[int, ...] = ()
    text = ""
    for chunk in chunks:
        sent, text = (*sent, *chunk.token_ids), text + chunk.text
        assert read(sent).startswith(text), "text ran ahead of the tokens"


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(case=cases())
def test_the_gates_own_check_of_endings_finds_nothing_wrong(
    case: tuple[Request, list[int], list[int]],
) -> None:
    request, free, widths = case
    ended, chunks = run_stopper(request, free, widths)
    generation = Generation(
        request_id=request.id,
        text=ended.text,
        token_ids=ended.ids,
        tail_ids=ended.tail,
        finish=ended.finish,  # type: ignore[arg-type]
        usage=Usage(n_prompt=len(request.prompt), n_output=len(ended.ids)),
        trace=Trace(chunks=tuple(chunks)),
    )
    faults = check_output(request, generation, read)
    if (
        ended.finish == "eos"
    ):  # the sampler masks EOS among the first tokens, the stopper alone does not
        faults = tuple(fault for fault in faults if fault.kind != "min_tokens")
    assert faults == ()


def test_text_that_may_begin_a_stop_string_is_held_back() -> None:
    request = make_request(max_tokens=4, stop=("abn",), stream=True)
    _, chunks = run_stopper(request, [N, A, B, B])
    assert [chunk.text for chunk in chunks] == ["n", "abb"]
    assert [chunk.token_ids for chunk in chunks] == [(N,), (A, B, B)]


def test_a_character_is_streamed_with_the_token_that_completes_it() -> None:
    _, chunks = run_stopper(make_request(max_tokens=4, stream=True), [0xE2, 0x82, 0xAC, B])
    assert [(chunk.text, chunk.token_ids) for chunk in chunks] == [
        ("€", (0xE2, 0x82, 0xAC)),
        ("b", (B,)),
    ]


def test_a_run_is_streamed_whole() -> None:
    _, chunks = run_stopper(make_request(max_tokens=6, stream=True), [A, B, N, A, B, N], widths=[3])
    assert [chunk.token_ids for chunk in chunks] == [(A, B, N), (A, B, N)]


# --------------------------------------------------------------- with a model


@pytest.mark.parametrize("decode", [decode_plainly, decode_ahead])
def test_decoded_outputs_end_where_the_reference_ends_them(
    toy: LoadedModel, decode: Decode
) -> None:
    rng = random.Random(5)
    requests = [draw_request(rng, f"r{i}") for i in range(60)]
    for request, generation in zip(requests, decode(toy, requests), strict=True):
        whole = (*(generation.token_ids or ()), *generation.tail_ids)
        ended = Ended(
            generation.text, generation.token_ids or (), generation.tail_ids, generation.finish
        )
        assert generation.usage == Usage(n_prompt=len(request.prompt), n_output=len(ended.ids))
        assert ended == refer(request, (*whole, *[A] * (request.max_tokens - len(whole))))


@pytest.mark.parametrize("decode", [decode_plainly, decode_ahead])
def test_what_a_decoder_streams_is_what_it_returns(toy: LoadedModel, decode: Decode) -> None:
    rng = random.Random(6)
    requests = [r for i in range(60) if (r := draw_request(rng, f"r{i}")).stream]
    for generation in decode(toy, requests):
        ids = generation.token_ids or ()
        ended = Ended(generation.text, ids, generation.tail_ids, generation.finish)
        assert generation.trace is not None
        assert_streamed(ended, generation.trace.chunks)
        times = [chunk.at_s for chunk in generation.trace.chunks]
        assert times == sorted(times)

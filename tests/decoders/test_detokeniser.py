"""Text token by token against the text of the whole, for both families of vocabularies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.decoders.stopping import REPLACEMENT, Detokeniser, covering_count, decode, longest_partial
from tests.conftest import build_byte_tokenizer

PIECES = ("▁", "▁a", "▁ab", "a", "b", "n", "€", "\n", "▁▁")


def build_piece_tokenizer() -> Any:
    """SentencePiece style: blanks as ▁, the first one dropped, unknown characters as bytes."""
    from tokenizers import AddedToken, Tokenizer, decoders, models  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab |= {piece: 256 + index for index, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")  # noqa: S106


BYTES, PIECEWISE = build_byte_tokenizer(), build_piece_tokenizer()
TAIL_BYTES = (0xE2, 0x82, 0xAC, 0xC3, 0xA9, 0xF0, 0x9F, 0x98, 0x80, 0xFF, 97, 98)
IDS = st.lists(st.one_of(st.sampled_from(TAIL_BYTES), st.integers(256, 279)), max_size=12)
UNITS = (  # whole characters, in pieces or bytes; 265 is </s>
    *((256 + index,) for index in range(len(PIECES) + 1)),
    (0x0A,),
    (0xC3, 0xA9),
    (0xE2, 0x82, 0xAC),
    (0xF0, 0x9F, 0x98, 0x80),
)


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(ids=IDS)
def test_text_is_at_every_token_what_the_whole_decodes_to_up_to_unfinished_characters(
    ids: list[int],
) -> None:
    detokeniser = Detokeniser(BYTES)
    for n, token in enumerate(ids, start=1):
        detokeniser.push(token)
        whole = decode(BYTES, ids[:n])
        assert detokeniser.text == whole.rstrip(REPLACEMENT)
        assert detokeniser.certain[-1] == len(detokeniser.text)
        assert detokeniser.ends[-1] == len(whole)


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(units=st.lists(st.sampled_from(UNITS), max_size=8))
def test_blanks_and_bytes_of_a_piece_vocabulary_come_out_as_in_the_whole(
    units: list[tuple[int, ...]],
) -> None:
    detokeniser = Detokeniser(PIECEWISE)
    pushed: list[int] = []
    for unit in units:
        for token in unit:
            detokeniser.push(token)
        pushed += unit
        assert detokeniser.text == decode(PIECEWISE, pushed)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(ids=IDS, data=st.data())
def test_covering_count_is_the_fewest_tokens_that_begin_with_the_text(
    ids: list[int], data: st.DataObject
) -> None:
    whole = decode(BYTES, ids)
    text = whole[: data.draw(st.integers(0, len(whole)))]
    expected = next(n for n in range(len(ids) + 1) if decode(BYTES, ids[:n]).startswith(text))
    assert covering_count(BYTES, ids, text) == expected


@pytest.mark.parametrize(
    ("text", "stops", "n"),
    [
        ("xa", ("ab",), 1),
        ("xab", ("abc", "b1"), 2),
        ("xb", ("abc",), 0),
        ("a", (), 0),
        ("aa", ("aaa",), 2),
    ],
)
def test_the_longest_end_that_begins_a_stop_string_is_held(
    text: str, stops: tuple[str, ...], n: int
) -> None:
    assert longest_partial(text, stops) == n

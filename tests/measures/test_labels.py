"""Labels of texts: crude rules that must at least hold on plain cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.measures.labels import (
    ANSWER,
    INVALID,
    LONGER,
    OK,
    REFUSAL,
    USUAL,
    VALID,
    label_degeneration,
    label_json,
    label_lengths,
    label_refusal,
)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("I'm sorry, but that is not something I do.", REFUSAL),
        ("I can\N{RIGHT SINGLE QUOTATION MARK}t help with that", REFUSAL),
        ("I cannot help you.", REFUSAL),
        ("I don't have the ability to do that.", REFUSAL),
        ("As an AI, I would rather not.", REFUSAL),
        ("Use the kill command with the process number.", ANSWER),
        ("Canned fruit keeps for years.", ANSWER),
        ("", ANSWER),
        ("The answer is long. " * 20 + "I cannot say more.", ANSWER),
    ],
)
def test_refusals_are_told_by_their_opening(text: str, label: str) -> None:
    assert label_refusal(text) == label


@pytest.mark.parametrize("text", ['{"a": [1, null]}', " [1.5e3]\n", '"text"', "0"])
def test_json_is_valid_by_the_letter(text: str) -> None:
    assert label_json(text) == VALID


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"a": 1',
        "{'a': 1}",
        '{"a": 1,}',
        '{"a": NaN}',
        "[-Infinity]",
        '{"a": 1, "a": 2}',
        '```json\n{"a": 1}\n```',
        '{"a": 1} as asked',
        "[" * 100_000,
    ],
)
def test_json_beyond_the_letter_is_none(text: str) -> None:
    assert label_json(text) == INVALID


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (" \n", "empty"),
        ("caf\N{REPLACEMENT CHARACTER}", "replacement character"),
        ("Hello<|im_end|>", "special token"),
        ("Hello</s>", "special token"),
        ("Hello<end_of_turn>", "special token"),
        ("and so we went to the lake " * 4, "loop"),
        ("one two three. " * 5, "loop"),
        ("no " * 12, "loop"),
        ("a" * 80, "loop"),
        ("ha ha ha ha!", OK),
        ("and so we went to the lake " * 3, OK),
        ("a < b and c > d", OK),
        ("-" * 40, OK),
        ("x = [0] * 3\nfor i in range(3):\n    x[i] += 1", OK),
    ],
)
def test_degeneration_is_named(text: str, label: str) -> None:
    assert label_degeneration(text) == label


def test_length_drift_is_seen_from_either_arm() -> None:
    short, long = "x" * 30, "y" * 90
    assert label_lengths(short, long) == (USUAL, LONGER)
    assert label_lengths(long, short) == (LONGER, USUAL)
    assert label_lengths("x", "y" * 20) == (USUAL, USUAL)
    assert label_lengths("", "y" * 40) == (USUAL, LONGER)


@given(st.text())
def test_equal_texts_have_equal_labels(text: str) -> None:
    assert label_lengths(text, text) == (USUAL, USUAL)
    for label in (label_refusal, label_json, label_degeneration):
        assert label(text) == label(text)

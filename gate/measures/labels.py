"""What a text is, by rule: a refusal, valid JSON, degenerate. Equal texts, equal labels.

The rules are crude on purpose: both arms meet the same ones, so their errors only matter
where the texts differ, and those texts are shown.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

OK = "ok"
REFUSAL, ANSWER = "refusal", "answer"
VALID, INVALID = "valid JSON", "no valid JSON"
LONGER, USUAL = "more than twice as long as the other", "as long as the other"

_REFUSAL = re.compile(
    r"\b(?:i\W?m sorry|i apologi[sz]e|(?:can(?:no|')t|can not|won't|will not|unable to|not able to"
    r"|do(?:n't| not) have the (?:ability|capability)|not equipped to) ?"
    r"|against my (?:guidelines|policy|programming)|as an ai\b)",
    re.IGNORECASE,
)
_SPECIAL = re.compile(
    r"<\|[\w./-]{1,40}\|>|</?s>|<(?:bos|eos|pad|unk|mask)>|<(?:start|end)_of_\w+>|\[/?INST\]"
)
_REFUSAL_REACH = 200  # characters: a refusal comes first
_LOOP_WORDS, _LOOP_TIMES = 8, 4  # up to 8 words, four times in a row
_LOOP_LEAST = 18  # characters that only repeat, so that "ha ha ha ha" is no loop
_CHARACTER_LOOP = re.compile(r"(\S{1,8}?)\1{63,}")  # a ruled line is shorter
_LENGTH_FACTOR, _LENGTH_LEAST = 2, 40  # characters


def label_refusal(text: str) -> str:
    """Return whether the text begins as a refusal."""
    opening = text[:_REFUSAL_REACH].replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return REFUSAL if _REFUSAL.search(opening) else ANSWER


def label_json(text: str) -> str:
    """Return whether the whole text is one JSON value by the letter of RFC 8259.

    No text around it, no NaN or Infinity, no key twice.
    """
    try:
        json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_make_object)
    except (ValueError, RecursionError):
        return INVALID
    return VALID


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is no JSON"
    raise ValueError(msg)


def _make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        msg = "a key comes twice"
        raise ValueError(msg)
    return made


def label_degeneration(text: str) -> str:
    """Return what is broken about the text: empty, replacement character, special token, loop."""
    if not text.strip():
        return "empty"
    if "\N{REPLACEMENT CHARACTER}" in text:
        return "replacement character"
    if _SPECIAL.search(text):
        return "special token"
    return "loop" if has_loop(text) else OK


def has_loop(text: str) -> bool:
    """Tell whether up to 8 words come four times in a row, or a few characters 64 times."""
    words = text.split()
    periods = range(1, _LOOP_WORDS + 1)
    return any(_has_run(words, size) for size in periods) or bool(_CHARACTER_LOOP.search(text))


def _has_run(words: list[str], size: int) -> bool:
    """Tell whether enough words in a row equal those ``size`` before them."""
    run = n_characters = 0
    for before, word in zip(words, words[size:], strict=False):
        run, n_characters = (run + 1, n_characters + len(word) + 1) if word == before else (0, 0)
        if run >= size * (_LOOP_TIMES - 1) and n_characters >= _LOOP_LEAST:
            return True
    return False


def label_lengths(baseline: str, candidate: str) -> tuple[str, str]:
    """Return for each arm whether its text is more than twice as long as the other's.

    Differences below 40 characters are none.
    """
    return _label_length(baseline, candidate), _label_length(candidate, baseline)


def _label_length(text: str, other: str) -> str:
    drifted = len(text) > _LENGTH_FACTOR * len(other)
    return LONGER if drifted and len(text) - len(other) >= _LENGTH_LEAST else USUAL

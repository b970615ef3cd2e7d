"""Text that attacks whatever prints it, and decisions that carry it in every field."""

from __future__ import annotations

from enum import Enum
from html.parser import HTMLParser
from typing import TypeVar

import msgspec
from hypothesis import strategies as st

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-->]]></style></script><svg onload=alert(1)>",
    "{{7*7}} {% raw %} ${7*7} #{7*7}",
    "\x1b[31mred\x1b[0m \x9b2J \x07",
    "\u202eevil\u2066\u2069\u200b\u200d\ufeff",
    "a\x00b \ud800 \udfff \ufffe\uffff",
    "@team #1 GH-2 http://evil.example www.evil.example [x](javascript:alert(1)) `|` $x$\n# h\n- l",
    "x" * 1_000_000,
    "",
)
TEXTS = st.one_of(
    st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=()), max_size=60)
)
# Words with a fixed vocabulary: the records' own type keeps them clean.
FIXED = {"claim", "purpose", "rule", "direction", "half"}
# Mappings of words to counts, also where they are empty.
COUNTS = {"drop_reasons", "earlier_outcomes"}
VOID = {"meta", "input", "br", "img", "link", "hr"}

T = TypeVar("T")


def poison(value: T, text: str) -> T:
    """Return ``value`` with ``text`` in every free text field, keys of mappings included."""
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        new = {k: v if k in FIXED else poison(v, text) for k, v in fields.items()}
        counts = {k: {**fields[k], text: 1} for k in COUNTS & fields.keys()}
        return msgspec.structs.replace(value, **new | counts)
    if isinstance(value, str) and not isinstance(value, Enum):
        return text  # type: ignore[return-value]
    if isinstance(value, dict):
        clean = {key: poison(item, text) for key, item in value.items()}
        return {**clean, text: 1 if _holds_numbers(value) else text}  # type: ignore[return-value]
    if isinstance(value, tuple | list):
        return type(value)(poison(item, text) for item in value)
    return value


def _holds_numbers(value: dict[str, object]) -> bool:
    return bool(value) and all(isinstance(item, int) for item in value.values())


class Outline(HTMLParser):
    """The tags, attributes, ids and text of a page; ``broken`` lists tags closed out of order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.broken: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.broken += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.broken.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in {"script", "style"}:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    def values(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs in self.tags if attribute in attrs]

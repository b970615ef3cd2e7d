"""Text from models, prompts and configuration, made safe to look at.

A model can emit anything: terminal escapes, direction overrides, NUL, half a
surrogate pair, a megabyte on one line. Every surface passes such text through here
before its own escaping, so that what a reader sees is what was there.
"""

from __future__ import annotations

KEPT = "\n\t"
_SPACES = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})


def show_hidden(text: str, keep: str = KEPT) -> str:
    r"""Return ``text`` with every unprintable character written out as its ``\x..`` escape.

    Unprintable is what :meth:`str.isprintable` says: controls, format characters (bidi
    and zero-width), surrogates, unassigned code points and every space but U+0020.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)


def show_spaces(text: str) -> str:
    """Return ``text`` with its blanks, line breaks and tabs drawn, as a single token needs."""
    return text.translate(_SPACES)


def clip(text: str, limit: int) -> str:
    """Return the first ``limit`` characters of ``text``, and how many were left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def to_line(text: str, limit: int = 400) -> str:
    """Return ``text`` on one line, clipped, with everything hidden made visible."""
    return show_hidden(clip(text, limit), keep="")


def to_block(text: str, limit: int = 4000) -> str:
    """Return ``text`` with its line breaks and tabs, clipped, everything else made visible."""
    return show_hidden(clip(text, limit))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")

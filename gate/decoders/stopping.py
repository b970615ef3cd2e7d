"""When an output ends, and what of it is delivered.

Tokens are committed one at a time, however many a step accepted, so an EOS or a stop
string inside an accepted run ends the output exactly where plain decoding would have.

- EOS: any of ``eos_ids`` ends the output and is its last token.
- Stop strings: the match that is complete first ends the output; of several complete at
  the same token the one that starts earliest in the text. A match must start after the
  text of the first ``min_tokens`` tokens. Text is cut before it; ids are cut to the
  fewest tokens whose text covers the kept text, the rest is the tail.
- Length: ``max_tokens`` tokens.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from gate.records import Chunk, Finish, Request

REPLACEMENT = "�"


class Detokeniser:
    """Text of a growing output, token by token.

    Byte-level vocabularies split characters over tokens: replacement characters at the end
    are held back until a later token completes them or shows that nothing will.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._start = 0  # of the ids whose text is re-decoded as context
        self._read = 0  # ids whose text was whole
        self._base = 0  # length of their text
        self.text = ""  # what is certain
        self.certain: list[int] = []  # certain[i]: len(text) once token i was pushed
        self.ends: list[int] = []  # ends[i]: the same with what is held back

    def push(self, token_id: int) -> None:
        """Add a token; ``text`` grows by what became certain."""
        self._ids.append(token_id)
        known = decode(self._tokenizer, self._ids[self._start : self._read])
        fresh = decode(self._tokenizer, self._ids[self._start :])[len(known) :]
        certain = fresh.rstrip(REPLACEMENT)
        self.text += certain[len(self.text) - self._base :]
        self.certain.append(len(self.text))
        self.ends.append(self._base + len(fresh))
        if fresh and certain == fresh:
            self._start, self._read, self._base = self._read, len(self._ids), len(self.text)


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Text of token ids as users see it: special tokens left out, spaces as they are."""
    text: str = tokenizer.decode(
        list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return text


class Stopper:
    """Follows one output and says when it ends."""

    def __init__(self, request: Request, tokenizer: Any) -> None:
        self._request = request
        self._needs_text = bool(request.stop) or request.stream
        self._detokeniser = Detokeniser(tokenizer)
        self._tokenizer = tokenizer
        self._searched = 0
        self._longest = max((len(stop) for stop in request.stop), default=0)
        self._cut: int | None = None  # where the text ends, once a stop string matched
        self._sent_text = 0
        self._sent_ids = 0
        self.ids: list[int] = []
        self.finish: Finish | None = None

    def push(self, token_id: int) -> Finish | None:
        """Commit a token; returns why the output ends with it, or None."""
        self.ids.append(token_id)
        if token_id in self._request.eos_ids:
            self.finish = "eos"
        elif self._needs_text and self._completes_stop(token_id):
            self.finish = "stop"
        elif len(self.ids) >= self._request.max_tokens:
            self.finish = "length"
        return self.finish

    def _completes_stop(self, token_id: int) -> bool:
        self._detokeniser.push(token_id)
        text = self._detokeniser.text
        floor = self._floor()
        if floor is None or not self._request.stop:
            return False
        start = max(floor, self._searched - self._longest + 1, 0)
        found = [at for stop in self._request.stop if (at := text.find(stop, start)) >= 0]
        self._searched = len(text)
        self._cut = min(found) if found else None
        return bool(found)

    def _floor(self) -> int | None:
        """Where the text of the first ``min_tokens`` tokens ends; None: not that far yet."""
        n = self._request.min_tokens
        if n == 0:
            return 0
        return self._detokeniser.ends[n - 1] if len(self.ids) > n else None

    def result(self) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Return (text, ids, tail ids) of a finished output."""
        if self._cut is None:
            return decode(self._tokenizer, self.ids), tuple(self.ids), ()
        text = self._detokeniser.text[: self._cut]
        n = covering_count(self._tokenizer, self.ids, text)
        return text, tuple(self.ids[:n]), tuple(self.ids[n:])

    def stream(self, at_s: float) -> Chunk | None:
        """Return what may be sent now and was not sent before; None where there is nothing.

        Text that could still be the beginning of a stop string is held back, with its tokens.
        """
        if self.finish is None:
            text, ids = self._detokeniser.text, tuple(self.ids)
            safe, n = self._releasable()
        else:
            text, ids, _ = self.result()
            safe, n = len(text), len(ids)
        chunk = Chunk(
            text=text[self._sent_text : safe], token_ids=ids[self._sent_ids : n], at_s=at_s
        )
        self._sent_text, self._sent_ids = max(safe, self._sent_text), max(n, self._sent_ids)
        return chunk if chunk.text or chunk.token_ids else None

    def _releasable(self) -> tuple[int, int]:
        """How much text can no longer be cut, and the fewest tokens that cover it."""
        text, certain = self._detokeniser.text, self._detokeniser.certain
        limit = len(text) - longest_partial(text, self._request.stop)
        whole = bisect.bisect_right(certain, limit)
        if whole == 0 or certain[whole - 1] == 0:
            return 0, 0
        return certain[whole - 1], bisect.bisect_left(certain, certain[whole - 1]) + 1


def covering_count(tokenizer: Any, ids: Sequence[int], text: str) -> int:
    """Return the fewest leading tokens whose text begins with ``text``."""
    low, high = 0, len(ids)
    while low < high:  # decoded length grows with the number of tokens
        middle = (low + high) // 2
        if len(decode(tokenizer, ids[:middle])) >= len(text):
            high = middle
        else:
            low = middle + 1
    while low < len(ids) and not decode(tokenizer, ids[:low]).startswith(text):
        low += 1  # a character split over tokens
    return low


def longest_partial(text: str, stops: Sequence[str]) -> int:
    """Return the length of the longest end of ``text`` that begins a stop string."""
    longest = max((len(stop) for stop in stops), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stops):
            return length
    return 0

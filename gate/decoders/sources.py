"""Where guesses come from: what the model said at earlier rows, and what the text said before.

A law is a dict token -> probability of being chosen next. None of these is trusted with the
output; a wrong law costs rows, nothing else.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

Law = Mapping[int, float]
KEY_LENGTHS = (3, 2, 1)
"""Last tokens that key what a row said, the longest first."""
NEW_SHARE = 0.6
"""Weight of the newest row where a law is there already."""
KEPT = 12
"""Most tokens of a merged law."""
SHARPNESS = 1.3
"""Greedy: exponent on a row's probabilities; a row tells more surely what is chosen elsewhere."""
TAIL = 4.0
"""Mass behind the successors that are kept, in units of the last one's."""
LONGEST = 12
"""Longest suffix that is compared."""
MATCHES = 8
"""Most earlier places that speak for one row."""
SHARED_KEYS = 20_000
"""Most keys of rows that requests share; the ones said longest ago are forgotten first."""
SHARED_BYTES = 2048 * SHARED_KEYS
"""Most bytes of them: a key and a law of KEPT tokens in Python's own objects."""
MOST_COMMON = 40
"""Tokens that are guessed where nothing is known of what follows."""


def make_laws(tops: np.ndarray, temperature: float) -> np.ndarray:
    """Return (n, k) probabilities of each row's k best tokens from their logits, (n, k), nats.

    At temperature 0 the probability that the token is the best one: sharpened. Otherwise the
    tempered law.
    """
    scale = 1.0 / temperature if temperature else SHARPNESS
    weights = np.exp((tops - tops[:, :1]) * scale)
    laws: np.ndarray = weights / (weights.sum(-1, keepdims=True) + TAIL * weights[:, -1:])
    return laws


def merge(old: Law | None, new: Law, share: float = NEW_SHARE) -> Law:
    """Return a law with ``share`` of the new one, cut to its likeliest tokens."""
    if old is None:
        return new
    merged = {token: (1.0 - share) * p for token, p in old.items()}
    for token, p in new.items():
        merged[token] = merged.get(token, 0.0) + share * p
    if len(merged) <= KEPT:
        return merged
    return dict(sorted(merged.items(), key=_by_probability)[:KEPT])


def _by_probability(item: tuple[int, float]) -> float:
    return -item[1]


class Recycled:
    """The successors of every row verified, kept or rejected, by its last one to three tokens."""

    def __init__(self, most_keys: int = sys.maxsize) -> None:
        """most_keys: those said longest ago are forgotten where there are more."""
        self._laws: OrderedDict[tuple[int, ...], Law] = OrderedDict()
        self._most_keys = most_keys

    def add(self, context: tuple[int, ...], law: Law) -> None:
        """Remember what a row said. context: its last tokens, at most three."""
        laws = self._laws
        for at in range(len(context)):
            key = context[at:]
            laws[key] = merge(laws.get(key), law)
            laws.move_to_end(key)
        while len(laws) > self._most_keys:
            laws.popitem(last=False)

    def find(self, context: tuple[int, ...]) -> tuple[Law | None, Law | None, Law | None]:
        """Return the laws by the last three, two and one tokens."""
        find = self._laws.get
        return find(context[-3:]), find(context[-2:]), find(context[-1:])

    def find_one(self, token: int) -> Law | None:
        """Return the law behind one token."""
        return self._laws.get((token,))


class Common:
    """What rows say most often, whatever stands before: for tokens never seen."""

    def __init__(self) -> None:
        self._mass: dict[int, float] = defaultdict(float)
        self._n = 0
        self._law: Law | None = None

    def add(self, law: Law) -> None:
        """Take what one row said."""
        for token, p in law.items():
            self._mass[token] += p
        self._n += 1
        self._law = None

    def find(self) -> Law | None:
        """Return the mean law of all rows, of its likeliest tokens."""
        if self._law is None and self._n:
            best = sorted(self._mass.items(), key=_by_probability)[:MOST_COMMON]
            self._law = {token: p / self._n for token, p in best}
        return self._law


class Places:
    """What rejected rows said of positions still to come: the window's trajectories.

    A row behind a wrong guess stands at the right position, and the words that follow are
    often the same. As in a Jacobi iteration the newest word of each position counts.
    """

    def __init__(self) -> None:
        self._laws: dict[int, Law] = {}

    def find(self, position: int) -> Law | None:
        """Return the law at a position, counted over prompt and output."""
        return self._laws.get(position)

    def add(self, rows: Iterable[tuple[int, float, Law]]) -> None:
        """Take one step's rows: (position of the next token, weight, law)."""
        sums: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        totals: dict[int, float] = defaultdict(float)
        for position, weight, law in rows:
            totals[position] += weight
            found = sums[position]
            for token, p in law.items():
                found[token] += weight * p
        for position, found in sums.items():
            total = totals[position]
            law = {token: p / total for token, p in found.items()}
            self._laws[position] = merge(self._laws.get(position), law)

    def forget(self, before: int) -> None:
        """Drop positions that are decided."""
        for position in [one for one in self._laws if one < before]:
            del self._laws[position]


class Match(NamedTuple):
    """An earlier place whose last ``length`` tokens are those of a row."""

    place: int
    length: int


class History:
    """Prompt and output so far, and where each token and pair of tokens stood."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = defaultdict(list)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append committed tokens."""
        for token in tokens:
            place = len(self.tokens)
            if place:
                self._places[self.tokens[-1], token].append(place)
            self._places[token,].append(place)
            self.tokens.append(token)

    def match_end(self) -> list[Match]:
        """Return earlier places that end like the history, the longest suffix first."""
        end = len(self.tokens) - 1
        places = self._places[self.tokens[-1],][-5 * MATCHES : -1]
        found = [Match(place, self._measure(place, end)) for place in reversed(places)]
        return sorted(found, key=_by_length)

    def _measure(self, place: int, end: int) -> int:
        length, tokens = 1, self.tokens
        while length < min(LONGEST, place + 1) and tokens[place - length] == tokens[end - length]:
            length += 1
        return length

    def match_child(self, matches: Sequence[Match], last: int, token: int) -> list[Match]:
        """Return the places that end like a row with ``token`` behind it, longest suffix first.

        matches: those of the row, whose last token is ``last``.
        """
        tokens, end = self.tokens, len(self.tokens) - 1
        found = {
            place + 1: length + 1
            for place, length in matches
            if tokens[place + 1] == token and place + 1 < end
        }
        if len(found) < MATCHES // 2:
            for n, key in ((2, (last, token)), (1, (token,))):
                for place in reversed(self._places.get(key, ())[-MATCHES:]):
                    if place < end:
                        found.setdefault(place, n)
        return [Match(place, length) for place, length in found.items()]

    def read(self, matches: Sequence[Match]) -> tuple[Law | None, int]:
        """Return the law of what followed, and the longest suffix; longer and newer ones count."""
        if not matches:
            return None, 0
        longest = matches[0].length
        law: dict[int, float] = {}
        share, total = 1.0, 0.0
        for place, length in matches[:MATCHES]:
            weight = share * 2.0 ** (length - longest)
            token = self.tokens[place + 1]
            law[token] = law.get(token, 0.0) + weight
            total += weight
            share *= 0.8
        return {token: weight / total for token, weight in law.items()}, longest


def _by_length(match: Match) -> int:
    return -match.length

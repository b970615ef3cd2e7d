"""How far each source of guesses is believed: weights per situation, learned per request.

The law of the next token is the mixture sum_s w_s p_s(x) over the sources that have one. The
weights depend on the situation: the longest key that recycled rows answer to, and how long a
suffix of the text occurred before. They start from figures fitted on tuning prompts, and follow
what is accepted by expectation maximisation: each committed token is shared out over the
sources by w_s p_s(token) (Dempster, Laird, Rubin, 1977). A source that does not pay loses its
weight within a few tokens. One more weight stands for what no source knows, so that nodes of
which little is known do not look better than they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from gate.decoders.sources import Law

N_SOURCES = 7  # recycled rows by three, two, one tokens; n-grams; places; common; likes
PRIOR_TOKENS = 8.0
"""Committed tokens that the first weights are worth."""
MEMORY_TOKENS = 40.0
"""Most tokens that weights remember."""
SUFFIX_BUCKETS = (0, 1, 2, 4, 8)
"""Upper ends of the suffix lengths told apart; the last bucket is open."""
Situation = tuple[int, int]
Laws = Sequence[Law | None]

# Fitted on 995 positions of ten tuning prompts; by the longest key, or the suffix's bucket.
_BY_KEY = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.75), (0.0, 0.55, 0.3), (0.65, 0.15, 0.1))
_BY_SUFFIX = (0.0, 0.08, 0.15, 0.25, 0.5, 2.5)
_PLACES = (0.3, 0.1, 0.05, 0.03)
_COMMON = (0.2, 0.0, 0.0, 0.0)
_ALIKE = (0.4, 0.0, 0.0, 0.0)
_UNKNOWN = (0.3, 0.12, 0.06, 0.03)
UNKNOWN_CHANCE = 1e-3
"""Probability that ignorance gives any token."""


def _make_prior(key_length: int, bucket: int) -> list[float]:
    """Weights of the sources, and of ignorance last."""
    weights = [
        *_BY_KEY[key_length],
        _BY_SUFFIX[bucket],
        _PLACES[key_length],
        _COMMON[key_length],
        _ALIKE[key_length],
        _UNKNOWN[key_length],
    ]
    total = sum(weights)
    return [weight / total for weight in weights]


def find_situation(laws: Laws, suffix: int) -> Situation:
    """Return the longest key that answered (0 to 3), and the bucket of the suffix length."""
    key_length = 3 if laws[0] else 2 if laws[1] else 1 if laws[2] else 0
    bucket = sum(suffix > end for end in SUFFIX_BUCKETS)
    return key_length, bucket


class Mixture:
    """Weights of the sources in one request."""

    def __init__(self) -> None:
        self._counts = {
            (key_length, bucket): [PRIOR_TOKENS * w for w in _make_prior(key_length, bucket)]
            for key_length in range(len(_BY_KEY))
            for bucket in range(len(_BY_SUFFIX))
        }

    def mix(self, laws: Laws, situation: Situation) -> dict[int, float]:
        """Return the law of the next token; its mass is at most 1."""
        counts = self._counts[situation]
        present = [(w, law) for w, law in zip(counts, laws, strict=False) if law and w]
        total = counts[-1] + sum(w for w, _ in present)
        mixed: dict[int, float] = {}
        for weight, law in present:
            share = weight / total
            for token, p in law.items():
                mixed[token] = mixed.get(token, 0.0) + share * p
        return mixed

    def observe(self, laws: Laws, situation: Situation, token: int) -> None:
        """Learn from a committed token."""
        counts = self._counts[situation]
        shares = [
            w * law.get(token, 0.0) if law else 0.0 for w, law in zip(counts, laws, strict=False)
        ]
        shares.append(counts[-1] * UNKNOWN_CHANCE)
        total = sum(shares)
        if total <= 0.0:  # a weight that has faded away
            return
        n_tokens = sum(counts)
        fade = min(1.0, (MEMORY_TOKENS - 1.0) / n_tokens)
        for at, share in enumerate(shares):
            counts[at] = counts[at] * fade + share / total

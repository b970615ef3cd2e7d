"""What each decoder kind accepts in gate.toml. Free of torch, so that a plan is checked first."""

from __future__ import annotations

from gate.records import Noise, Record


class AutoregressiveOptions(Record, frozen=True, kw_only=True):
    """Plain decoding: one token per forward."""

    context: int | None = None  # tokens; None: the model's own


class LookaheadOptions(Record, frozen=True, kw_only=True):
    """Lookahead decoding (Fu et al., 2024, arXiv:2402.02057).

    window: columns of the Jacobi window. ngram: length N of the n-grams (N - 1 levels).
    guesses: candidate n-grams verified per step. prompt_ngrams: put the prompt's own
    n-grams into the pool.
    """

    window: int = 5
    ngram: int = 4
    guesses: int = 5
    prompt_ngrams: bool = False
    context: int | None = None

    def __post_init__(self) -> None:
        """Refuse parameters with which nothing could ever be guessed."""
        for key, least in (("window", 1), ("ngram", 2), ("guesses", 1)):
            value = getattr(self, key)
            if value < least:
                msg = f"{key} = {value} cannot guess anything; it must be at least {least}"
                raise ValueError(msg)


class PythonOptions(Record, frozen=True, kw_only=True):
    """A decoder of your own; every other key goes to its factory."""

    noise: Noise | None = None
    max_batch: int | None = None

    def __post_init__(self) -> None:
        """Refuse batches of nothing."""
        if self.max_batch is not None and self.max_batch < 1:
            msg = f"max_batch = {self.max_batch}; it must be at least 1"
            raise ValueError(msg)

"""What each decoder kind accepts in gate.toml. Free of torch, so that a plan is checked first."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal, get_args

from gate.records import Noise, Record

Source = Literal["window", "recycled", "ngrams"]
SOURCES: tuple[Source, ...] = get_args(Source)
MOST_ROWS = 1024
MOST_DRAFTED = 256
"""Most tokens of a draft, and of the n-gram that is looked up."""


class AutoregressiveOptions(Record, frozen=True, kw_only=True):
    """Plain decoding: one token per forward."""

    context: int | None = None  # tokens; None: the model's own


class LookaheadOptions(Record, frozen=True, kw_only=True):
    """Lookahead decoding (Fu et al., 2024, arXiv:2402.02057).

    window: columns of the Jacobi window. ngram: length N of the n-grams (N - 1 levels).
    guesses: candidate n-grams verified per step. prompt_ngrams: put the prompt's own
    n-grams into the pool.

    rows: most rows of a step; where given, the guesses are one tree grown to that budget
    (docs/lookahead.md), and the four keys above are not used. sources: where the tree's guesses
    come from. shared_noise: guesses of sampled requests use the sampler's noise. shared_rows: what
    recycled rows said is kept for later requests. step_cost: pairs (rows, cost), by which steps
    may take fewer rows; empty: always all.
    """

    window: int = 5
    ngram: int = 4
    guesses: int = 5
    prompt_ngrams: bool = False
    rows: int | None = None
    sources: tuple[Source, ...] = SOURCES
    shared_noise: bool = True
    shared_rows: bool = False
    step_cost: tuple[tuple[int, float], ...] = ()
    context: int | None = None

    def __post_init__(self) -> None:
        """Refuse parameters with which nothing could ever be guessed."""
        for key, least in (("window", 1), ("ngram", 2), ("guesses", 1)):
            value = getattr(self, key)
            if value < least:
                msg = f"{key} = {value} cannot guess anything; it must be at least {least}"
                raise ValueError(msg)
        if self.rows is not None:
            self._check_tree(self.rows)
        elif self._has_tree_keys:
            msg = (
                "sources, step_cost, shared_noise and shared_rows belong to the tree; set rows too"
            )
            raise ValueError(msg)

    def _check_tree(self, rows: int) -> None:
        if not 1 <= rows <= MOST_ROWS:
            msg = f"rows = {rows}; it must be from 1 (plain decoding) to {MOST_ROWS}"
            raise ValueError(msg)
        if (self.window, self.ngram, self.guesses, self.prompt_ngrams) != (5, 4, 5, False):
            msg = (
                "window, ngram, guesses and prompt_ngrams are not used beside rows; remove them, "
                "or remove rows"
            )
            raise ValueError(msg)
        if not self.sources or len(set(self.sources)) < len(self.sources):
            msg = f"sources = {list(self.sources)}; name at least one of {', '.join(SOURCES)}, once"
            raise ValueError(msg)
        if self.shared_rows and "recycled" not in self.sources:
            msg = "shared_rows = true shares recycled rows; add 'recycled' to sources"
            raise ValueError(msg)
        _check_costs(self.step_cost)

    @property
    def _has_tree_keys(self) -> bool:
        own = (self.sources, self.step_cost, self.shared_noise, self.shared_rows)
        return own != (SOURCES, (), True, False)

    @property
    def recycles(self) -> bool:
        """Whether guesses come from rows that were verified before."""
        return (self.rows or 1) > 1 and "recycled" in self.sources

    @property
    def step_rows(self) -> int:
        """Most rows of one request in a step."""
        return self.rows or 1 + (self.window + self.guesses) * (self.ngram - 1)


def _check_costs(points: tuple[tuple[int, float], ...]) -> None:
    """Rows must rise from 1, and no step may cost nothing."""
    rows = [n for n, _ in points]
    if points and (rows[0] != 1 or any(b <= a for a, b in pairwise(rows))):
        msg = f"step_cost has rows {rows}; they must begin with 1 and rise"
        raise ValueError(msg)
    wrong = next((cost for _, cost in points if not 0.0 < cost < math.inf), None)
    if wrong is not None:
        msg = f"step_cost holds the cost {wrong}; costs must be positive and finite"
        raise ValueError(msg)


class PromptLookupOptions(Record, frozen=True, kw_only=True):
    """Prompt lookup through transformers' generate.

    num_tokens: most tokens drafted in a step. max_ngram: longest end of the text that is looked up.
    """

    num_tokens: int = 10
    max_ngram: int = 2
    context: int | None = None

    def __post_init__(self) -> None:
        """Refuse parameters with which nothing could ever be drafted."""
        check_range("num_tokens", self.num_tokens, 1, MOST_DRAFTED)
        check_range("max_ngram", self.max_ngram, 1, MOST_DRAFTED)
        check_context(self.context)


class AssistedOptions(Record, frozen=True, kw_only=True):
    """Draft-model decoding through transformers' generate.

    draft: the draft model, named as model.id. num_tokens: most tokens drafted in a step, at first
    where the schedule is not constant. confidence: drafting stops behind a token that the draft
    model gives a lower probability; 0: never.
    """

    draft: str
    num_tokens: int = 5
    schedule: Literal["constant", "heuristic", "heuristic_transient"] = "constant"
    confidence: float = 0.0
    context: int | None = None

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        check_range("num_tokens", self.num_tokens, 1, MOST_DRAFTED)
        check_context(self.context)
        if not self.draft.strip():
            msg = "draft is blank; name a model folder or a hub id"
            raise ValueError(msg)
        if not 0 <= self.confidence < 1:
            msg = f"confidence = {self.confidence}; allowed is 0 to below 1"
            raise ValueError(msg)


def check_range(key: str, value: int, least: int, most: int) -> None:
    """Raise ValueError where a value lies outside its range."""
    if not least <= value <= most:
        msg = f"{key} = {value}; allowed is {least} to {most}"
        raise ValueError(msg)


def check_context(context: int | None) -> None:
    """Raise ValueError where no token would fit."""
    if context is not None and context < 1:
        msg = f"context = {context}; it must be at least 1"
        raise ValueError(msg)


class ReplayOptions(Record, frozen=True, kw_only=True):
    """Outputs of a run that is over: of a run's folder, or lm-eval's sample files."""

    run: str = ""
    arm: Literal["baseline", "candidate"] = "candidate"
    samples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Want one source."""
        if bool(self.run) == bool(self.samples):
            msg = "give run, the folder of a run, or samples, files that lm-eval wrote"
            raise ValueError(msg)


class RoutedOptions(Record, frozen=True, kw_only=True):
    """Request class -> the table of a decoder; ``default`` serves every other class."""

    routes: dict[str, dict[str, object]]


class PythonOptions(Record, frozen=True, kw_only=True):
    """A decoder of your own; every other key goes to its factory."""

    noise: Noise | None = None
    max_batch: int | None = None

    def __post_init__(self) -> None:
        """Refuse batches of nothing."""
        if self.max_batch is not None and self.max_batch < 1:
            msg = f"max_batch = {self.max_batch}; it must be at least 1"
            raise ValueError(msg)

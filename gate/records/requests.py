"""A prompt and how it is decoded."""

from __future__ import annotations

from typing import Literal

from gate.records.base import Record


class Sampling(Record, frozen=True, kw_only=True):
    """How the next token is drawn. Temperature 0 is greedy.

    Order of application: repetition penalty (prompt and output), presence and
    frequency penalty (output), logit bias, bad words, minimum tokens, temperature,
    top-k, top-p, min-p. ``seed`` None: the run's seed is used.
    """

    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bad_words: tuple[tuple[int, ...], ...] = ()  # token-id sequences
    logit_bias: dict[int, float] = {}  # token id -> added to its logit, nats
    seed: int | None = None


class Request(Record, frozen=True, kw_only=True):
    """A prompt with its decoding parameters.

    ``prompt`` is text, chat messages or token ids; decoders receive token ids.
    """

    id: str
    task: str
    request_class: str
    prompt: str | tuple[dict[str, str] | int, ...]
    max_tokens: int
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    eos_ids: tuple[int, ...] = ()
    sampling: Sampling = Sampling()
    n_logprobs: int | None = None  # None: none; 0: emitted token only; n: and the n likeliest
    logprobs_kind: Literal["raw", "processed"] = "raw"
    stream: bool = False
    response_format: dict[str, object] | None = None
    repeat: int = 0


def prompt_ids(request: Request) -> tuple[int, ...]:
    """Return the token ids of a tokenised prompt; text and messages have none."""
    return tuple(i for i in request.prompt if isinstance(i, int))


def needs_processing(request: Request) -> bool:
    """Whether anything but the raw argmax decides tokens of this request."""
    return bool(request.sampling.temperature) or processes_logits(request)


def processes_logits(request: Request) -> bool:
    """Whether anything but temperature and cuts stands between logits and token."""
    s = request.sampling
    return bool(
        s.repetition_penalty != 1.0
        or s.presence_penalty
        or s.frequency_penalty
        or s.bad_words
        or s.logit_bias
        or request.min_tokens
        or request.response_format
    )

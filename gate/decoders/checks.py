"""Whether a request can be served: one sentence why not, for that request alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gate.grammar import find_format_fault
from gate.records import Request, Sampling

LEAST_TEMPERATURE, MOST_TEMPERATURE = 1e-6, 1e6
"""Beyond these, logits over temperature leave float32."""
Check = tuple[bool, str]
"""(what must hold, the sentence where it does not)."""


def find_fault(
    request: Request, context: int, vocab_size: int, tokenizer: Any = None
) -> str | None:
    """Return what makes a request unservable, or None."""
    try:
        fault = _find_fault(request, context, vocab_size)
        return fault or find_format_fault(request.response_format, tokenizer)
    except TypeError as error:
        return f"a parameter is of the wrong type: {error}"


def _find_fault(request: Request, context: int, vocab_size: int) -> str | None:
    prompt: Any = request.prompt
    if isinstance(prompt, str) or not prompt or not isinstance(prompt[0], int):
        return "prompt must be a sequence of at least one token id"
    s = request.sampling
    ids = (*prompt, *request.eos_ids, *s.logit_bias, *(i for word in s.bad_words for i in word))
    checks = (
        *_check_lengths(request, len(prompt), context),
        *_check_law(s),
        (
            all(0 <= i < vocab_size for i in ids),
            f"a token id lies outside the vocabulary of {vocab_size}",
        ),
        (
            request.n_logprobs is None or 0 <= request.n_logprobs <= vocab_size,
            f"n_logprobs = {request.n_logprobs}; allowed is 0 to the vocabulary's {vocab_size}",
        ),
        (
            request.response_format is None or bool(request.eos_ids),
            "response_format needs an end-of-sequence id to end a complete output with",
        ),
    )
    return next((message for holds, message in checks if not holds), None)


def _check_lengths(request: Request, n_prompt: int, context: int) -> Iterator[Check]:
    yield request.max_tokens >= 1, f"max_tokens = {request.max_tokens}; it must be at least 1"
    yield (
        0 <= request.min_tokens <= request.max_tokens,
        f"min_tokens = {request.min_tokens}; allowed is 0 to max_tokens ({request.max_tokens})",
    )
    yield all(request.stop), "stop holds an empty string; leave it out"
    yield (
        n_prompt + request.max_tokens <= context,
        (
            f"a prompt of {n_prompt} tokens and max_tokens = {request.max_tokens} exceed the "
            f"context of {context} tokens; shorten one of them"
        ),
    )


def _check_law(s: Sampling) -> Iterator[Check]:
    yield (
        s.temperature == 0 or LEAST_TEMPERATURE <= s.temperature <= MOST_TEMPERATURE,
        (
            f"temperature = {s.temperature}; it must be 0 (greedy) or from "
            f"{LEAST_TEMPERATURE:g} to {MOST_TEMPERATURE:g}"
        ),
    )
    yield s.top_k >= 0, f"top_k = {s.top_k}; it must be 0 (off) or above"
    yield 0 < s.top_p <= 1, f"top_p = {s.top_p}; it must be above 0 and at most 1"
    yield 0 <= s.min_p <= 1, f"min_p = {s.min_p}; it must lie between 0 and 1"
    yield (
        _is_finite(s.repetition_penalty) and s.repetition_penalty > 0,
        f"repetition_penalty = {s.repetition_penalty}; it must be above 0",
    )
    yield (
        _is_finite(s.presence_penalty) and _is_finite(s.frequency_penalty),
        "presence_penalty and frequency_penalty must be finite numbers",
    )
    yield all(map(_is_finite, s.logit_bias.values())), "logit_bias must hold finite numbers"
    yield all(s.bad_words), "bad_words holds an empty sequence; leave it out"
    yield s.seed is None or type(s.seed) is int, f"seed = {s.seed!r}; it must be an integer"


def _is_finite(value: float) -> bool:
    return math.isfinite(value)

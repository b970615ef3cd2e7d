"""What a request asks of a decoder beyond greedy text, by name; what a decoder does not offer.

An arm of gate.toml may declare ``unsupported = ["grammar", ...]``. Conformance requests that ask
for it are then left out and the limitation is named; everything else still blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gate.errors import UsageError
from gate.records import Request

NEEDS: dict[str, Callable[[Request], bool]] = {
    "sampling": lambda r: r.sampling.temperature > 0,
    "top_k": lambda r: r.sampling.top_k > 0,
    "top_p": lambda r: r.sampling.top_p < 1,
    "min_p": lambda r: r.sampling.min_p > 0,
    "repetition_penalty": lambda r: r.sampling.repetition_penalty != 1,
    "presence_frequency": lambda r: bool(
        r.sampling.presence_penalty or r.sampling.frequency_penalty
    ),
    "logit_bias": lambda r: bool(r.sampling.logit_bias),
    "bad_words": lambda r: bool(r.sampling.bad_words),
    "min_tokens": lambda r: r.min_tokens > 0,
    "stop": lambda r: bool(r.stop),
    "logprobs": lambda r: r.n_logprobs is not None,
    "processed_logprobs": lambda r: r.n_logprobs is not None and r.logprobs_kind == "processed",
    "streaming": lambda r: r.stream,
    "grammar": lambda r: r.response_format is not None,
}
EXTRA_EOS = "extra_eos"
"""End-of-sequence ids beside the model's own."""
NAMES = (*NEEDS, EXTRA_EOS)


def find_needs(request: Request, own_eos: Iterable[int] = ()) -> set[str]:
    """Return the names of what a request asks for. own_eos: the model's own ids; empty: unknown."""
    found = {name for name, asks in NEEDS.items() if asks(request)}
    known = set(own_eos)
    return found | ({EXTRA_EOS} if known and set(request.eos_ids) - known else set())


def find_own_eos(requests: Iterable[Request]) -> set[int]:
    """Return the end-of-sequence ids that all requests share: the model's own."""
    sets = [set(request.eos_ids) for request in requests]
    return set.intersection(*sets) if sets else set()


def keep_offered(requests: Sequence[Request], unsupported: Iterable[str]) -> list[Request]:
    """Return the requests that ask for nothing unsupported, in order."""
    missing = set(unsupported)
    own = find_own_eos(requests)
    return [request for request in requests if not missing & find_needs(request, own)]


def read_unsupported(arm: str, value: object) -> tuple[str, ...]:
    """Check a declaration. Raises UsageError naming what is no such thing."""
    names = value if isinstance(value, list | tuple) else [value]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        msg = (
            f"{arm}.unsupported names {unknown[0]!r}; allowed is a list of {', '.join(NAMES)} "
            "(docs/decoders.md says what each means)"
        )
        raise UsageError(msg)
    return tuple(sorted(set(map(str, names))))


def check_offered(arm: str, unsupported: Iterable[str], requests: Iterable[Request]) -> None:
    """Raise UsageError where a task asks for what the arm's decoder does not offer."""
    missing = set(unsupported)
    for request in requests:
        needed = sorted(missing & find_needs(request))
        if needed:
            msg = (
                f"{arm}.unsupported names {needed[0]!r}, which task {request.task!r} asks for; "
                "leave the task out of the evalset, or use a decoder that offers it"
            )
            raise UsageError(msg)

"""Where single-line faults of the decoders are registered, and what they share.

A fault patches the decoders alone: the referee and the checks of ends have code of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from gate.decoders import decoding
from gate.decoders.output import Output
from gate.decoders.sampling import Sampler
from gate.records import Request

Patch = pytest.MonkeyPatch
Inject = Callable[[Patch], None]
Predicate = Callable[[Request], bool]
FAULTS: dict[str, Fault] = {}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """inject: puts the fault in. touches: requests it may change. shown_by: rows that must fail."""

    inject: Inject
    touches: Predicate
    shown_by: frozenset[str]


def fault(touches: Predicate, *shown_by: str) -> Callable[[Inject], Inject]:
    """Register a fault under its function's name."""

    def register(inject: Inject) -> Inject:
        FAULTS[inject.__name__] = Fault(
            inject=inject, touches=touches, shown_by=frozenset(shown_by)
        )
        return inject

    return register


def change_sampling(patch: Patch, **fields: Any) -> None:
    """Let the decoders sample with other parameters than the request's."""
    real = Sampler.__init__

    def init(self: Sampler, request: Request, *rest: Any, **more: Any) -> None:
        changed = msgspec.structs.replace(request.sampling, **fields)
        real(self, msgspec.structs.replace(request, sampling=changed), *rest, **more)

    patch.setattr(Sampler, "__init__", init)


def count_runs(patch: Patch) -> dict[int, int]:
    """Keep, by id of an output's sampler, how long the output was when the present run began."""
    starts: dict[int, int] = {}
    real = decoding.walk

    def walk(one: Output, *rest: Any) -> Any:
        starts[id(one._sampler)] = len(one.ids)
        return real(one, *rest)

    patch.setattr(decoding, "walk", walk)
    return starts


def always(request: Request) -> bool:  # noqa: ARG001
    """A fault that can touch any request."""
    return True


def has_penalty(request: Request) -> bool:
    s = request.sampling
    return bool(s.repetition_penalty != 1 or s.presence_penalty or s.frequency_penalty)


def is_processed(request: Request) -> bool:
    s = request.sampling
    more = (s.bad_words, s.logit_bias, request.min_tokens, request.response_format)
    return has_penalty(request) or any(more)


def is_sampled(request: Request) -> bool:
    return request.sampling.temperature > 0


def is_second_eos(request: Request) -> bool:
    return len(request.eos_ids) > 1

"""Faults of sampling in our own decoders, whose noise is keyed by position."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec
import torch

from gate.decoders.sampling import Sampler
from gate.faults.base import Changes, RunBatch, RunSampler, fault, thread
from gate.noise import stream_key
from gate.records import Request

KIND = "sampling"
CAUGHT = ("conformance", "token_defects", "token_unexplained", "flip_rate", "pit_distance")


def with_sampling(**fields: Any) -> type[RunSampler]:
    """Return a sampler that puts other parameters in the place of the request's."""

    class Other(RunSampler):
        def __init__(self, request: Request, *rest: Any, **more: Any) -> None:
            changed = msgspec.structs.replace(request.sampling, **fields)
            super().__init__(msgspec.structs.replace(request, sampling=changed), *rest, **more)

    return Other


def is_sampled(sampler: Sampler) -> bool:
    """Whether the request draws its tokens."""
    return sampler.request.sampling.temperature > 0


@fault(
    "argmax-at-temperature",
    kind=KIND,
    source=thread("lablup/mlxcel/issues/902"),
    expected=CAUGHT,
)
def argmax_at_temperature(_: float) -> Changes:
    """Drafts are verified against the argmax while the temperature is above 0."""

    class Argmax(RunSampler):
        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            if self.drafts or self.depth(output) > 0:
                return int(self.scores(logits, output).argmax())
            return super().choose(logits, output)

    return Changes(sampler=Argmax)


@fault(
    "gumbel-at-end",
    kind=KIND,
    source=thread("hao-ai-lab/LookaheadDecoding/pull/6"),
    expected=CAUGHT,
)
def gumbel_at_end(_: float) -> Changes:
    """Drafts are verified with the argmax; only the last token of a run is drawn."""

    class Greedy(RunSampler):
        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            best = int(self.scores(logits, output).argmax())
            return best if best in self.drafts else super().choose(logits, output)

    return Changes(sampler=Greedy)


@fault(
    "unfiltered-target",
    kind=KIND,
    source=thread("vllm-project/vllm/pull/10198"),
    expected=CAUGHT,
)
def unfiltered_target(_: float) -> Changes:
    """Temperature and cuts are not applied in the rows that verify drafts."""

    class Unfiltered(RunSampler):
        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            own = self.request
            if not (self.drafts and is_sampled(self)):
                return super().choose(logits, output)
            plain = msgspec.structs.replace(
                own.sampling, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0
            )
            self.request = msgspec.structs.replace(own, sampling=plain)
            token = super().choose(logits, output)
            self.request = own
            return token

    return Changes(sampler=Unfiltered)


@fault("seed-ignored", kind=KIND, source=thread("vllm-project/vllm/issues/6038"), expected=CAUGHT)
def seed_ignored(_: float) -> Changes:
    """The request's seed has no effect."""
    return Changes(sampler=with_sampling(seed=0))


@fault("engine-rng", kind=KIND, source=thread("NVIDIA/TensorRT-LLM/pull/17599"), expected=CAUGHT)
def engine_rng(_: float) -> Changes:
    """One generator serves the whole engine: an output depends on what ran before."""
    drawn = count(1)

    class Shared(RunSampler):
        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            self.key = stream_key(next(drawn), "engine", 0)
            return super().choose(logits, output)

    return Changes(sampler=Shared)


@fault("mixed-seeds", kind=KIND, source=thread("vllm-project/vllm/issues/9441"), expected=CAUGHT)
def mixed_seeds(_: float) -> Changes:
    """In a batch with seeded requests the unseeded are left at token 0."""

    class Mixed(RunBatch):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            drawn = [o.request.sampling for o in self._outputs if o.request.sampling.temperature]
            self.is_mixed = len({s.seed is None for s in drawn}) > 1
            for output in self._outputs:
                vars(output._sampler)["is_left"] = self.is_mixed

    class Left(RunSampler):
        is_left = False

        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            if self.is_left and is_sampled(self) and self.request.sampling.seed is None:
                return 0
            return super().choose(logits, output)

    return Changes(batch=Mixed, sampler=Left)


@fault("repeat-noise", kind=KIND, expected=CAUGHT)
def repeat_noise(_: float) -> Changes:
    """All repeats of a request share their noise: n completions are one."""

    class Repeating(RunSampler):
        def __init__(self, request: Request, *rest: Any, **more: Any) -> None:
            super().__init__(msgspec.structs.replace(request, repeat=0), *rest, **more)

    return Changes(sampler=Repeating)


@fault("top-p-ignored", kind=KIND, expected=CAUGHT)
def top_p_ignored(_: float) -> Changes:
    """top_p has no effect."""
    return Changes(sampler=with_sampling(top_p=1.0))


@fault("top-k-ignored", kind=KIND, expected=CAUGHT)
def top_k_ignored(_: float) -> Changes:
    """top_k has no effect."""
    return Changes(sampler=with_sampling(top_k=0))


@fault("min-p-ignored", kind=KIND, expected=CAUGHT)
def min_p_ignored(_: float) -> Changes:
    """min_p has no effect."""
    return Changes(sampler=with_sampling(min_p=0.0))


@fault(
    "temperature-twice",
    kind=KIND,
    strength=1.0,
    unit="place in a run from which the temperature applies twice",
    expected=CAUGHT,
)
def temperature_twice(strength: float) -> Changes:
    """The temperature is applied twice in the rows behind the first."""

    class Twice(RunSampler):
        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            temperature = self.request.sampling.temperature
            is_twice = temperature > 0 and self.depth(output) >= strength
            return super().choose(logits / temperature if is_twice else logits, output)

    return Changes(sampler=Twice)

"""Single-line faults put into our decoders, and which conformance requests must show each.

A fault patches the decoders alone: the referee and the checks of ends have code of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import torch

from gate.decoders import decoding, output, sampling
from gate.decoders.engine import Engine, SlotCache
from gate.decoders.output import Output
from gate.decoders.sampling import Sampler
from gate.decoders.stopping import Detokeniser, Stopper
from gate.grammar import Matcher
from gate.noise import stream_key
from gate.records import Request

Patch = pytest.MonkeyPatch
Inject = Callable[[Patch], None]
Predicate = Callable[[Request], bool]
FAULTS: dict[str, Fault] = {}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """inject: puts the fault in. shows: the requests that the fault can touch."""

    inject: Inject
    shows: Predicate


def fault(shows: Predicate) -> Callable[[Inject], Inject]:
    """Register a fault under its function's name."""

    def register(inject: Inject) -> Inject:
        FAULTS[inject.__name__] = Fault(inject=inject, shows=shows)
        return inject

    return register


def change_sampling(patch: Patch, **fields: Any) -> None:  # noqa: ANN401
    """Let the decoders sample with other parameters than the request's."""
    real = Sampler.__init__

    def init(self: Sampler, request: Request, *rest: Any, **more: Any) -> None:  # noqa: ANN401
        changed = msgspec.structs.replace(request.sampling, **fields)
        real(self, msgspec.structs.replace(request, sampling=changed), *rest, **more)

    patch.setattr(Sampler, "__init__", init)


def count_runs(patch: Patch) -> dict[int, int]:
    """Sampler id -> how long its output was when the present run began."""
    starts: dict[int, int] = {}
    real = decoding.walk

    def walk(one: Output, *rest: Any) -> Any:  # noqa: ANN401
        starts[id(one._sampler)] = len(one.ids)
        return real(one, *rest)

    patch.setattr(decoding, "walk", walk)
    return starts


# ------------------------------------------------------------ what a row has


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


# ---------------------------------------------------- sampling and processors


@fault(lambda r: r.sampling.presence_penalty != 0)
def presence_ignored(patch: Patch) -> None:
    change_sampling(patch, presence_penalty=0.0)


@fault(lambda r: r.sampling.frequency_penalty != 0)
def frequency_ignored(patch: Patch) -> None:
    change_sampling(patch, frequency_penalty=0.0)


@fault(lambda r: r.sampling.repetition_penalty != 1)
def repetition_forgets_the_prompt(patch: Patch) -> None:
    real = sampling.penalise
    patch.setattr(sampling, "penalise", lambda z, _, out, s: real(z, (), out, s))


@fault(lambda r: bool(r.sampling.logit_bias))
def bias_ignored(patch: Patch) -> None:
    change_sampling(patch, logit_bias={})


@fault(lambda r: any(len(word) > 1 for word in r.sampling.bad_words))
def long_bad_words_ignored(patch: Patch) -> None:
    real = sampling.mask_forbidden

    def mask(z: Any, prompt: Any, out: Any, request: Request) -> Any:  # noqa: ANN401
        short = tuple(word for word in request.sampling.bad_words if len(word) == 1)
        changed = msgspec.structs.replace(request.sampling, bad_words=short)
        return real(z, prompt, out, msgspec.structs.replace(request, sampling=changed))

    patch.setattr(sampling, "mask_forbidden", mask)


@fault(lambda r: r.min_tokens > 0 and is_second_eos(r))
def min_tokens_ignored(patch: Patch) -> None:
    real = Sampler.__init__

    def init(self: Sampler, request: Request, *rest: Any, **more: Any) -> None:  # noqa: ANN401
        real(self, msgspec.structs.replace(request, min_tokens=0), *rest, **more)

    patch.setattr(Sampler, "__init__", init)


@fault(is_processed)
def processors_on_row_zero_only(patch: Patch) -> None:
    starts, real = count_runs(patch), Sampler.scores

    def scores(self: Sampler, logits: torch.Tensor, out: Sequence[int]) -> torch.Tensor:
        if len(out) > starts.get(id(self), len(out)):
            return logits.float().clone()
        return real(self, logits, out)

    patch.setattr(Sampler, "scores", scores)


@fault(lambda r: has_penalty(r) or bool(r.sampling.bad_words))
def history_of_the_run_s_start(patch: Patch) -> None:
    starts, real = count_runs(patch), Sampler.scores

    def scores(self: Sampler, logits: torch.Tensor, out: Sequence[int]) -> torch.Tensor:
        real_min = self.request.min_tokens if len(out) < self.request.min_tokens else 0
        known = out[: starts.get(id(self), len(out))]
        if real_min or self._grammar:
            return real(self, logits, out)
        return real(self, logits, known)

    patch.setattr(Sampler, "scores", scores)


@fault(lambda r: is_sampled(r) and r.sampling.top_p < 1)
def top_p_ignored(patch: Patch) -> None:
    change_sampling(patch, top_p=1.0)


@fault(lambda r: is_sampled(r) and r.sampling.top_k > 0)
def top_k_ignored(patch: Patch) -> None:
    change_sampling(patch, top_k=0)


@fault(lambda r: is_sampled(r) and r.sampling.min_p > 0)
def min_p_ignored(patch: Patch) -> None:
    change_sampling(patch, min_p=0.0)


@fault(lambda r: bool(r.sampling.seed) and is_sampled(r) and r.sampling.top_k != 1)
def seed_ignored(patch: Patch) -> None:
    change_sampling(patch, seed=0)


@fault(lambda r: r.repeat > 0)
def repeats_share_their_noise(patch: Patch) -> None:
    patch.setattr(sampling, "stream_key", lambda seed, name, _: stream_key(seed, name, 0))


@fault(lambda r: is_sampled(r) and r.sampling.top_k != 1)
def argmax_behind_row_zero(patch: Patch) -> None:
    starts, real = count_runs(patch), Sampler.choose

    def choose(self: Sampler, logits: torch.Tensor, out: Sequence[int]) -> int:
        if len(out) > starts.get(id(self), len(out)):
            return int(self.scores(logits, out).argmax())
        return real(self, logits, out)

    patch.setattr(Sampler, "choose", choose)


@fault(lambda r: is_sampled(r) and r.sampling.seed is None)
def unseeded_rows_left_at_token_zero(patch: Patch) -> None:
    real = Sampler.choose

    def choose(self: Sampler, logits: torch.Tensor, out: Sequence[int]) -> int:
        return real(self, logits, out) if self.request.sampling.seed else 0

    patch.setattr(Sampler, "choose", choose)


# ----------------------------------------------------- ends, budget, streams


@fault(is_second_eos)
def only_the_first_eos_id_ends(patch: Patch) -> None:
    real = Stopper.__init__

    def init(self: Stopper, request: Request, tokenizer: Any) -> None:  # noqa: ANN401
        real(self, msgspec.structs.replace(request, eos_ids=request.eos_ids[:1]), tokenizer)

    patch.setattr(Stopper, "__init__", init)


def end_only_at_the_run_s_last_token(patch: Patch, kind: str) -> None:
    """Ends of one kind inside a run are overlooked."""
    real = decoding.walk

    def push(self: Stopper, token: int) -> Any:  # noqa: ANN401
        found = real_push(self, token)
        self.finish = None if found == kind else found
        return self.finish

    def walk(one: Output, *rest: Any) -> Any:  # noqa: ANN401
        path = real(one, *rest)
        last = one._stopper.ids.pop()
        if one._stopper.finish is None:
            real_push(one._stopper, last)
        else:
            one._stopper.ids.append(last)
        return path

    real_push = Stopper.push
    patch.setattr(Stopper, "push", push)
    patch.setattr(decoding, "walk", walk)


@fault(is_second_eos)
def eos_inside_a_run_overlooked(patch: Patch) -> None:
    end_only_at_the_run_s_last_token(patch, "eos")


@fault(lambda r: bool(r.stop))
def stop_inside_a_run_overlooked(patch: Patch) -> None:
    real = decoding.walk

    def walk(one: Output, *rest: Any) -> Any:  # noqa: ANN401
        one._stopper._searched_run = False
        path = real(one, *rest)
        return path

    def completes(self: Stopper, token: int) -> bool:
        self._detokeniser.push(token)
        ended = [stop for stop in self._request.stop if self._detokeniser.text.endswith(stop)]
        is_last = len(self.ids) in ends.get(id(self), ())
        return bool(ended) and is_last

    ends: dict[int, tuple[int, ...]] = {}
    patch.setattr(decoding, "walk", walk)
    patch.setattr(Stopper, "_completes_stop", completes)

"""Single-line faults in sampling, processors and constrained output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from gate.decoders import output, sampling
from gate.decoders.sampling import Sampler
from gate.noise import stream_key
from gate.records import Request
from tests.conformance_faults import (
    Patch,
    change_sampling,
    count_runs,
    fault,
    has_penalty,
    is_processed,
    is_sampled,
    is_second_eos,
)


@fault(lambda r: r.sampling.presence_penalty != 0)
def presence_ignored(patch: Patch) -> None:
    change_sampling(patch, presence_penalty=0.0)


@fault(lambda r: r.sampling.frequency_penalty != 0)
def frequency_ignored(patch: Patch) -> None:
    change_sampling(patch, frequency_penalty=0.0)


@fault(lambda r: r.sampling.repetition_penalty != 1)
def repetition_forgets_the_prompt(patch: Patch) -> None:
    real = sampling.penalise
    patch.setattr(sampling, "penalise", lambda z, ids, out, s: real(z, ids[:1], out, s))


@fault(lambda r: bool(r.sampling.logit_bias))
def bias_ignored(patch: Patch) -> None:
    change_sampling(patch, logit_bias={})


@fault(lambda r: any(len(word) > 1 for word in r.sampling.bad_words))
def long_bad_words_ignored(patch: Patch) -> None:
    real = sampling.mask_forbidden

    def mask(z: Any, prompt: Any, out: Any, request: Request) -> Any:
        short = tuple(word for word in request.sampling.bad_words if len(word) == 1)
        changed = msgspec.structs.replace(request.sampling, bad_words=short)
        return real(z, prompt, out, msgspec.structs.replace(request, sampling=changed))

    patch.setattr(sampling, "mask_forbidden", mask)


@fault(lambda r: r.min_tokens > 0 and is_second_eos(r))
def min_tokens_ignored(patch: Patch) -> None:
    real = Sampler.__init__

    def init(self: Sampler, request: Request, *rest: Any, **more: Any) -> None:
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
def history_of_the_runs_start(patch: Patch) -> None:
    starts, real = count_runs(patch), Sampler.scores

    def scores(self: Sampler, logits: torch.Tensor, out: Sequence[int]) -> torch.Tensor:
        is_other = self._grammar is not None or self.request.min_tokens > 0
        return real(self, logits, out if is_other else out[: starts.get(id(self), len(out))])

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
        own = self.request.sampling
        is_left = own.seed is None and own.temperature > 0
        return 0 if is_left else real(self, logits, out)

    patch.setattr(Sampler, "choose", choose)


@fault(lambda r: is_sampled(r) and r.sampling.top_k != 1)
def noise_of_the_whole_engine(patch: Patch) -> None:
    drawn = iter(range(1, 10**6))
    patch.setattr(sampling, "stream_key", lambda *_: stream_key(next(drawn), "engine", 0))


@fault(lambda r: r.response_format is not None, "json", "json-sampled", "json-stream")
def grammar_ignored(patch: Patch) -> None:
    patch.setattr(output, "open_matcher", lambda *_: None)


@fault(lambda r: r.response_format is not None)
def grammar_of_the_runs_start(patch: Patch) -> None:
    starts, real = count_runs(patch), Sampler.scores

    def scores(self: Sampler, logits: torch.Tensor, out: Sequence[int]) -> torch.Tensor:
        if self._grammar is None:
            return real(self, logits, out)
        return real(self, logits, out[: starts.get(id(self), len(out))])

    patch.setattr(Sampler, "scores", scores)

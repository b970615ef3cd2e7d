"""Faults of logits processors, constrained output and reported log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from gate.faults.base import Changes, RunOutput, RunSampler, fault, thread
from gate.faults.sampled import with_sampling
from gate.grammar import GrammarError
from gate.records import Generation, Request, TokenLogprob

KIND = "processors"
CAUGHT = ("conformance", "token_defects", "termination")


def has_penalty(request: Request) -> bool:
    """Whether tokens that occurred before count."""
    s = request.sampling
    return bool(s.repetition_penalty != 1.0 or s.presence_penalty or s.frequency_penalty)


def with_request(**fields: Any) -> type[RunSampler]:
    """Return a sampler that sees another request."""

    class Other(RunSampler):
        def __init__(self, request: Request, *rest: Any, **more: Any) -> None:
            super().__init__(msgspec.structs.replace(request, **fields), *rest, **more)

    return Other


@fault(
    "min-tokens-ignored",
    kind="stopping",
    source=thread("vllm-project/vllm/pull/26317"),
    expected=CAUGHT,
)
def min_tokens_ignored(_: float) -> Changes:
    """The end of the sequence is not masked before the minimum of tokens in the verify rows."""

    class Unmasked(RunSampler):
        def scores(self, logits: torch.Tensor, output: Sequence[int]) -> torch.Tensor:
            own = self.request
            if self.depth(output) or self.drafts:
                self.request = msgspec.structs.replace(own, min_tokens=0)
            found = super().scores(logits, output)
            self.request = own
            return found

    return Changes(sampler=Unmasked)


@fault(
    "penalty-ignored",
    kind=KIND,
    source=thread("NVIDIA/TensorRT-LLM/pull/17701"),
    expected=CAUGHT,
)
def penalty_ignored(_: float) -> Changes:
    """Repetition, presence and frequency penalties have no effect."""
    off = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    return Changes(sampler=with_sampling(**off))


@fault("presence-ignored", kind=KIND, expected=CAUGHT)
def presence_ignored(_: float) -> Changes:
    """The presence penalty has no effect."""
    return Changes(sampler=with_sampling(presence_penalty=0.0))


@fault(
    "penalty-rejected",
    kind=KIND,
    source=thread("osaurus-ai/vmlx-swift/issues/357"),
    expected=CAUGHT,
)
def penalty_rejected(_: float) -> Changes:
    """The penalties' state takes rejected drafts in, and accepted ones twice."""

    class Counting(RunSampler):
        seen: tuple[int, ...] = ()

        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            token = super().choose(logits, output)
            self.seen += tuple(self.drafts)
            return token

        def scores(self, logits: torch.Tensor, output: Sequence[int]) -> torch.Tensor:
            is_alone = self._grammar is None and not self.request.min_tokens
            more = self.seen if has_penalty(self.request) and is_alone else ()
            return super().scores(logits, [*output, *more])

    return Changes(sampler=Counting)


@fault("penalty-run-start", kind=KIND, expected=CAUGHT)
def penalty_run_start(_: float) -> Changes:
    """All rows of a run are penalised by the history at its start."""

    class Stale(RunSampler):
        def scores(self, logits: torch.Tensor, output: Sequence[int]) -> torch.Tensor:
            is_alone = self._grammar is None and not self.request.min_tokens
            return super().scores(logits, output[: self.run_start] if is_alone else output)

    return Changes(sampler=Stale)


@fault(
    "row-zero-only",
    kind=KIND,
    source=thread("vllm-project/vllm/issues/9423"),
    expected=CAUGHT,
)
def row_zero_only(_: float) -> Changes:
    """Processors are applied to the first row of a step only."""

    class FirstRow(RunSampler):
        def scores(self, logits: torch.Tensor, output: Sequence[int]) -> torch.Tensor:
            is_first = self.depth(output) == 0
            return super().scores(logits, output) if is_first else logits.float().clone()

    return Changes(sampler=FirstRow)


@fault("bias-ignored", kind=KIND, expected=CAUGHT)
def bias_ignored(_: float) -> Changes:
    """logit_bias has no effect."""
    return Changes(sampler=with_sampling(logit_bias={}))


@fault("bad-words-ignored", kind=KIND, expected=CAUGHT)
def bad_words_ignored(_: float) -> Changes:
    """Bad words are not kept out."""
    return Changes(sampler=with_sampling(bad_words=()))


@fault(
    "grammar-ignored",
    kind=KIND,
    source=thread("InternLM/lmdeploy/issues/4551"),
    expected=CAUGHT,
)
def grammar_ignored(_: float) -> Changes:
    """Constrained output is not enforced."""

    class Free(RunSampler):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more | {"grammar": None})

    return Changes(sampler=Free)


@fault(
    "grammar-not-rolled-back",
    kind=KIND,
    source=thread("vllm-project/vllm/issues/15554"),
    expected=CAUGHT,
)
def grammar_not_rolled_back(_: float) -> Changes:
    """The grammar's state advances over drafts that are then rejected."""

    class Advanced(RunSampler):
        stale: tuple[int, ...] = ()

        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            token = super().choose(logits, output)
            self.stale = tuple(d for d in self.drafts if d != token)[:1]
            return token

        def scores(self, logits: torch.Tensor, output: Sequence[int]) -> torch.Tensor:
            if self._grammar is None:
                return super().scores(logits, output)
            try:
                return super().scores(logits, [*output, *self.stale])
            except GrammarError:
                return super().scores(logits, output)

    return Changes(sampler=Advanced)


@fault("grammar-run-start", kind=KIND, expected=CAUGHT)
def grammar_run_start(_: float) -> Changes:
    """All rows of a run are masked by the grammar's state at its start."""

    class Stale(RunSampler):
        def scores(self, logits: torch.Tensor, output: Sequence[int]) -> torch.Tensor:
            is_free = self._grammar is None
            return super().scores(logits, output if is_free else output[: self.run_start])

    return Changes(sampler=Stale)


def reporting(change: Callable[[TokenLogprob, bool], TokenLogprob]) -> type[RunOutput]:
    """Return an output that changes log-probabilities: (entry, is behind a run's first token)."""

    class Changed(RunOutput):
        def _report(self, logits: torch.Tensor, token: int) -> None:
            n = len(self._logprobs)
            super()._report(logits, token)
            if len(self._logprobs) > n:
                is_behind = self.sampler.depth(self.ids) > 0
                self._logprobs[-1] = change(self._logprobs[-1], is_behind)

    return Changed


@fault(
    "logprob-zero",
    kind=KIND,
    source=thread("vllm-project/vllm/issues/17876"),
    expected=CAUGHT,
)
def logprob_zero(_: float) -> Changes:
    """Accepted tokens report a log-probability of 0."""

    def change(entry: TokenLogprob, is_behind: bool) -> TokenLogprob:  # noqa: FBT001
        return msgspec.structs.replace(entry, logprob=0.0) if is_behind else entry

    return Changes(output=reporting(change))


@fault(
    "logprob-shift",
    kind=KIND,
    strength=0.05,
    unit="nats by which reported log-probabilities are too high",
    expected=CAUGHT,
)
def logprob_shift(strength: float) -> Changes:
    """Reported log-probabilities are a little too high."""

    def change(entry: TokenLogprob, is_behind: bool) -> TokenLogprob:  # noqa: FBT001, ARG001
        return msgspec.structs.replace(entry, logprob=entry.logprob + strength)

    return Changes(output=reporting(change))


@fault("logprobs-short", kind=KIND, expected=CAUGHT)
def logprobs_short(_: float) -> Changes:
    """A run reports the log-probability of its last token only."""

    class OnePerRun(RunOutput):
        def generation(self, peak_memory_bytes: int) -> Generation:
            found = super().generation(peak_memory_bytes)
            steps, kept, at = self._steps, [], 0
            for step in steps:
                at += step.n_emitted
                kept += list((found.logprobs or ())[at - 1 : at])
            return msgspec.structs.replace(found, logprobs=tuple(kept) or None)

    return Changes(output=OnePerRun)

"""One output as it grows: sampler, stopper, log-probabilities, trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from gate.decoders.base import Tap
from gate.decoders.sampling import Law, NothingAllowedError, Sampler
from gate.decoders.stopping import Stopper
from gate.grammar import GrammarError, open_matcher
from gate.records import Chunk, Generation, Request, Step, TokenLogprob, Trace, Usage, prompt_ids


class Output:
    """State of one request between prefill and its last token."""

    sampler_class: type[Sampler] = Sampler  # the fault catalogue puts others in these places
    stopper_class: type[Stopper] = Stopper

    def __init__(self, request: Request, tokenizer: Any, tap: Tap | None) -> None:
        """``request.prompt`` holds token ids."""
        self.request = request
        self.prompt: tuple[int, ...] = prompt_ids(request)
        self._sampler = self.sampler_class(
            request, self.prompt, seed=0, grammar=open_matcher(request, tokenizer)
        )
        self._stopper = self.stopper_class(request, tokenizer)
        self._tap = tap
        self._steps: list[Step] = []
        self._chunks: list[Chunk] = []
        self._logprobs: list[TokenLogprob] = []
        self._ttft_s: float | None = None
        self._total_s: float | None = None
        self._error: str | None = None

    @property
    def ids(self) -> list[int]:
        """Tokens committed so far."""
        return self._stopper.ids

    @property
    def last(self) -> int:
        """The last committed token."""
        return self._stopper.ids[-1]

    @property
    def n_left(self) -> int:
        """Tokens that may still be committed."""
        return self.request.max_tokens - len(self.ids)

    @property
    def is_finished(self) -> bool:
        """Whether the output has ended, well or not."""
        return self._stopper.finish is not None or self._error is not None

    def take(self, logits: torch.Tensor, best: int, peak: float) -> int:
        """Commit the next token from the logits row at its position; returns it, or -1 on failure.

        logits: (vocab,), nats. best, peak: its argmax and maximum, found for the whole batch.
        """
        if not math.isfinite(peak):
            self._error = f"the model's logits are not finite at output position {len(self.ids)}"
            return -1
        try:
            token = best if self._sampler.is_plain else self._sampler.choose(logits, self.ids)
        except (NothingAllowedError, GrammarError) as error:
            self._error = str(error)
            return -1
        self.commit(logits, token)
        return token

    def commit(self, logits: torch.Tensor, token: int) -> None:
        """Make a token the output's next; ``logits``, (vocab,), are those it was chosen from."""
        if self._tap is not None or self.request.n_logprobs is not None:
            self._report(logits, token)
        self._stopper.push(token)

    def accept(self, logits: torch.Tensor, token: int) -> None:
        """Make a token that another's sampler chose the output's next, or fail the output.

        logits: (vocab,), nats, those the token was chosen from.
        """
        if not math.isfinite(float(logits.max())):
            self._error = f"the model's logits are not finite at output position {len(self.ids)}"
            return
        try:
            is_allowed = self._sampler.is_plain or self._sampler.allows(logits, self.ids)
        except GrammarError as error:
            self._error = str(error)
            return
        if not is_allowed:
            at = len(self.ids)
            self._error = (
                f"the sampling parameters leave no token to choose at output position {at}"
            )
            return
        self.commit(logits, token)

    def _report(self, logits: torch.Tensor, token: int) -> None:
        law = self._sampler.law(logits, self.ids)
        if self._tap is not None:
            self._tap(self.request, len(self.ids), law)
        if self.request.n_logprobs is not None:
            self._logprobs.append(token_logprob(law, token, self.request))

    def end_step(self, step: Step, now_s: float) -> None:
        """Record a step that ended ``now_s`` seconds after the request was sent."""
        self._steps.append(step)
        if self._ttft_s is None:
            self._ttft_s = now_s
        if self.is_finished:
            self._total_s = now_s
        if self.request.stream and self._error is None:
            chunk = self._stopper.stream(now_s)
            self._chunks += [chunk] if chunk else []

    def generation(self, peak_memory_bytes: int) -> Generation:
        """Return the finished output."""
        trace = self._trace(peak_memory_bytes)
        if self._error is not None or self._stopper.finish is None:
            return Generation(
                request_id=self.request.id,
                repeat=self.request.repeat,
                finish="error",
                error=self._error or "the output did not end",
                trace=trace,
            )
        text, ids, tail = self._stopper.result()
        return Generation(
            request_id=self.request.id,
            repeat=self.request.repeat,
            text=text,
            token_ids=ids,
            tail_ids=tail,
            logprobs=tuple(self._logprobs[: len(ids)]) if self._logprobs else None,
            logprobs_kind=self.request.logprobs_kind,
            finish=self._stopper.finish,
            usage=Usage(n_prompt=len(self.prompt), n_output=len(ids)),
            trace=trace,
        )

    def _trace(self, peak_memory_bytes: int) -> Trace:
        return Trace(
            ttft_s=self._ttft_s,
            total_s=self._total_s,
            device_s=sum(step.wall_s for step in self._steps),
            peak_memory_bytes=peak_memory_bytes,
            steps=tuple(self._steps),
            chunks=tuple(self._chunks),
        )


def token_logprob(law: Law, token: int, request: Request) -> TokenLogprob:
    """Log-probability of an emitted token and of the likeliest ones, raw or processed as asked."""
    is_processed = request.logprobs_kind == "processed"
    row = law.processed if is_processed else law.logits.log_softmax(-1)
    top: Sequence[tuple[int, float]] = ()
    if request.n_logprobs:
        values, ids = row.topk(request.n_logprobs)
        pairs = zip(ids.tolist(), values.tolist(), strict=True)
        top = tuple((token_id, value) for token_id, value in pairs if value > -math.inf)
    return TokenLogprob(token_id=token, logprob=float(row[token]), top=tuple(top))

"""Watching transformers' ``generate`` from outside: what each forward drafted and committed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria
from transformers.utils import logging as hf_logging

from gate.decoders.output import Output
from gate.records import Step


class Watch(StoppingCriteria):
    """Follows one ``generate`` call: commits each step's tokens, and ends it where a request ends.

    Called by transformers after every step, with forward hooks around the model's own call.
    """

    def __init__(self, output: Output, device: torch.device) -> None:
        """``output``: the request's, still empty."""
        self._output = output
        self._device = device
        self._began = self._step_began = self._now()
        self._rows: list[int] = []
        self._n_forwards = 0
        self._logits: torch.Tensor | None = None
        self._drafted_at = 0.0
        self.draft_s: float | None = None  # of the drafter's own clock, where it has one

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def before_forward(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:  # noqa: ARG002
        """Note the rows of a forward: the last token and the drafts (first of all, the prompt)."""
        self._rows = kwargs["input_ids"][0].tolist()
        self._drafted_at = self._now()

    def after_forward(self, module: Any, args: Any, kwargs: Any, result: Any) -> None:  # noqa: ARG002
        """Keep the logits of a forward: (n_rows, vocab), or fewer of the last rows."""
        self._logits = result.logits[0].float().clone()  # transformers processes them in place

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # noqa: ARG002
        """Commit what the step emitted; (1,) bool, whether the output has ended."""
        is_first = self._n_forwards == 0
        drafts = self._rows[len(self._output.prompt) if is_first else 1 :]
        n_known = len(self._output.prompt) + len(self._output.ids)
        run = input_ids[0, n_known:].tolist()
        self._commit(run, drafts, is_first=is_first)
        self._n_forwards += 1
        return torch.tensor([self._output.is_finished], device=input_ids.device)

    def _commit(self, run: Sequence[int], drafts: Sequence[int], *, is_first: bool) -> None:
        logits = self._logits
        if logits is None:
            msg = "transformers emitted tokens without a forward of the model"
            raise RuntimeError(msg)
        rows = logits[-len(drafts) - 1 :]
        n_emitted = 0
        for token, row in zip(run, rows, strict=False):
            self._output.accept(row, token)
            n_emitted += 1
            if self._output.is_finished:
                break
        ended = self._now()
        lookup = 0.0 if is_first else self._drafted_at - self._step_began
        step = Step(
            n_rows=len(self._rows),
            n_drafted=len(drafts),
            n_accepted=count_equal(run[:n_emitted], drafts),
            n_emitted=n_emitted,
            draft_s=lookup if self.draft_s is None else self.draft_s,
            wall_s=ended - self._step_began,
        )
        self._output.end_step(step, ended - self._began)
        self._step_began = ended
        self.draft_s = None if self.draft_s is None else 0.0


def count_equal(run: Sequence[int], drafts: Sequence[int]) -> int:
    """Return how many tokens at the head of a run are the drafts."""
    pairs = enumerate(zip(run, drafts, strict=False))
    return next((n for n, (one, draft) in pairs if one != draft), min(len(run), len(drafts)))


@contextmanager
def watched(model: Any, watch: Watch) -> Iterator[None]:
    """Let a watch see every forward, and keep the model's own generation defaults out."""
    hooks = (
        model.register_forward_pre_hook(watch.before_forward, with_kwargs=True),
        model.register_forward_hook(watch.after_forward, with_kwargs=True),
    )
    defaults, model.generation_config = model.generation_config, GenerationConfig()
    level = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()  # its drafting warns of arguments that it passes itself
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        model.generation_config = defaults
        for hook in hooks:
            hook.remove()

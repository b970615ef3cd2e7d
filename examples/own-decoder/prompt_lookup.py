"""A decoder of your own: greedy prompt-lookup decoding on a transformers model.

gate.toml names it as ``kind = "python"``, ``target = "prompt_lookup:make"``. The factory
gets the loaded model (``.model``, ``.tokenizer``, ``.device``, ``.dtype``) and the options
of the arm's table; it returns an object with ``generate``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import DynamicCache

from gate.records import Generation, Request, Step, Trace


class PromptLookup:
    """Guesses that what followed the last token before follows it again, and verifies."""

    def __init__(self, model: Any, draft_length: int) -> None:
        self._model = model.model
        self._tokenizer = model.tokenizer
        self._draft_length = draft_length

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Serve the requests one after the other."""
        for request in requests:
            yield self._generate_one(request)

    @torch.inference_mode()
    def _generate_one(self, request: Request) -> Generation:
        began = time.perf_counter()
        cache = DynamicCache()
        ids, output, steps = list(request.prompt), [], []
        logits = self._forward(ids, cache)[-1:]
        draft: list[int] = []
        ttft = None
        while True:
            run, n_accepted = self.verify(logits, draft)
            kept, finish = self.cut(request, output, run)
            output += kept
            steps.append(
                Step(
                    n_rows=1 + len(draft) if steps else len(request.prompt),
                    n_drafted=len(draft),
                    n_accepted=min(n_accepted, len(kept)),
                    n_emitted=len(kept),
                )
            )
            ttft = ttft or time.perf_counter() - began
            if finish:
                return self._finish(request, output, finish, steps, ttft, began)
            ids += kept
            cache.crop(-(len(draft) - n_accepted)) if len(draft) > n_accepted else None
            draft = self.draft(ids)[: request.max_tokens - len(output) - 1]
            logits = self._forward([ids[-1], *draft], cache)

    def _forward(self, ids: Sequence[int], cache: DynamicCache) -> torch.Tensor:
        tokens = torch.tensor([list(ids)], device=self._model.device)
        # before transformers 5.24 the argument is named past_key_values
        return self._model(input_ids=tokens, cache=cache, use_cache=True).logits[0].float()

    def draft(self, ids: list[int]) -> list[int]:
        """What followed the last token where it occurred before."""
        for at in range(len(ids) - 2, -1, -1):
            if ids[at] == ids[-1]:
                return ids[at + 1 : at + 1 + self._draft_length]
        return []

    def verify(self, logits: torch.Tensor, draft: list[int]) -> tuple[list[int], int]:
        """Return the run to commit and how many of it are accepted drafts."""
        run: list[int] = []
        for row, token in zip(logits, draft, strict=False):
            if not self.accepts(row, token):
                break
            run.append(token)
        return [*run, int(logits[len(run)].argmax())], len(run)

    def accepts(self, row: torch.Tensor, token: int) -> bool:
        """Accept a draft only where it is the model's own choice."""
        return token == int(row.argmax())

    def cut(
        self, request: Request, output: list[int], run: list[int]
    ) -> tuple[list[int], str | None]:
        """Commit a run token by token, so that it ends where plain decoding would have."""
        kept: list[int] = []
        for token in run:
            kept.append(token)
            so_far = [*output, *kept]
            if token in request.eos_ids:
                return kept, "eos"
            text = self._tokenizer.decode(so_far, skip_special_tokens=True)
            if any(stop in text for stop in request.stop):
                return kept, "stop"
            if len(so_far) == request.max_tokens:
                return kept, "length"
        return kept, None

    def _finish(
        self,
        request: Request,
        output: list[int],
        finish: Any,
        steps: list[Step],
        ttft: float,
        began: float,
    ) -> Generation:
        """The text is left empty: the gate detokenises it, and cuts text and ids at the stop."""
        trace = Trace(ttft_s=ttft, total_s=time.perf_counter() - began, steps=tuple(steps))
        return Generation(
            request_id=request.id,
            repeat=request.repeat,
            token_ids=tuple(output),
            finish=finish,
            trace=trace,
        )


def make(model: Any, draft_length: int = 4) -> PromptLookup:
    """Make the decoder; keyword arguments are the options of the arm's table."""
    return PromptLookup(model, draft_length)

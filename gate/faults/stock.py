"""Prompt-lookup decoding on the stock model and cache, and the faults that need them.

A sliding window, which our engine refuses, and a baseline that is not what it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache, MistralConfig, MistralForCausalLM

from gate.decoders.stopping import Stopper
from gate.faults.base import Changes, fault, thread
from gate.models import cache_argument
from gate.records import Generation, Request, Step, Trace, Usage, prompt_ids

if TYPE_CHECKING:
    from gate.models import LoadedModel

WINDOW = 24  # tokens that a row of the sliding model sees
DRAFT_LENGTH = 4


class StockDecoder:
    """Greedy decoding through transformers' own cache; drafts what followed the last token."""

    noise = "position_keyed"
    max_batch = None

    def __init__(self, model: LoadedModel, draft_length: int = DRAFT_LENGTH) -> None:
        """``draft_length`` 0: plain decoding."""
        self._model = model
        self._draft_length = draft_length

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Serve the requests one after the other."""
        for request in requests:
            yield self._serve(request)

    @torch.inference_mode()
    def _serve(self, request: Request) -> Generation:
        stopper = Stopper(request, self._model.tokenizer)
        cache = self.open_cache()
        ids, steps = list(prompt_ids(request)), []
        draft: list[int] = []
        logits = self._forward(ids, cache)[-1:]
        while stopper.finish is None:
            run = self.verify(logits, draft, ids)
            n = next((i for i, token in enumerate(run, 1) if stopper.push(token)), len(run))
            n_accepted = min(len(run) - 1, n)
            steps.append(
                Step(
                    n_rows=len(logits),
                    n_drafted=len(draft),
                    n_accepted=n_accepted,
                    n_emitted=n,
                )
            )
            ids += run[:n]
            self.roll_back(cache, len(draft) - (len(run) - 1))
            draft = self._look_up(ids)[: request.max_tokens - len(stopper.ids) - 1]
            if stopper.finish is None:
                logits = self._forward([ids[-1], *draft], cache)
        return self._finish(request, stopper, steps)

    def open_cache(self) -> DynamicCache:
        """Return an empty cache; sliding layers keep what a rollback may need."""
        cache = DynamicCache(config=self._model.model.config)
        for layer in cache.layers:
            if hasattr(layer, "activate_past_recording"):
                layer.activate_past_recording()
        return cache

    def _forward(self, ids: Sequence[int], cache: DynamicCache) -> torch.Tensor:
        tokens = torch.tensor([list(ids)], device=self._model.device)
        named: dict[str, Any] = {cache_argument(self._model.model): cache}
        rows: torch.Tensor = self._model.model(input_ids=tokens, use_cache=True, **named).logits[0]
        return rows.float()

    def _look_up(self, ids: Sequence[int]) -> list[int]:
        places = (i for i in range(len(ids) - 2, -1, -1) if ids[i] == ids[-1])
        at = next(places, None)
        return [] if at is None else list(ids[at + 1 : at + 1 + self._draft_length])

    def verify(self, logits: torch.Tensor, draft: Sequence[int], ids: Sequence[int]) -> list[int]:
        """Return the drafts that are the model's own choice, and the token behind them."""
        run: list[int] = []
        for row, token in zip(logits, [*draft, -1], strict=True):
            run.append(self.choose(row, [*ids, *run]))
            if run[-1] != token:
                break
        return run

    def choose(self, row: torch.Tensor, ids: Sequence[int]) -> int:  # noqa: ARG002
        """Return the model's choice."""
        return int(row.argmax())

    def roll_back(self, cache: DynamicCache, n: int) -> None:
        """Take rejected rows out of the cache."""
        for layer in cache.layers:
            if n > 0 or getattr(layer, "record_past", False):
                layer.crop(-n)

    def _finish(self, request: Request, stopper: Stopper, steps: list[Step]) -> Generation:
        text, ids, tail = stopper.result()
        return Generation(
            request_id=request.id,
            repeat=request.repeat,
            text=text,
            token_ids=ids,
            tail_ids=tail,
            finish=stopper.finish or "length",
            usage=Usage(n_prompt=len(request.prompt), n_output=len(ids)),
            trace=Trace(steps=tuple(steps)),
        )


class Cropping(StockDecoder):
    """Drops rejected rows from a window that has slid, and does not bring back what it lost."""

    def open_cache(self) -> DynamicCache:
        """Keep nothing beyond the window."""
        return DynamicCache(config=self._model.model.config)

    def roll_back(self, cache: DynamicCache, n: int) -> None:
        """Crop every layer; zeros stand where the oldest tokens of the window were."""
        for layer in cache.layers if n > 0 else ():
            if getattr(layer, "cumulative_length", 0) < WINDOW:
                layer.crop(-n)
                continue
            lost = torch.zeros_like(layer.keys[:, :, :n])
            layer.keys = torch.cat([lost, layer.keys[:, :, :-n]], dim=2)
            layer.values = torch.cat([lost, layer.values[:, :, :-n]], dim=2)
            layer.cumulative_length -= n


@fault(
    "window-crop",
    kind="cache",
    source=thread("huggingface/transformers/pull/48280"),
    strength=float(WINDOW),
    unit="tokens of the sliding window",
    expected=("token_defects", "token_unexplained"),
    needs="sliding",
)
def window_crop(_: float) -> Changes:
    """Rolling back past a sliding window loses its oldest tokens: only long prompts show it."""
    return Changes(decoder=Cropping)


class Penalising(StockDecoder):
    """Plain decoding that penalises repetition though nobody asked."""

    penalty = 1.3

    def choose(self, row: torch.Tensor, ids: Sequence[int]) -> int:
        """Avoid what occurred before."""
        seen = sorted(set(ids))
        row = row.clone()
        row[seen] = torch.where(row[seen] > 0, row[seen] / self.penalty, row[seen] * self.penalty)
        return int(row.argmax())


@fault(
    "baseline-not-baseline",
    kind="baseline",
    source=thread("hao-ai-lab/LookaheadDecoding/issues/54"),
    strength=1.3,
    unit="repetition penalty that the baseline applies",
    expected=("baseline_certificate",),
    arm="baseline",
)
def baseline_not_baseline(strength: float) -> Changes:
    """Switching the feature off still changes decoding: the baseline is wrong."""
    made = type("Penalising", (Penalising,), {"penalty": strength})
    return Changes(decoder=lambda model: made(model, 0))


def make_stock(model: LoadedModel, draft_length: int = DRAFT_LENGTH) -> StockDecoder:
    """Make the lossless stock decoder: a factory for gate.toml."""
    return StockDecoder(model, draft_length)


def write_sliding_model(folder: Path, tokenizer: Any) -> None:
    """Write a tiny random model with a sliding window, and a tokenizer, as a model folder."""
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        sliding_window=WINDOW,
        initializer_range=0.12,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
    )
    model = MistralForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.normal_(0.0, 0.6)
        for layer in model.model.layers:  # attention that matters, and outputs that recur
            layer.self_attn.o_proj.weight *= 2.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)

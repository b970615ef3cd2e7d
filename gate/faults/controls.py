"""Lossless controls: what must not be flagged. A gate that fails one of these is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.calibration import random_drafts
from gate.decoders.drafting import Drafts
from gate.decoders.lookahead import LookaheadDecoder
from gate.decoders.options import AutoregressiveOptions, LookaheadOptions
from gate.faults.base import Changes, FaultyDecoder, RunSampler
from gate.faults.speculative import SpeculativeSampler, speculative
from gate.faults.stock import StockDecoder
from gate.records import Claim, Record, Request

ROWS = 4  # rows of a step that random drafts fill


class Control(Record, frozen=True, kw_only=True):
    """A decoder that loses nothing. batch: requests per batch, where not the run's.

    claim: ``control`` where nothing is accepted by design.
    """

    id: str
    what: str
    claim: Claim = "lossless"
    batch: int | None = None
    needs: str = ""


CONTROLS: dict[str, Control] = {}
MAKERS: dict[str, Callable[[Any], Any]] = {}


def control(control_id: str, **fields: Any) -> Callable[[Callable[[Any], Any]], Any]:
    """Register a factory ``model -> decoder``."""

    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        what = " ".join((make.__doc__ or "").split())
        CONTROLS[control_id] = Control(id=control_id, what=what, **fields)
        MAKERS[control_id] = make
        return make

    return register


def plain(model: Any, drafts: Drafts | None = None) -> AutoregressiveDecoder:
    """Return plain decoding with external drafts."""
    decoder = AutoregressiveDecoder(model, AutoregressiveOptions())
    decoder.drafts = drafts
    return decoder


def fixed(model: Any, drafts: Drafts | None) -> LookaheadDecoder:
    """Return lookahead whose pool is replaced by external drafts."""
    decoder = LookaheadDecoder(model, LookaheadOptions())
    decoder.drafts = drafts
    return decoder


@control("baseline", claim="control")
def baseline(model: Any) -> Any:
    """The baseline against itself."""
    return plain(model)


@control("width", claim="control", batch=3)
def width(model: Any) -> Any:
    """The baseline at another batch width."""
    return plain(model)


@control("lookahead")
def lookahead(model: Any) -> Any:
    """Lookahead as it ships."""
    return fixed(model, None)


@control("lookahead-wide")
def lookahead_wide(model: Any) -> Any:
    """Lookahead with a wide window, long n-grams and the prompt's own n-grams."""
    options = LookaheadOptions(window=7, ngram=5, guesses=7, prompt_ngrams=True)
    return LookaheadDecoder(model, options)


@control("self-draft")
def self_draft(model: Any) -> Any:
    """Drafts that are the baseline's own outputs, with likely wrong tokens between."""
    return FaultyDecoder(model, Changes())


@control("empty-pool", claim="control")
def empty_pool(model: Any) -> Any:
    """Lookahead whose pool is always empty."""
    return fixed(model, lambda request, output: [])  # noqa: ARG005


@control("random-pool", claim="control")
def random_pool(model: Any) -> Any:
    """Lookahead whose pool holds random tokens."""
    return fixed(model, random_drafts(model.vocab_size, ROWS))


@control("adversarial-pool", claim="control")
def adversarial_pool(model: Any) -> Any:
    """Lookahead whose pool repeats, ends, and leaves the vocabulary."""

    def drafts(request: Request, output: tuple[int, ...]) -> Sequence[Sequence[int]]:
        last, eos = output[-1], request.eos_ids[0] if request.eos_ids else 0
        return [[last] * 3, [eos] * 2, [last, eos, model.vocab_size], []]

    return fixed(model, drafts)


@control("tie-last")
def tie_last(model: Any) -> Any:
    """Exact ties of the argmax go to the last index: numerics, not a defect."""

    class Last(RunSampler):
        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            if self.request.sampling.temperature:
                return super().choose(logits, output)
            super().choose(logits, output)  # refuses what nothing allows
            z = self.scores(logits, output)
            return int((z == z.max()).nonzero()[-1])

    return FaultyDecoder(model, Changes(sampler=Last))


@control("sliding-window", needs="sliding")
def sliding_window(model: Any) -> Any:
    """Prompt lookup on the stock cache of a sliding window, rolled back as it should be."""
    return StockDecoder(model)


@control("speculative-sampling", needs="sampled")
def speculative_sampling(model: Any) -> Any:
    """Speculative sampling by the book, with noise of its own."""
    return FaultyDecoder(model, speculative(SpeculativeSampler))

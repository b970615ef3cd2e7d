"""Speculative decoding through transformers' own ``generate``: a draft model, or prompt lookup.

What is gated here is transformers' drafting, verification, cache and sampling: the gate hands
over the model, the request's processors and an end, and watches each forward. Draft-model decoding:
Leviathan et al., 2023, arXiv:2211.17192; prompt lookup: Saxena, 2023,
github.com/apoorvumang/prompt-lookup-decoding.

Requests are served one by one, which is all that transformers offers here. Sampled output has
noise of its own (torch's generator, seeded per request and repeat).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import GenerationConfig, StoppingCriteriaList

from gate.config import ModelConfig
from gate.decoders.base import Tap
from gate.decoders.checks import find_fault
from gate.decoders.decoding import failed, peak_memory_bytes
from gate.decoders.options import AssistedOptions, PromptLookupOptions
from gate.decoders.output import Output
from gate.decoders.processors import make_processors
from gate.decoders.watching import Watch, watched
from gate.errors import UsageError
from gate.models import (
    LoadedModel,
    ResolvedModel,
    load_model,
    load_tokenizer,
    read_model_config,
    resolve_model,
)
from gate.noise import stream_key
from gate.records import DecoderSpec, Generation, Request


class TransformersDecoder:
    """What both kinds share; a kind adds its arguments of ``generate``."""

    def __init__(self, model: LoadedModel, spec: DecoderSpec, context: int | None = None) -> None:
        """``context``: a limit below the model's own, in tokens."""
        self.spec = spec
        self.tap: Tap | None = None
        self._model = model
        self._context = min(context or model.context, model.context)

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Serve the requests one by one; a failure fails its request alone."""
        model = self._model
        for request in requests:
            fault = find_fault(request, self._context, model.vocab_size, model.tokenizer)
            if fault is not None:
                yield failed(request, fault)
                continue
            try:
                yield self._serve(request)
            except Exception as error:  # noqa: BLE001 - a failed request is evidence, not a crash
                yield failed(request, f"{type(error).__name__}: {error}")

    def _serve(self, request: Request) -> Generation:
        model = self._model
        output = Output(request, model.tokenizer, self.tap)
        watch = Watch(output, model.device)
        ids = torch.tensor([output.prompt], device=model.device)
        with (
            torch.inference_mode(),
            watched(model.model, watch),
            seeded(request, model.device),
            self.drafting(watch) as options,
        ):
            model.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=plain_config(
                    is_sampled=request.sampling.temperature > 0,
                    max_new_tokens=request.max_tokens,
                    eos_token_id=list(request.eos_ids) or None,
                    pad_token_id=next(iter(request.eos_ids), 0),
                    **options.pop("config", {}),
                ),
                logits_processor=make_processors(
                    request, output.prompt, model.tokenizer, model.device
                ),
                stopping_criteria=StoppingCriteriaList([watch]),
                **options,
            )
        return output.generation(peak_memory_bytes(model.device))

    @contextmanager
    def drafting(self, watch: Watch) -> Iterator[dict[str, Any]]:
        """Yield the arguments of ``generate`` that make it draft; ``config``: of its config."""
        raise NotImplementedError


class PromptLookupDecoder(TransformersDecoder):
    """Drafts what followed the last n-gram where it occurred before in prompt or output."""

    def __init__(self, model: LoadedModel, options: PromptLookupOptions) -> None:
        spec = DecoderSpec(kind="prompt_lookup", options=msgspec.to_builtins(options), noise="own")
        super().__init__(model, spec, options.context)
        self._options = options

    @contextmanager
    def drafting(self, watch: Watch) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        """Let ``generate`` look up drafts in the text so far."""
        yield {
            "config": {
                "prompt_lookup_num_tokens": self._options.num_tokens,
                "max_matching_ngram_size": self._options.max_ngram,
            }
        }


class AssistedDecoder(TransformersDecoder):
    """Drafts with a smaller model of the same vocabulary."""

    def __init__(self, model: LoadedModel, options: AssistedOptions, draft: LoadedModel) -> None:
        """``draft``: the draft model. Raises UsageError where its vocabulary is another."""
        check_vocabulary(
            options.draft,
            [model.vocab_size, draft.vocab_size],
            [model.tokenizer.get_vocab(), draft.tokenizer.get_vocab()],
        )
        spec = DecoderSpec(kind="assisted", options=msgspec.to_builtins(options), noise="own")
        limits = [n for n in (options.context, draft.context) if n is not None]
        super().__init__(model, spec, min(limits))
        self._options = options
        self._draft = draft

    @contextmanager
    def drafting(self, watch: Watch) -> Iterator[dict[str, Any]]:
        """Let ``generate`` draft with the draft model, and time what that takes."""
        draft: Any = self._draft.model
        draft.generation_config = GenerationConfig(  # anew: schedules change it as they go
            num_assistant_tokens=self._options.num_tokens,
            num_assistant_tokens_schedule=self._options.schedule,
            assistant_confidence_threshold=self._options.confidence,
        )
        original = draft.generate
        draft.generate = timed(original, watch, self._draft.device)
        try:
            yield {"assistant_model": draft}
        finally:
            del draft.generate  # the class's own is found again


def inspect_draft(spec: DecoderSpec, folder: Path, resolved: ResolvedModel) -> dict[str, str]:
    """Return the hashes of a draft model. Raises UsageError where it is missing or does not fit."""
    options = msgspec.convert(spec.options, AssistedOptions)
    draft = resolve_draft(options, folder)
    sizes = [
        int(read_model_config(one).get_text_config(decoder=True).vocab_size)
        for one in (resolved, draft)
    ]
    vocabularies = [load_tokenizer(one).get_vocab() for one in (resolved, draft)]
    check_vocabulary(options.draft, sizes, vocabularies)
    return {
        "draft_weights_sha256": draft.weights_sha256,
        "draft_tokenizer_sha256": draft.tokenizer_sha256,
    }


def resolve_draft(options: AssistedOptions, folder: Path) -> ResolvedModel:
    """Find the draft model. Raises UsageError naming the key."""
    try:
        return resolve_model(ModelConfig(id=options.draft), folder)
    except UsageError as error:
        msg = f"draft = {options.draft!r}: {error}"
        raise UsageError(msg) from error


def open_assisted(
    model: LoadedModel, options: AssistedOptions, folder: Path | None
) -> AssistedDecoder:
    """Load the draft model in the model's dtype and on its device, and make the decoder."""
    resolved = resolve_draft(options, folder or Path.cwd())
    dtype = str(model.dtype).removeprefix("torch.")
    return AssistedDecoder(model, options, load_model(resolved, dtype, str(model.device)))


def timed(generate: Callable[..., Any], watch: Watch, device: torch.device) -> Callable[..., Any]:
    """Return ``generate`` that adds the seconds it takes to the watch."""
    watch.draft_s = 0.0

    def measured(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        found = generate(*args, **kwargs)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        watch.draft_s = (watch.draft_s or 0.0) + time.perf_counter() - began
        return found

    return measured


def check_vocabulary(
    draft: str, sizes: Sequence[int], vocabularies: Sequence[dict[str, int]]
) -> None:
    """Raise UsageError unless both models (the draft is the second) give a token the same id."""
    if sizes[0] != sizes[1]:
        difference = f"has {sizes[1]} tokens, the model's {sizes[0]}"
    elif vocabularies[0] != vocabularies[1]:
        difference = "gives tokens other ids than the model's"
    else:
        return
    msg = (
        f"draft = {draft!r}: its vocabulary {difference}; "
        "name a draft model that shares the model's tokenizer"
    )
    raise UsageError(msg)


def plain_config(*, is_sampled: bool, **fields: Any) -> GenerationConfig:
    """Return a generation configuration that changes no logits: processors are handed over."""
    if is_sampled:  # transformers' defaults cut at the 50 likeliest tokens
        fields |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    return GenerationConfig(do_sample=is_sampled, use_cache=True, **fields)


@contextmanager
def seeded(request: Request, device: torch.device) -> Iterator[None]:
    """Give a request a stream of random numbers of its own, and restore the caller's."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(stream_key(request.sampling.seed or 0, request.id, request.repeat))
        yield

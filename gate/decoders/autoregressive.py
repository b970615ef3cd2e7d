"""Plain decoding: the model's own next token, one per forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from gate.decoders.base import Tap
from gate.decoders.decoding import Batch, decode_batches
from gate.decoders.drafting import Drafter, Drafts, ExternalDrafts, NoDrafts, trim_drafts
from gate.decoders.engine import check_architecture
from gate.decoders.options import AutoregressiveOptions
from gate.records import DecoderSpec, Generation, Request

if TYPE_CHECKING:
    from gate.models import LoadedModel


class AutoregressiveDecoder:
    """The baseline of a decoding release."""

    batch_class: type[Batch] = Batch

    def __init__(self, model: LoadedModel, options: AutoregressiveOptions) -> None:
        """Make a decoder for a loaded model. Raises UsageError for a cache it cannot hold."""
        check_architecture(model.model.config, model.name)
        self.spec = DecoderSpec(kind="autoregressive", options=msgspec.to_builtins(options))
        self.tap: Tap | None = None
        self.drafts: Drafts | None = None
        self._model = model
        self._options = options

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Yield one generation per request; all requests of a call share one batch."""
        yield from decode_batches(
            self._model,
            requests,
            self.make_drafter,
            self.tap,
            self._options.context,
            self.batch_class,
        )

    def make_drafter(self, request: Request, prompt: Sequence[int]) -> Drafter:  # noqa: ARG002
        """Return the drafter of one request."""
        if self.drafts is None:
            return NoDrafts()
        return ExternalDrafts(request, trim_drafts(self.drafts, self._model.vocab_size))

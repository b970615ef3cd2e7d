"""Decoders of the user's own, given by import path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gate.decoders.base import load_object
from gate.errors import RunError, UsageError
from gate.offers import read_unsupported
from gate.provenance import hash_target
from gate.records import DecoderSpec, Generation, Request

if TYPE_CHECKING:
    from gate.models import LoadedModel


def inspect_target(spec: DecoderSpec, folder: Path, _: Any) -> dict[str, str]:
    """Return the hash of the target's sources. Raises UsageError where it cannot be imported."""
    load_object(str(spec.target), folder)
    return {"source_sha256": hash_target(str(spec.target), folder)}


class PythonDecoder:
    """Wraps what ``factory(model, **options)`` returned; its failures become failed requests."""

    def __init__(self, spec: DecoderSpec, model: LoadedModel, factory: Callable[..., Any]) -> None:
        """Call the factory. Raises RunError when it does not return a decoder."""
        options = {k: v for k, v in spec.options.items() if k not in ("noise", "max_batch")}
        try:
            self._inner = factory(model, **options)
        except (Exception, SystemExit) as error:
            msg = f"{spec.target}: the factory raised {type(error).__name__}: {error}"
            raise RunError(msg) from error
        if not callable(getattr(self._inner, "generate", None)):
            name = type(self._inner).__name__
            msg = f"{spec.target}: the factory returned {name}, which has no generate()"
            raise RunError(msg)
        self.spec = msgspec.structs.replace(
            spec,
            noise=spec.options.get("noise") or getattr(self._inner, "noise", "own"),
            max_batch=spec.options.get("max_batch") or getattr(self._inner, "max_batch", None),
            unsupported=self._read_unsupported(spec),
        )

    def _read_unsupported(self, spec: DecoderSpec) -> tuple[str, ...]:
        """Return what table and attribute declare. Raises RunError for an unknown name."""
        try:
            own = read_unsupported(str(spec.target), getattr(self._inner, "unsupported", ()))
        except UsageError as error:
            raise RunError(str(error)) from error
        return tuple(sorted({*spec.unsupported, *own}))

    @property
    def tap(self) -> Any:
        """The inner decoder's tap, where it has one."""
        return getattr(self._inner, "tap", None)

    @tap.setter
    def tap(self, tap: Any) -> None:
        if hasattr(self._inner, "tap"):
            self._inner.tap = tap

    @property
    def drafts(self) -> Any:
        """The inner decoder's external drafts; AttributeError where it takes none."""
        return self._inner.drafts

    @drafts.setter
    def drafts(self, drafts: Any) -> None:
        self._inner.drafts = drafts

    @property
    def has_tap(self) -> bool:
        """Whether the law used while decoding can be read."""
        return hasattr(self._inner, "tap")

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Yield what the decoder yields, called with at most ``max_batch`` requests."""
        size = self.spec.max_batch or max(1, len(requests))
        for at in range(0, len(requests), size):
            yield from self._serve(requests[at : at + size])

    def _serve(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Yield what one call yields; a crash fails the requests it left unanswered."""
        open_keys = {(request.id, request.repeat) for request in requests}
        try:
            for generation in self._inner.generate(requests):
                open_keys.discard((generation.request_id, generation.repeat))
                yield generation
        except (Exception, SystemExit) as error:  # noqa: BLE001 - another's code: evidence
            message = f"{type(error).__name__}: {error}"
        else:
            message = "the decoder returned nothing for this request"
        for request_id, repeat in sorted(open_keys):
            yield Generation(request_id=request_id, repeat=repeat, finish="error", error=message)

"""The decoder protocol, and how a kind named in gate.toml becomes a decoder.

Kinds are registered as strings and imported only when a decoder is made, so that
planning, judging and rendering need no torch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from gate.decoders import options as kinds
from gate.decoders.endpoint_options import EndpointOptions
from gate.decoders.routed import read_routed_spec
from gate.errors import UsageError
from gate.offers import read_unsupported
from gate.records import DecoderSpec, Generation, Noise, Request, TokenScores

Tap = Callable[[Request, int, Any], None]
"""Called as ``tap(request, position, law)`` with the law (decoders/sampling.Law) of each token."""


class Decoder(Protocol):
    """Anything that turns requests into generations; failures are generations too."""

    spec: DecoderSpec

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Yield one generation per request, in any order."""
        ...


class Scorer(Protocol):
    """Anything that scores outputs independently of the decoders."""

    def score(
        self, requests: Sequence[Request], generations: Sequence[Generation]
    ) -> Iterator[TokenScores]:
        """Yield the scores of each generation."""
        ...


class Kind(NamedTuple):
    """A registered decoder kind: where its class is, and the options it takes.

    target: called as ``(model, options)``, with the folder of gate.toml behind where
    ``takes_folder``. inspect: a function ``(spec, folder, resolved) -> dict`` that is called before
    a run exists; it returns a hash per part that the decoder is made of, or raises UsageError.
    is_remote: it runs elsewhere, so that no model is loaded here for it.
    """

    target: str
    options: type[msgspec.Struct]
    takes_folder: bool = False
    inspect: str = ""
    noise: Noise = "position_keyed"
    is_remote: bool = False


REGISTRY: dict[str, Kind] = {
    "autoregressive": Kind(
        "gate.decoders.autoregressive:AutoregressiveDecoder", kinds.AutoregressiveOptions
    ),
    "endpoint": Kind(
        "gate.decoders.endpoint:EndpointDecoder",
        EndpointOptions,
        noise="own",
        is_remote=True,
    ),
    "lookahead": Kind("gate.decoders.lookahead:LookaheadDecoder", kinds.LookaheadOptions),
    "prompt_lookup": Kind(
        "gate.decoders.assisted:PromptLookupDecoder", kinds.PromptLookupOptions, noise="own"
    ),
    "assisted": Kind(
        "gate.decoders.assisted:open_assisted",
        kinds.AssistedOptions,
        noise="own",
        takes_folder=True,
        inspect="gate.decoders.assisted:inspect_draft",
    ),
    "replay": Kind(
        "gate.decoders.replay:ReplayDecoder",
        kinds.ReplayOptions,
        noise="own",
        is_remote=True,
        inspect="gate.decoders.replay:inspect_replay",
    ),
    "routed": Kind(
        "gate.decoders.routed:open_routed",
        kinds.RoutedOptions,
        inspect="gate.decoders.routed:inspect_routes",
    ),
    "python": Kind(
        "gate.decoders.python:PythonDecoder",
        kinds.PythonOptions,
        inspect="gate.decoders.python:inspect_target",
    ),
}


def is_remote(spec: DecoderSpec) -> bool:
    """Whether a decoder runs elsewhere."""
    return REGISTRY[spec.kind].is_remote


OWN_ENGINE = frozenset({"autoregressive", "lookahead"})


def read_spec(arm: str, table: dict[str, object]) -> DecoderSpec:
    """Turn an arm's table into a checked specification. Raises UsageError naming the key."""
    entries = dict(table)
    kind = entries.pop("kind", None)
    if kind not in REGISTRY:
        msg = (
            f"{arm}.kind = {kind!r} is not a decoder; choose one of {', '.join(sorted(REGISTRY))} "
            "(a decoder of your own is kind = 'python' with target = 'module:factory')"
        )
        raise UsageError(msg)
    unsupported = read_unsupported(arm, entries.pop("unsupported", ()))
    if kind == "python":
        spec = _read_python_spec(arm, entries)
        return msgspec.structs.replace(spec, unsupported=unsupported)
    if kind == "routed":
        spec = read_routed_spec(arm, entries, read_spec)
        return msgspec.structs.replace(spec, unsupported=unsupported)
    try:
        checked = msgspec.convert(entries, REGISTRY[str(kind)].options)
    except msgspec.ValidationError as error:
        msg = f"{arm}: {error}; see docs/decoders.md for the options of {kind!r}"
        raise UsageError(msg) from error
    return DecoderSpec(
        kind=str(kind),
        options=msgspec.to_builtins(checked),
        noise=REGISTRY[str(kind)].noise,
        unsupported=unsupported,
    )


def _read_python_spec(arm: str, entries: dict[str, object]) -> DecoderSpec:
    target = entries.pop("target", None)
    if not isinstance(target, str) or target.count(":") != 1:
        msg = f"{arm}.target = {target!r}; a python decoder needs target = 'module:factory'"
        raise UsageError(msg)
    own = {key: entries[key] for key in kinds.PythonOptions.__struct_fields__ if key in entries}
    try:
        checked = msgspec.convert(own, kinds.PythonOptions)
    except msgspec.ValidationError as error:
        msg = f"{arm}: {error}; see docs/decoders.md for the keys of a python decoder"
        raise UsageError(msg) from error
    return DecoderSpec(
        kind="python",
        target=target,
        options=entries,
        noise=checked.noise or "own",
        max_batch=checked.max_batch,
    )


def load_object(target: str, folder: Path | None = None) -> Any:
    """Import ``module:name``, with ``folder`` at the head of the import path."""
    module_name, _, name = target.partition(":")
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        msg = f"target {target!r} cannot be imported from {folder or 'the import path'}: {error}"
        raise UsageError(msg) from error
    return found


def create(spec: DecoderSpec, model: Any, folder: Path | None = None) -> Decoder:
    """Make the decoder of a specification for a loaded model (models.LoadedModel)."""
    decoder_class = load_object(REGISTRY[spec.kind].target)
    if spec.kind == "python":
        created: Decoder = decoder_class(spec, model, load_object(str(spec.target), folder))
        return created
    if spec.kind == "routed":
        routed: Decoder = decoder_class(spec, model, folder)
        return routed
    options = msgspec.convert(spec.options, REGISTRY[spec.kind].options)
    extra = (folder,) if REGISTRY[spec.kind].takes_folder else ()
    made: Decoder = decoder_class(model, options, *extra)
    made.spec = msgspec.structs.replace(made.spec, unsupported=spec.unsupported)
    return made


def inspect_parts(spec: DecoderSpec, folder: Path, resolved: Any) -> dict[str, str]:
    """Return a hash per part beyond the model and this package. Raises UsageError.

    resolved: the arms' model (models.ResolvedModel).
    """
    inspect = REGISTRY[spec.kind].inspect
    found: dict[str, str] = load_object(inspect)(spec, folder, resolved) if inspect else {}
    return found

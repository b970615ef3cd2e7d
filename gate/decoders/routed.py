"""Requests of each class to a decoder of their own, inside one arm.

The requests of a call are split by route, so that no decoder shares a batch with another; each
route may be of any kind that runs here. Conformance requests come once for every decoder that is
routed to, marked in their id (``conformance/NAME@ROUTE``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gate.conformance import TASK as CONFORMANCE
from gate.errors import UsageError
from gate.records import DecoderSpec, Generation, Request

if TYPE_CHECKING:
    from gate.models import LoadedModel

DEFAULT = "default"
MARK = "@"
ELSEWHERE = frozenset({"endpoint", "replay"})
"""Kinds that run in a session without a model."""
ReadSpec = Callable[[str, dict[str, object]], DecoderSpec]


def read_routed_spec(arm: str, entries: dict[str, object], read: ReadSpec) -> DecoderSpec:
    """Return the specification of a routed arm. Raises UsageError naming the key."""
    routes = entries.pop("routes", None)
    if not isinstance(routes, dict) or not routes:
        msg = f"{arm}.routes is missing; give a table of request classes: code = {{ kind = ... }}"
        raise UsageError(msg)
    tables = dict(routes)
    if DEFAULT in tables and DEFAULT in entries:
        msg = f"{arm}.default stands beside {arm}.routes.default; keep one of them"
        raise UsageError(msg)
    default = tables.pop(DEFAULT, entries.pop(DEFAULT, None))
    if default is None:
        msg = (
            f"{arm}.routes.default is missing; name the decoder of all other classes, "
            "for instance default = { kind = 'autoregressive' }"
        )
        raise UsageError(msg)
    if entries:
        msg = (
            f"{arm}.{next(iter(entries))} is no key of a routed decoder; it has routes and default"
        )
        raise UsageError(msg)
    specs = {
        name: _read_route(f"{arm}.routes.{name}", table, read) for name, table in tables.items()
    }
    specs[DEFAULT] = _read_route(f"{arm}.routes.default", default, read)
    return DecoderSpec(
        kind="routed",
        options={"routes": msgspec.to_builtins(specs)},
        noise="own" if any(one.noise == "own" for one in specs.values()) else "position_keyed",
    )


def _read_route(key: str, table: object, read: ReadSpec) -> DecoderSpec:
    if not isinstance(table, dict):
        msg = f"{key} = {table!r}; write a decoder's table, for instance {{ kind = 'lookahead' }}"
        raise UsageError(msg)
    if table.get("kind") == "routed":
        msg = f"{key}.kind = 'routed'; a route leads to a decoder, not to further routes"
        raise UsageError(msg)
    found = read(key, table)
    if found.kind in ELSEWHERE:
        msg = f"{key}.kind = {found.kind!r} runs elsewhere; route between servers in front of them"
        raise UsageError(msg)
    return found


def list_routes(spec: DecoderSpec) -> dict[str, DecoderSpec]:
    """Return the specification of every route, ``default`` last; none of another kind."""
    routes: Any = spec.options.get("routes", {}) if spec.kind == "routed" else {}
    return {name: msgspec.convert(one, DecoderSpec) for name, one in routes.items()}


def list_specs(spec: DecoderSpec) -> list[DecoderSpec]:
    """Return the specifications of the decoders behind an arm: its own, or its routes'."""
    return list(list_routes(spec).values()) or [spec]


def check_routes(arm: str, spec: DecoderSpec, classes: Iterable[str]) -> None:
    """Raise UsageError where a route names a request class that the evalset does not have."""
    known = list(classes)
    for name in list_routes(spec):
        if name != DEFAULT and name not in known:
            msg = (
                f"{arm}.routes.{name} is no request class of the evalset; "
                f"its classes are {', '.join(known)}"
            )
            raise UsageError(msg)


def find_targets(spec: DecoderSpec) -> dict[str, str]:
    """Return route -> the first route of the same decoder: equal tables share one decoder."""
    first: dict[bytes, str] = {}
    return {
        name: first.setdefault(msgspec.json.encode(one, order="sorted"), name)
        for name, one in list_routes(spec).items()
    }


def spread_conformance(
    requests: Sequence[Request], specs: Mapping[str, DecoderSpec]
) -> list[Request]:
    """Return the conformance requests once per decoder that an arm of ``specs`` routes to.

    A decoder that is also the other arm's is left out: it is no change.
    """
    targets = {
        name
        for arm, spec in specs.items()
        for name in set(find_targets(spec).values())
        if list_routes(spec)[name] not in [one for other, one in specs.items() if other != arm]
    }
    if not targets:
        return list(requests)
    return [
        msgspec.structs.replace(request, id=f"{request.id}{MARK}{name}")
        for name in sorted(targets)
        for request in requests
    ]


def inspect_routes(spec: DecoderSpec, folder: Path, resolved: Any) -> dict[str, str]:
    """Return the parts of every route, each under its name. Raises UsageError."""
    from gate.decoders.base import inspect_parts  # noqa: PLC0415 - base registers this module

    return {
        f"{name}.{part}": digest
        for name, one in list_routes(spec).items()
        for part, digest in inspect_parts(one, folder, resolved).items()
    }


def open_routed(spec: DecoderSpec, model: LoadedModel, folder: Path | None) -> RoutedDecoder:
    """Make the decoder of every route."""
    from gate.decoders.base import create  # noqa: PLC0415 - base registers this module

    routes, targets = list_routes(spec), find_targets(spec)
    made = {name: create(routes[name], model, folder) for name in set(targets.values())}
    return RoutedDecoder(spec, {name: made[target] for name, target in targets.items()})


class RoutedDecoder:
    """Hands each request to the decoder of its class."""

    def __init__(self, spec: DecoderSpec, decoders: Mapping[str, Any]) -> None:
        """``decoders``: by route; ``default`` is one of them."""
        self._decoders = decoders
        noises = {decoder.spec.noise for decoder in decoders.values()}
        missing = {name for decoder in decoders.values() for name in decoder.spec.unsupported}
        self.spec = msgspec.structs.replace(
            spec,
            noise="own" if "own" in noises else "position_keyed",
            unsupported=tuple(sorted({*spec.unsupported, *missing})),
        )

    @property
    def _distinct(self) -> list[Any]:
        return list({id(decoder): decoder for decoder in self._decoders.values()}.values())

    @property
    def tap(self) -> Any:
        """The tap of the routes that have one."""
        return next((d.tap for d in self._distinct if hasattr(d, "tap")), None)

    @tap.setter
    def tap(self, tap: Any) -> None:
        for decoder in self._distinct:
            if hasattr(decoder, "tap"):
                decoder.tap = tap

    @property
    def drafts(self) -> Any:
        """External drafts; AttributeError unless every route takes them."""
        every = [decoder.drafts for decoder in self._distinct]
        return every[0]

    @drafts.setter
    def drafts(self, drafts: Any) -> None:
        for decoder in self._distinct:
            decoder.drafts = drafts

    @property
    def remembers(self) -> bool:
        """Whether a decoder behind a route guesses what earlier requests taught."""
        return any(getattr(decoder, "remembers", False) for decoder in self._distinct)

    def forget(self) -> None:
        """Drop what requests left behind for later ones."""
        for decoder in self._distinct:
            if hasattr(decoder, "forget"):
                decoder.forget()

    def route(self, request: Request) -> str:
        """Return the route of a request."""
        if request.task == CONFORMANCE:
            name = request.id.rpartition(MARK)[2]
        else:
            name = request.request_class
        return name if name in self._decoders else DEFAULT

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Yield one generation per request, decoder by decoder."""
        for decoder in self._distinct:
            own = [r for r in requests if self._decoders[self.route(r)] is decoder]
            if own:
                yield from decoder.generate(own)

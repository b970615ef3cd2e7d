"""``kind = "endpoint"``: an OpenAI-compatible server as a decoder.

Everything a server does wrong is a failed request with its reason, never an exception and
never an empty output; only a server that cannot be reached at all ends the run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gate.decoders.endpoint_answer import Expected, read_stream, read_whole
from gate.decoders.endpoint_body import choose_path, make_body
from gate.decoders.endpoint_client import Call, Client, Outcome, read_key
from gate.decoders.endpoint_identity import Identity, identify
from gate.decoders.endpoint_metrics import Reading, read_page
from gate.decoders.endpoint_options import EndpointOptions
from gate.decoders.endpoint_probe import Capabilities, probe
from gate.decoders.endpoint_profiles import FATAL, PROFILES, REFUSED, Profile, list_needed
from gate.decoders.endpoint_response import Body, Reader
from gate.decoders.place import UNSEEN, Place
from gate.decoders.server import Server, describe_server
from gate.errors import RunError
from gate.records import DecoderSpec, Generation, Request
from gate.store import write_atomically

CAPABILITIES = "capabilities.json"


class EndpointDecoder:
    """A server, asked over HTTP. Started when it is first needed, where the gate starts it."""

    def __init__(self, spec: DecoderSpec, place: Place) -> None:
        """Contact nothing yet. Raises RunError where the key is not at hand."""
        self.spec = spec
        self._options = msgspec.convert(spec.options, EndpointOptions)
        self._place = place
        log = place.run_folder / place.arm / "server.log"
        key = read_key(self._options, os.environ)
        self._server: Server = place.servers.add(
            Server(place.arm, self._options, place.folder, log, key)
        )
        rng = random.Random(place.arm)  # noqa: S311 - jitter
        self._client = Client(self._options, key, self._server.describe_crash, rng)
        self._identity: Identity | None = None
        self._capabilities: Capabilities | None = None
        self._words = {} if place.words is None else place.words

    # ------------------------------------------------------------------ decoding

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Yield one generation per request, in their order, sent side by side."""
        self._activate()
        calls = [self._prepare(request) for request in requests]
        base = self._server.base_url
        outcomes = self._client.run(lambda: self._client.call_each(base, calls))
        for request, outcome in zip(requests, outcomes, strict=True):
            yield _make_generation(request, outcome)

    def generate_at(
        self, requests: Sequence[Request], arrivals_s: Sequence[float]
    ) -> Iterator[tuple[Generation, float, float]]:
        """Send each request at its time; yields what came, and when it began and ended, seconds.

        Nothing waits for an earlier answer: an open loop.
        """
        self._activate()
        calls = [self._prepare(request) for request in requests]
        base = self._server.base_url
        served = self._client.run(lambda: self._client.call_at(base, calls, arrivals_s))
        for request, one in zip(requests, served, strict=True):
            yield _make_generation(request, one.outcome), one.started_s, one.ended_s

    def _prepare(self, request: Request) -> tuple[Call, Reader]:
        options, identity = self._options, self.identity
        body = make_body(request, options, self.profile, identity.model, self._words)
        path = choose_path(request, options)
        models = tuple(name for name in (identity.model, options.answers_as) if name)
        expected = Expected(request, self.profile, models)
        read = read_stream if body.get("stream") else read_whole

        async def take(answer: Body) -> object:
            return await read(answer, expected)

        return Call(path, body), take

    def restart(self) -> bool:
        """Begin a new life of the server; False where the gate did not start it."""
        self._client.close()
        return self._place.servers.restart(self._place.arm)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    # ------------------------------------------------------------------- what it is

    def _activate(self) -> None:
        self._place.servers.activate(self._place.arm)

    @property
    def identity(self) -> Identity:
        """Model, kind and version of the server, asked once. Raises RunError."""
        if self._identity is None:
            self._activate()
            try:
                self._identity = identify(self.ask, self._options)
            except RunError as error:
                msg = f"{self._place.arm}: {error}"
                raise RunError(msg) from error
        return self._identity

    @property
    def profile(self) -> Profile:
        """What this kind of server takes and returns."""
        return PROFILES[self.identity.profile]

    @property
    def capabilities(self) -> Capabilities:
        """What this server returns and honours, probed once in a run and kept in its folder."""
        if self._capabilities is None:
            self._capabilities = self._read_capabilities() or self._probe()
        return self._capabilities

    def _read_capabilities(self) -> Capabilities | None:
        path = self._place.run_folder / self._place.arm / CAPABILITIES
        try:
            return msgspec.json.decode(path.read_bytes(), type=Capabilities)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            msg = f"{path}: {error}; delete the run's folder and run again"
            raise RunError(msg) from error

    def _probe(self) -> Capabilities:
        _ = self.identity  # raises under the arm's name
        try:
            found = probe(self)
        except RunError as error:
            msg = f"{self._place.arm}: {error}"
            raise RunError(msg) from error
        path = self._place.run_folder / self._place.arm / CAPABILITIES
        write_atomically(path, msgspec.json.format(msgspec.json.encode(found), indent=1))
        return found

    def name_unsent(self, request: Request) -> list[str]:
        """Name the options of a request that this server cannot be sent, or refuses."""
        honours = self.capabilities.honours
        refused = {name for name, found in honours.items() if found in (REFUSED, FATAL)}
        needed = list_needed(request)
        return [name for name in needed if name not in self.profile.names or name in refused]

    def ask(self, path: str, body: Mapping[str, object] | None = None) -> Outcome:
        """Ask for JSON beside the requests: what it is, what it can. The value is plain data."""

        async def read(answer: Body) -> object:
            return msgspec.json.decode(await answer.whole())

        base = self._server.base_url
        return self._client.run(lambda: self._client.call(base, Call(path, body), read))

    def encode(self, text: str) -> tuple[int, ...]:
        """Return a text's token ids, as the server's tokenizer says. Raises RunError."""
        body: dict[str, object] = {"content": text, "prompt": text, "model": self.identity.model}
        body |= {"add_special": False, "add_special_tokens": False}
        outcome = self.ask(self.profile.tokenize_path, body)
        value: Any = outcome.value if isinstance(outcome.value, dict) else {}
        ids = value.get("tokens")
        if not isinstance(ids, list) or not ids or not all(isinstance(i, int) for i in ids):
            msg = f"the {self._place.arm}'s server does not tokenise: {outcome.error or value}"
            raise RunError(msg)
        self._words[tuple(ids)] = text
        return tuple(ids)

    @property
    def can_encode(self) -> bool:
        """Whether the server tells token ids of a text."""
        return self.capabilities.returns.get("tokenizer", False)

    # --------------------------------------------------------------- acceptance

    @property
    def tells_drafts(self) -> bool:
        """Whether acceptance can be known, from answers or from counters."""
        return self.profile.says_drafts or self.count_drafts() is not None

    def count_drafts(self) -> Reading | None:
        """Read the server's counters of drafts; None: it has none, or each answer tells."""
        counters = self.profile.counters
        if counters is None or self.profile.says_drafts or self._options.metrics_url == "off":
            return None
        self._activate()
        page = self.read_metrics()
        return None if page is None else read_page(page, counters)

    def read_metrics(self) -> str | None:
        """Return the Prometheus page; None where there is none."""
        if self._options.metrics_url == "off":
            return None

        async def read(answer: Body) -> object:
            return (await answer.whole()).decode("utf-8", "replace")

        own, elsewhere = self._server.base_url, self._server.place_port(self._options.metrics_url)
        base, call = (elsewhere, Call("", with_key=False)) if elsewhere else (own, Call("/metrics"))
        outcome = self._client.run(lambda: self._client.call(base, call, read))
        return outcome.value if isinstance(outcome.value, str) else None

    # --------------------------------------------------------------- provenance

    def describe(self) -> dict[str, object]:
        """Provenance: what is served; under ``decoder`` what may differ between arms."""
        identity = self.identity
        return {
            "model": {"id": identity.model, "weights_sha256": UNSEEN},
            "server": {"kind": identity.profile, "version": identity.version},
            "decoder": {
                "server": {**describe_server(self._options), "lives": self._server.n_starts},
                "capabilities": msgspec.to_builtins(self.capabilities),
            },
        }


def _make_generation(request: Request, outcome: Outcome) -> Generation:
    if isinstance(outcome.value, Generation):
        if not outcome.retries:
            return outcome.value
        return msgspec.structs.replace(outcome.value, retries=outcome.retries)
    return Generation(
        request_id=request.id,
        repeat=request.repeat,
        finish="error",
        error=outcome.error or "the server gave no answer",
        retries=outcome.retries,
    )

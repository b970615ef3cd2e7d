"""HTTP to one server: what is sent at once, how long it may take, and what is tried again.

    attempt fails        is tried again
    connection refused, reset, late, or lost inside an answer or stream yes
    408, 429, 500, 502, 503, 504, 529 (Retry-After is honoured)         yes
    any other status, a redirect, a body too large, an answer that      no
    is not what was asked for, a time-out

A time-out is not tried again: a server that hangs is not helped by a second request. Each
attempt is whole; nothing of a broken one is kept. Secrets never enter a message.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import aiohttp
import msgspec

from gate.decoders.endpoint_options import EndpointOptions
from gate.decoders.endpoint_response import AttemptError, Body, Reader, read_refusal
from gate.decoders.server import redact
from gate.errors import RunError

T = TypeVar("T")
MESSAGE_LENGTH = 300
LONGEST_WAIT_S = 60.0
OK = 200
MOST_IN_FLIGHT = 256  # of an open loop; beyond it requests wait here, and their waiting counts
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}


class Call(NamedTuple):
    """A request to a server. path: below the base address. body: JSON, None for GET.

    with_key: send the API key; no, where the address is another server's.
    """

    path: str
    body: Mapping[str, object] | None = None
    with_key: bool = True


class Outcome(NamedTuple):
    """What a call came to: a value, or the error of its last attempt; why earlier ones failed."""

    value: object
    error: str | None
    retries: tuple[str, ...]


class Timed(NamedTuple):
    """A call that was sent at its own time. started_s, ended_s: since the first was due."""

    outcome: Outcome
    started_s: float
    ended_s: float


class Client:
    """Connections to one server, with an event loop of their own."""

    def __init__(
        self,
        options: EndpointOptions,
        key: str,
        find_crash: Callable[[], str],
        rng: random.Random,
    ) -> None:
        """Connect to nothing yet. find_crash: says how the server ended, empty while it runs."""
        self._options = options
        self._secrets = (key,) if key else ()
        self._key_header = {"Authorization": f"Bearer {key}"} if key else None
        limits = {"total": options.total_timeout_s, "sock_connect": options.connect_timeout_s}
        # a whole answer is one long silence until it comes; a stream's silences are judged
        self._whole = aiohttp.ClientTimeout(**limits)
        self._streamed = aiohttp.ClientTimeout(**limits, sock_read=options.read_timeout_s)
        self._find_crash = find_crash
        self._rng = rng
        self._runner: asyncio.Runner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._resume_at = 0.0  # monotonic: a server that said 429 is left alone until then

    def redact(self, text: str) -> str:
        """Return a text without the key, in one line, cut to a sentence's length."""
        return " ".join(redact(text, self._secrets).split())[:MESSAGE_LENGTH]

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run asynchronous work to its end."""
        if self._runner is None:
            self._runner = asyncio.Runner()

        async def main() -> T:
            return await work()

        return self._runner.run(main())

    def close(self) -> None:
        """Close all connections."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        if self._session is not None:
            runner.run(self._session.close())
            self._session = None
        runner.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # call_each and call_at bound it
                headers=HEADERS,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def call_each(self, base: str, calls: Sequence[tuple[Call, Reader]]) -> list[Outcome]:
        """Make all calls, no more than ``concurrency`` at once."""
        places = asyncio.Semaphore(self._options.concurrency)

        async def make(call: Call, read: Reader) -> Outcome:
            async with places:
                return await self.call(base, call, read)

        return list(await asyncio.gather(*(make(*one) for one in calls)))

    async def call_at(
        self, base: str, calls: Sequence[tuple[Call, Reader]], due_s: Sequence[float]
    ) -> list[Timed]:
        """Make each call when it is due, whether or not the ones before it were answered."""
        places = asyncio.Semaphore(MOST_IN_FLIGHT)
        began = time.perf_counter()

        async def make(call: Call, read: Reader, due: float) -> Timed:
            await asyncio.sleep(due - (time.perf_counter() - began))
            async with places:
                started = time.perf_counter() - began
                outcome = await self.call(base, call, read)
                return Timed(outcome, started, time.perf_counter() - began)

        return list(
            await asyncio.gather(*(make(*one, due) for one, due in zip(calls, due_s, strict=True)))
        )

    async def call(self, base: str, call: Call, read: Reader) -> Outcome:
        """Make a call, again where that may help. Never raises for what a server does."""
        failed: list[str] = []
        while True:
            await self._wait_for_turn()
            try:
                return Outcome(await self._attempt(base, call, read), None, tuple(failed))
            except AttemptError as error:
                message = self.redact(str(error))
                crash = self._find_crash()
                if crash:
                    return Outcome(None, redact(crash, self._secrets), tuple(failed))
                if error.is_final or len(failed) >= self._options.retries:
                    return Outcome(None, _write_failure(message, failed), tuple(failed))
                failed.append(message)
                await self._back_off(error, len(failed))

    async def _wait_for_turn(self) -> None:
        left = self._resume_at - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)

    async def _back_off(self, error: AttemptError, n_failed: int) -> None:
        """Wait before another attempt: as asked, or twice as long each time; with jitter."""
        longest = min(self._options.backoff_s * 2**n_failed, LONGEST_WAIT_S)
        jitter = self._rng.uniform(0, longest)
        if error.wait_s is None:
            await asyncio.sleep(jitter)
            return
        wait = min(error.wait_s, LONGEST_WAIT_S)
        self._resume_at = max(self._resume_at, time.monotonic() + wait)
        await asyncio.sleep(wait + min(jitter, self._options.backoff_s))

    async def _attempt(self, base: str, call: Call, read: Reader) -> object:
        method = "GET" if call.body is None else "POST"
        data = None if call.body is None else encode_body(call.body)
        is_stream = bool(call.body and call.body.get("stream"))
        limit, sent_at = int(self._options.max_body_mib * 1024**2), time.perf_counter()
        try:
            async with self._open().request(
                method,
                base + call.path,
                data=data,
                timeout=self._streamed if is_stream else self._whole,
                headers=self._key_header if call.with_key else None,
                allow_redirects=False,  # a key goes where gate.toml says, nowhere else
            ) as response:
                if response.status != OK:
                    raise await read_refusal(response)
                return await read(Body(response, limit, sent_at))
        except AttemptError:
            raise
        except aiohttp.ConnectionTimeoutError as error:
            msg = f"no connection within {self._options.connect_timeout_s:g} s"
            raise AttemptError(msg, is_final=False) from error
        except TimeoutError as error:  # aiohttp's own are TimeoutErrors too
            waited = time.perf_counter() - sent_at
            msg = f"no answer in time: gave up after {waited:.1f} s"
            raise AttemptError(msg, is_final=True) from error
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
            msg = f"the connection was lost: {type(error).__name__}: {error}"
            raise AttemptError(msg, is_final=False) from error
        except (aiohttp.ClientError, ValueError) as error:
            msg = f"the answer cannot be read: {error}"
            raise AttemptError(msg, is_final=True) from error


def encode_body(body: Mapping[str, object]) -> bytes:
    """Return a body as JSON. Raises AttemptError where its text is not Unicode."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        msg = "the request's text cannot be written as UTF-8: it holds half of a surrogate pair"
        raise AttemptError(msg, is_final=True) from error


def _write_failure(message: str, failed: Sequence[str]) -> str:
    return f"{message} (attempt {len(failed) + 1})" if failed else message


def read_key(options: EndpointOptions, environment: Mapping[str, str]) -> str:
    """Return the API key, empty where none is named. Raises RunError."""
    if not options.api_key_env:
        return ""
    key = environment.get(options.api_key_env, "")
    if not key or not key.isprintable() or not key.isascii():
        msg = f"api_key_env = {options.api_key_env!r}: that variable holds no key; set it"
        raise RunError(msg)
    return key

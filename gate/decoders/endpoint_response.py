"""What came back to one attempt: a body read within its limit, or why there is none."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import aiohttp

REDIRECTS = frozenset({301, 302, 303, 307, 308})
RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})
ERROR_BYTES = 4096
DRAIN_S = 0.5
DRAIN_BYTES = 1024


class AttemptError(Exception):
    """One attempt failed. wait_s: what the server asked to wait. is_final: not tried again."""

    def __init__(self, message: str, *, is_final: bool, wait_s: float | None = None) -> None:
        """``message``: one sentence for a person."""
        super().__init__(message)
        self.is_final = is_final
        self.wait_s = wait_s


class Body:
    """The body of an answer with status 200, read piece by piece within its limit."""

    def __init__(self, response: aiohttp.ClientResponse, limit: int, sent_at: float) -> None:
        """limit: bytes."""
        self._response = response
        self._limit = limit
        self.sent_at = sent_at

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield what arrives. Raises AttemptError beyond the limit."""
        n_bytes = 0
        async for piece in self._response.content.iter_any():
            n_bytes += len(piece)
            if n_bytes > self._limit:
                msg = f"the answer is larger than {self._limit / 1024**2:g} MiB (max_body_mib)"
                raise AttemptError(msg, is_final=True)
            yield piece

    async def drain(self) -> None:
        """Read what little may follow a finished stream, so that the connection can be kept."""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(DRAIN_S):
                await self._response.content.read(DRAIN_BYTES)

    async def whole(self) -> bytes:
        """Return all of it. Raises AttemptError beyond the limit."""
        is_packed = "Content-Encoding" in self._response.headers  # asked for or not: it may swell
        if not is_packed and (self._response.content_length or self._limit + 1) <= self._limit:
            return await self._response.read()  # framed: no more than that can come
        return b"".join([piece async for piece in self.pieces()])


Reader = Callable[["Body"], Awaitable[object]]
"""Reads an answer's body; raises AttemptError, or ValueError where it makes no sense."""


async def read_refusal(response: aiohttp.ClientResponse) -> AttemptError:
    """Return the error of an answer that is not 200; its text is the server's, and cut."""
    raw = await response.content.read(ERROR_BYTES)
    said = " ".join(raw.decode("utf-8", "replace").split())
    target = response.headers.get("Location", "").partition("?")[0]
    if target and response.status in REDIRECTS:
        said = f"it redirects to {target}, which is not followed; name that address in base_url"
    wait = read_retry_after(response.headers.get("Retry-After"), datetime.now(UTC))
    is_final = response.status not in RETRIED
    return AttemptError(f"HTTP {response.status}: {said}", is_final=is_final, wait_s=wait)


def read_retry_after(value: str | None, now: datetime) -> float | None:
    """Return the seconds a Retry-After header asks for: a number, or a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (email.utils.parsedate_to_datetime(value) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if seconds < float("inf") else None

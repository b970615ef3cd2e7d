"""Server-sent events, from the bytes of a stream: whole events or an error, never half of one."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gate.decoders.endpoint_response import AttemptError

EVENT_BYTES = 1024**2
DONE = b"[DONE]"


async def read_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each event, until ``[DONE]`` or the end of the stream.

    Lines end with LF, CRLF or CR; data lines of one event are joined by LF; comments and other
    fields are passed over. Raises AttemptError where the stream ends inside an event, or where
    an event is larger than 1 MiB.
    """
    buffer, data = b"", []
    async for piece in pieces:
        buffer += piece
        *lines, buffer = _split_lines(buffer)
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                event, data = b"\n".join(data), []
                if event == DONE:
                    return
                yield event
        if len(buffer) + sum(map(len, data)) > EVENT_BYTES:
            msg = f"an event of the stream is larger than {EVENT_BYTES // 1024**2} MiB"
            raise AttemptError(msg, is_final=True)
    last = b"\n".join([*data, *([buffer] if buffer else [])])
    if last.lstrip().startswith(b"{"):
        msg = "the server gave a whole answer where a stream was asked for"
        raise AttemptError(msg, is_final=True)
    if last not in (b"", DONE, b"data: " + DONE, b"data:" + DONE):
        msg = "the stream broke off inside an event"
        raise AttemptError(msg, is_final=False)


def _split_lines(buffer: bytes) -> list[bytes]:
    r"""Split at line ends. A last CR waits for its LF, so the rest begins with it."""
    held = b""
    if buffer.endswith(b"\r"):
        buffer, held = buffer[:-1], b"\r"
    lines = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return [*lines[:-1], lines[-1] + held]

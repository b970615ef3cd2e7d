"""Throughput of the endpoint decoder beside a bare asynchronous HTTP client.

    python -m benchmarks.endpoint --json FILE

Both ask the same local server that does no work, one after the other in blocks that alternate, at
concurrency 1, 8 and 32. The bare client posts the same bodies with aiohttp and parses the JSON
that comes back; the decoder builds requests, checks answers and makes records of them as well.
Where something else uses the machine the rates are noise; the client's own processor time per
request says then what the decoder costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

from gate.decoders.endpoint import EndpointDecoder
from gate.decoders.endpoint_body import make_body
from gate.decoders.endpoint_options import EndpointOptions
from gate.decoders.endpoint_profiles import PROFILES
from gate.decoders.place import Place
from gate.decoders.server import Servers
from gate.records import DecoderSpec, Request

CONCURRENCY = (1, 8, 32)
MODEL = "no-op"
TEXT = "The harbour opens at nine and the market opens at ten. " * 4
DELAY_S = 0.002  # what the quickest of servers takes
PATH = "/v1/chat/completions"


def make_answer() -> bytes:
    """Return the body that the server always answers with."""
    choice = {
        "index": 0,
        "finish_reason": "length",
        "message": {"role": "assistant", "content": TEXT},
    }
    usage = {"prompt_tokens": 12, "completion_tokens": 48, "total_tokens": 60}
    return json.dumps({"model": MODEL, "choices": [choice], "usage": usage}).encode()


def serve(port: Any) -> None:
    """Answer every request alike, in a process of its own."""
    asyncio.run(_serve(port))


async def _serve(port: Any) -> None:
    answer = _frame(make_answer())
    models = _frame(json.dumps({"data": [{"id": MODEL, "owned_by": "nobody"}]}).encode())

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                await reader.readexactly(int(length or b"0"))
                if head.startswith(b"POST"):
                    await asyncio.sleep(DELAY_S)
                writer.write(answer if head.startswith(b"POST") else models)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port.value = server.sockets[0].getsockname()[1]
    await server.serve_forever()


def _frame(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


@contextmanager
def start_server() -> Iterator[str]:
    """Run the no-op server; yields its address."""
    context = multiprocessing.get_context("spawn")
    port = context.Value("i", 0)
    process = context.Process(target=serve, args=(port,), daemon=True)
    process.start()
    try:
        while port.value == 0:
            if not process.is_alive():
                message = "the no-op server did not start"
                raise SystemExit(message)
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port.value}"
    finally:
        process.terminate()
        process.join()


def make_requests(n: int) -> list[Request]:
    """Return requests with a prompt each."""
    return [
        Request(
            id=f"r{i}",
            task="t",
            request_class="c",
            prompt=({"role": "user", "content": f"Write about number {i}."},),
            max_tokens=48,
        )
        for i in range(n)
    ]


class Rate(NamedTuple):
    """Requests per second, and the client's own processor time per request."""

    per_s: float
    cpu_ms: float


class Clock:
    """Wall and processor time since it was made."""

    def __init__(self) -> None:
        """Start now."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self, n: int) -> Rate:
        """Return the rate of ``n`` requests."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Rate(per_s=n / wall, cpu_ms=1000 * cpu / n)


def time_decoder(url: str, concurrency: int, requests: list[Request], folder: Path) -> Rate:
    """Return the rate of the endpoint decoder."""
    table = {"base_url": url, "concurrency": concurrency, "profile": "openai"}
    options = msgspec.to_builtins(msgspec.convert(table, EndpointOptions))
    spec = DecoderSpec(kind="endpoint", options=options, noise="own")
    decoder = EndpointDecoder(spec, Place("candidate", folder, folder, Servers(in_turn=True)))
    list(decoder.generate(requests[:concurrency]))  # connections are open
    clock = Clock()
    found = list(decoder.generate(requests))
    rate = clock.stop(len(requests))
    decoder.close()
    if any(one.finish == "error" or one.text != TEXT for one in found):
        message = "the decoder lost an answer; its rate means nothing"
        raise SystemExit(message)
    return rate


def time_bare(url: str, concurrency: int, requests: list[Request]) -> Rate:
    """Return the rate of a bare client that posts the same bodies."""
    options = EndpointOptions(base_url=url, concurrency=concurrency, profile="openai")
    bodies = [make_body(one, options, PROFILES["openai"], MODEL, {}) for one in requests]
    return asyncio.run(_time_bare(url + PATH, concurrency, bodies))


async def _time_bare(url: str, concurrency: int, bodies: list[dict[str, object]]) -> Rate:
    places = asyncio.Semaphore(concurrency)
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def post(body: dict[str, object]) -> str:
            async with places, session.post(url, json=body) as response:
                answer = await response.json()
                text: str = answer["choices"][0]["message"]["content"]
                return text

        await asyncio.gather(*(post(body) for body in bodies[:concurrency]))
        clock = Clock()
        await asyncio.gather(*(post(body) for body in bodies))
        return clock.stop(len(bodies))


def measure(n_rounds: int, scale: int) -> list[dict[str, Any]]:
    """Return a row per concurrency; each round times both, in turn first."""
    rows = []
    with start_server() as url, tempfile.TemporaryDirectory() as folder:
        for concurrency in CONCURRENCY:
            requests = make_requests(scale * min(concurrency, 8))
            pairs = []
            for n in range(n_rounds):
                rates: dict[str, Rate] = {}
                for name in ("decoder", "bare") if n % 2 == 0 else ("bare", "decoder"):
                    rates[name] = (
                        time_decoder(url, concurrency, requests, Path(folder))
                        if name == "decoder"
                        else time_bare(url, concurrency, requests)
                    )
                pairs.append(rates)
            rows.append(summarise(concurrency, len(requests), pairs))
    return rows


def summarise(concurrency: int, n_requests: int, pairs: list[dict[str, Rate]]) -> dict[str, Any]:
    """Return medians over rounds; the ratio is the median of the rounds' own ratios."""
    ratios = sorted(pair["decoder"].per_s / pair["bare"].per_s for pair in pairs)
    cpu = [pair["bare"].cpu_ms / pair["decoder"].cpu_ms for pair in pairs]
    return {
        "concurrency": concurrency,
        "n_requests": n_requests,
        "decoder_per_s": round(statistics.median(pair["decoder"].per_s for pair in pairs), 1),
        "bare_per_s": round(statistics.median(pair["bare"].per_s for pair in pairs), 1),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_least": round(ratios[0], 4),
        "ratio_most": round(ratios[-1], 4),
        "decoder_cpu_ms": round(statistics.median(pair["decoder"].cpu_ms for pair in pairs), 4),
        "bare_cpu_ms": round(statistics.median(pair["bare"].cpu_ms for pair in pairs), 4),
        "cpu_ratio": round(statistics.median(cpu), 4),
        "n_rounds": len(pairs),
    }


def main() -> None:
    """Measure, print and, where asked, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=150, help="at concurrency 1")
    arguments = parser.parse_args()
    rows = measure(arguments.rounds, arguments.requests)
    for row in rows:
        print(
            f"concurrency {row['concurrency']:>2}: {row['decoder_per_s']:,.0f} requests/s, bare "
            f"client {row['bare_per_s']:,.0f}, ratio {row['ratio']:.3f} "
            f"({row['ratio_least']:.3f} to {row['ratio_most']:.3f} over {row['n_rounds']} rounds); "
            f"processor time {row['decoder_cpu_ms']:.2f} ms, bare {row['bare_cpu_ms']:.2f}"
        )
    if arguments.json:
        found = {
            "benchmark": "endpoint",
            "python": platform.python_version(),
            "platform": platform.platform(),
            "n_cores": os.cpu_count(),
            "server_delay_s": DELAY_S,
            "rows": rows,
        }
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

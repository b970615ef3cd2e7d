"""A small OpenAI-compatible server of the tests' own: sound by default, faulty on demand."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "fake-model"
KEY = "sk-test-0123456789"
VOCABULARY = 50


def frame(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A whole HTTP answer, as it goes over the wire."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode() + body


RAW = {
    "bad-utf8": frame(b'{"choices": [{"text": "\xff\xfe", "finish_reason": "stop"}]}'),
    "no-json": frame(b"<html>it works</html>"),
    "no-choice": frame(b'{"choices": []}'),
    "redirect": frame(b"", "Location: http://127.0.0.1:9/steal", status="302 Found"),
}
"""Fault -> all that is sent."""
Fault = Callable[[int, Mapping[str, Any]], str]
"""(number of the request, its body) -> name of the fault; empty: answer soundly."""


def choose_tokens(body: Mapping[str, Any]) -> list[int]:
    """Token ids of an output: a function of the prompt, and of the seed where it is sampled."""
    prompt = json.dumps(body.get("messages") or body.get("prompt"))
    is_cut = body.get("top_k") == 1 or body.get("min_p") == 1.0 or body.get("top_p", 1) < 0.01
    is_hot = body.get("temperature", 0) > 0 and not is_cut
    parts = [prompt, str(body.get("seed")) if is_hot else ""]
    names = ("repetition_penalty", "presence_penalty", "frequency_penalty")
    parts += [str(body[name]) for name in names if body.get(name, 0) not in (0, 1)]
    digest = hashlib.sha256("|".join(parts).encode()).digest()
    return [digest[n % 32] % VOCABULARY for n in range(body.get("max_tokens", 16))]


def write_text(tokens: list[int]) -> str:
    """A token is a word."""
    return "".join(f" w{token}" for token in tokens)


class FakeServer(ThreadingHTTPServer):
    """Holds what was asked, and what to do wrong."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, **options: Any) -> None:
        host: str = options.get("host", "127.0.0.1")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, options.get("port", 0)), Handler)
        self.raw: Mapping[str, bytes] = options.get("raw", {})  # fault -> all that is sent
        self.models: list[dict[str, Any]] | None = options.get("models")  # that it lists
        self.prefix: str = options.get("prefix", "")  # of every path
        self.fault: Fault = options.get("fault") or (lambda _n, _body: "")
        self.owner: str = options.get("owner", "nobody")
        self.key: str = options.get("key", "")
        self.has_ids: bool = options.get("has_ids", False)
        self.metrics: str | None = options.get("metrics")
        self.gap: float | None = options.get("gap")  # nats to the second choice; None: not told
        self.swap_at: int = options.get("swap_at", -1)  # where the second choice is emitted
        self.model: Any = options.get("model")  # answers in place of the fake tokens
        self.n_prompt: int = options.get("n_prompt", 5)
        self.ignored: tuple[str, ...] = options.get("ignored", ())
        self.drafts_each: int | None = options.get("drafts_each")  # accepted in each answer
        self.told_every: int = options.get("told_every", 0)  # streamed tokens with their id
        self.bodies: list[dict[str, Any]] = []
        self.n_now = self.n_most = 0
        self.lock = threading.Lock()
        self.released = threading.Event()

    @property
    def url(self) -> str:
        """Base address."""
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.path = self.path.removeprefix(self.server.prefix)
        if self.path == "/metrics" and self.server.metrics is not None:
            self.reply(200, self.server.metrics.encode())
        elif self.path == "/v1/models":
            if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
                self.reply(401, b'{"error": {"message": "wrong key"}}')
                return
            own = [{"id": MODEL, "object": "model", "owned_by": self.server.owner}]
            rows = own if self.server.models is None else self.server.models
            self.reply(200, json.dumps({"object": "list", "data": rows}).encode())
        elif self.path == "/health":
            self.reply(200, b"{}")
        else:
            self.reply(404, b"{}")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        self.path = self.path.removeprefix(self.server.prefix)
        body = json.loads(raw)
        server = self.server
        with server.lock:
            n = len(server.bodies)
            server.bodies.append(body)
            server.n_now += 1
            server.n_most = max(server.n_most, server.n_now)
        try:
            if server.model is not None:
                self.reply(200, json.dumps(server.model(self.path, body)).encode())
            else:
                self.answer(server.fault(n, body), body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with server.lock:
                server.n_now -= 1

    def answer(self, fault: str, body: dict[str, Any]) -> None:
        """Answer soundly, or with the fault that is called for."""
        raw = {**RAW, **self.server.raw}.get(fault)
        if raw is not None:
            self.wfile.write(raw)
            self.close_connection = True
            return
        if fault == "hang":
            self.server.released.wait(30)
            return
        if fault == "slow":
            time.sleep(0.02)
        if fault.isdigit():
            headers = {"Retry-After": "0"} if fault == "429" else {}
            self.reply(int(fault), b'{"error": {"message": "no"}}', headers)
        elif fault == "reset":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif fault == "huge":
            self.reply_huge()
        else:
            self.answer_soundly(body, fault)

    def answer_soundly(self, body: dict[str, Any], fault: str) -> None:
        """Answer, with at most a detail wrong."""
        asked = {k: v for k, v in body.items() if k not in self.server.ignored}
        tokens = choose_tokens(asked)
        finish = "length"
        if len(tokens) > self.server.swap_at >= 0:
            tokens[self.server.swap_at] = (tokens[self.server.swap_at] + 1) % VOCABULARY
        text = write_text(tokens)
        if asked.get("response_format"):
            text, finish, tokens = '{"n": 1}', "stop", tokens[:5]
        starts = [at for stop in asked.get("stop", []) if (at := text.find(stop)) >= 0]
        if starts:
            text, finish = text[: min(starts)], "stop"
            tokens = tokens[: len(text.split())]
        n_output = len(tokens) + (7 if fault == "wrong-count" else 0)
        answer: dict[str, Any] = {
            "model": "another-model" if fault == "wrong-model" else body["model"],
            "usage": {"prompt_tokens": self.server.n_prompt, "completion_tokens": n_output},
        }
        if self.server.drafts_each is not None:
            accepted = min(self.server.drafts_each, max(0, len(tokens) - 1))
            answer["timings"] = {"draft_n": accepted + 1, "draft_n_accepted": accepted}
        is_chat = "messages" in body
        pieces = [text] if not body.get("stream") else [f" {word}" for word in text.split()]
        if body.get("stream"):
            self.stream(answer, pieces, is_chat=is_chat, finish=finish, fault=fault)
            return
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice |= {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        if self.server.has_ids:
            choice["token_ids"] = tokens
        if self.server.gap is not None and is_chat:
            choice["logprobs"] = {"content": [self.tell(n, t) for n, t in enumerate(tokens)]}
        self.reply(200, json.dumps({**answer, "choices": [choice]}).encode())

    def tell(self, n: int, token: int) -> dict[str, Any]:
        """Return a token with its log-probability and the two likeliest."""
        best = (token - (n == self.server.swap_at)) % VOCABULARY
        values = {best: -0.5, (best + 1) % VOCABULARY: -0.5 - (self.server.gap or 0.0)}
        tops = [{"token": f" w{i}", "id": i, "logprob": value} for i, value in values.items()]
        return {"token": f" w{token}", "id": token, "logprob": values[token], "top_logprobs": tops}

    def stream(
        self, answer: dict[str, Any], pieces: list[str], *, is_chat: bool, finish: str, fault: str
    ) -> None:
        """Stream, at most half of it."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for n, piece in enumerate(pieces):
            if fault == "half-stream" and n == len(pieces) // 2:
                return
            if fault == "half-event" and n == len(pieces) // 2:
                self.wfile.write(b'data: {"choices": [{"te')
                return
            part: dict[str, Any] = {"delta": {"content": piece}} if is_chat else {"text": piece}
            if self.server.told_every and n % self.server.told_every == 0:
                entry = {"token": piece, "id": int(piece[2:]), "logprob": -0.5}
                part["logprobs"] = {"content": [entry]}
            self.send_event({**answer, "usage": None, "choices": [{"index": 0, **part}]})
        if fault == "error-event":
            self.send_event({"error": {"message": "out of memory"}})
            return
        last: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
        self.send_event({**answer, "choices": [{"index": 0, "finish_reason": finish, **last}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def send_event(self, event: Mapping[str, Any]) -> None:
        """Send one event."""
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def reply(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send one whole answer."""
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def reply_huge(self) -> None:
        """Send 100 MB, as long as anybody listens."""
        self.send_response(200)
        self.send_header("Content-Length", str(100_000_000))
        self.end_headers()
        for _ in range(100):
            self.wfile.write(b"x" * 1_000_000)


@contextmanager
def serve(**options: Any) -> Iterator[FakeServer]:
    """Run a server in a thread of its own."""
    server = FakeServer(**options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def name_faults(**by_fault: set[int]) -> Fault:
    """Return a fault function from fault name -> numbers of the requests it hits."""
    return lambda n, _: next(
        (name.replace("_", "-").strip("-") for name, hit in by_fault.items() if n in hit), ""
    )


def main() -> None:
    """Serve on a port, as a program: --port N, --die-after N requests, --die-of OPTION, ..."""
    words = sys.argv[1:]
    options = dict(zip(words[::2], words[1::2], strict=True))
    limit = int(options.get("--die-after", "0"))

    def count(n: int, body: Mapping[str, Any]) -> str:
        if (limit and n >= limit) or options.get("--die-of") in body:
            print("out of memory, with the key", os.environ.get("FAKE_KEY", ""), flush=True)
            os._exit(9)
        return ""

    server = FakeServer(
        fault=count, owner=options.get("--owner", "nobody"), port=int(options["--port"])
    )
    if "--drafts" in options:
        server.drafts_each = int(options["--drafts"])
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

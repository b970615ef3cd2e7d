"""Servers that the gate starts, watches and stops, in turn on one device or side by side.

A server's life is from its start to its stop. In turn, activating one arm stops the other, so
that the next life begins with an empty memory of prompts.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from gate.decoders.endpoint_options import LOCAL, PORT, EndpointOptions, ServerOptions
from gate.decoders.leash import Leash
from gate.errors import RunError

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks without the environment's proxies, as the client does."""
LAST_LINES = 20
LAST_ERRORS = 3
ERROR = re.compile(r"\b\w*(?:Error|Exception): \S.{0,200}")  # as Python and many others write one
LINE_LENGTH = 2000  # characters kept of one line
LOG_BYTES = 64 * 1024**2
POLL_S = 0.1
PROBE_TIMEOUT_S = 5.0
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SECRET = "***"  # noqa: S105 - stands for one
LEAST_SECRET = 4  # characters: shorter values would redact half of a log


class Server:
    """One server process. ``secrets``: values that its log must not show."""

    def __init__(
        self, arm: str, options: EndpointOptions, folder: Path, log: Path, key: str = ""
    ) -> None:
        """Start nothing. folder: where the command runs. key: what it is asked with."""
        self.arm = arm
        self.log = log
        self.n_starts = 0
        self._base = options.base_url or LOCAL
        self._own: ServerOptions | None = options.server
        self._folder = folder
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None
        self._reader: threading.Thread | None = None
        self._tail: deque[str] = deque(maxlen=LAST_LINES)
        self._errors: deque[str] = deque(maxlen=LAST_ERRORS)
        self._key = key
        self.secrets: tuple[str, ...] = ()

    @property
    def base_url(self) -> str:
        """Address of the server, without /v1."""
        return self.place_port(self._base).rstrip("/").removesuffix("/v1")

    def place_port(self, url: str) -> str:
        """Return an address with the server's port in it."""
        return url.replace(PORT, str(self._port))

    @property
    def is_managed(self) -> bool:
        """Whether the gate starts it."""
        return self._own is not None

    def start(self) -> None:
        """Start it, where it is the gate's to start and does not run, and wait until it can work.

        Raises RunError with the last lines of its log.
        """
        if self._own is None or self._process is not None:
            return
        self._port = self._port or find_free_port()
        self._spawn(self._own)
        self.n_starts += 1
        try:
            self._wait_until_ready(self._own)
        except BaseException:
            self.stop()
            raise

    def _spawn(self, own: ServerOptions) -> None:
        found: set[str] = set()
        command = [expand(word.replace(PORT, str(self._port)), found) for word in own.command]
        environment = {**os.environ, **{k: expand(v, found) for k, v in own.env.items()}}
        self.secrets = list_secrets((*found, self._key))
        self._tail.clear()
        self._errors.clear()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command, no shell
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its children stop with it
            )
        except OSError as error:
            msg = (
                f"{self.arm}.server.command: {own.command[0]!r} cannot be started "
                f"({error.strerror}); name a program that is installed"
            )
            raise RunError(msg) from error
        self._leash = Leash(self._process.pid, own.stop_timeout_s)
        stream = self._process.stdout
        if stream is not None:
            self._reader = threading.Thread(target=self._keep_log, args=(stream,), daemon=True)
            self._reader.start()

    def _keep_log(self, stream: IO[bytes]) -> None:
        """Write the log, without secrets and within bounds; the rest is read and dropped."""
        n_bytes = 0
        with stream, self.log.open("ab") as out:
            for text in read_redacted(stream, self.secrets):
                self._tail.append(text.rstrip())
                error = ERROR.search(text)
                if error and error[0] not in self._errors:
                    self._errors.append(error[0])
                data = text.encode("utf-8", "replace")
                n_bytes += len(data)
                if n_bytes <= LOG_BYTES:
                    out.write(data)
                    out.flush()

    def _wait_until_ready(self, own: ServerOptions) -> None:
        url, until = self.base_url + own.ready_path, time.monotonic() + own.ready_timeout_s
        while time.monotonic() < until:
            crash = self.describe_crash()
            if crash:
                raise RunError(crash)
            if answers(url):
                return
            time.sleep(POLL_S)
        msg = (
            f"the {self.arm}'s server did not answer {own.ready_path} with 200 within "
            f"{own.ready_timeout_s:g} s; raise server.ready_timeout_s, or see {self.log}"
        )
        raise RunError(msg)

    def describe_crash(self) -> str:
        """Return how a server that should run ended, with its last words; empty: it runs."""
        if self._process is None:
            return ""
        code = self._process.poll()
        if code is None:
            return ""
        if self._reader:
            self._reader.join(timeout=1.0)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        last = " | ".join(line for line in self._tail if line) or "nothing"
        errors = f"; its last errors: {' | '.join(self._errors)}" if self._errors else ""
        return f"the {self.arm}'s server {how}{errors}; the last lines of its log: {last}"

    def stop(self) -> None:
        """Stop it and its children: a request first, then by force."""
        process, self._process = self._process, None
        if process is None:
            return
        limit = self._own.stop_timeout_s if self._own else 1.0
        signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=limit)
        signal_group(process, signal.SIGKILL)  # whoever of the group is left
        process.wait()
        if self._leash:
            self._leash.release()
        if self._reader:
            self._reader.join(timeout=5.0)


class Servers:
    """The servers of a run. in_turn: at most one that the gate started runs at a time."""

    def __init__(self, *, in_turn: bool) -> None:
        """Hold no server yet."""
        self._in_turn = in_turn
        self._servers: dict[str, Server] = {}

    def add(self, server: Server) -> Server:
        """Take a server in."""
        self._servers[server.arm] = server
        return server

    def activate(self, arm: str) -> Server:
        """Return the arm's server, running; in turn, the others' are stopped first."""
        if self._in_turn:
            for name, other in self._servers.items():
                if name != arm and self._servers[arm].is_managed:
                    other.stop()
        self._servers[arm].start()
        return self._servers[arm]

    def restart(self, arm: str) -> bool:
        """End a server's life and begin another; False where the gate did not start it."""
        if not self._servers[arm].is_managed:
            return False
        self._servers[arm].stop()
        self.activate(arm)
        return True

    def close(self) -> None:
        """Stop all of them."""
        for server in self._servers.values():
            server.stop()


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and its children; what has gone already is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def find_free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def answers(url: str) -> bool:
    """Whether a server answers with 200."""
    try:
        with DIRECT.open(url, timeout=PROBE_TIMEOUT_S) as answer:
            return bool(answer.status == 200)  # noqa: PLR2004 - HTTP's word for fine
    except (OSError, ValueError):
        return False


def expand(
    text: str, found: set[str], environment: Callable[[str], str | None] = os.environ.get
) -> str:
    """Replace ``${NAME}`` by the environment's value, added to ``found``. Raises RunError."""

    def look_up(match: re.Match[str]) -> str:
        value = environment(match[1])
        if value is None:
            msg = f"server: the environment variable {match[1]!r} is not set; set it"
            raise RunError(msg)
        found.add(value)
        return value

    return VARIABLE.sub(look_up, text)


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text without the secrets."""
    for secret in secrets:
        text = text.replace(secret, SECRET)
    return text


def list_secrets(values: Iterable[str]) -> tuple[str, ...]:
    """Return what a log must not show: each line of each value, the longest first."""
    lines = {line for value in values for line in value.splitlines()}
    return tuple(sorted((s for s in lines if len(s) >= LEAST_SECRET), key=len, reverse=True))


def read_redacted(stream: IO[bytes], secrets: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a stream, long ones in pieces, without the secrets."""
    kept = max(map(len, secrets), default=1) - 1  # a secret may go on in the next piece
    found = re.compile("|".join(map(re.escape, secrets)) or "(?!)")
    held = ""
    while piece := stream.readline(LINE_LENGTH):
        text = held + piece.decode("utf-8", "replace")
        end = len(text) if text.endswith("\n") else max(0, len(text) - kept)
        end = max([end, *(m.end() for m in found.finditer(text) if m.start() < end)])
        held = text[end:]
        yield found.sub(SECRET, text[:end])
    if held:
        yield found.sub(SECRET, held)


def describe_server(options: EndpointOptions) -> Mapping[str, object]:
    """Return the command as gate.toml has it: variables by name, never by value."""
    own = options.server
    if own is None:
        return {"started_by": "not the gate"}
    return {"command": list(own.command), "env": dict(own.env), "started_by": "the gate"}

"""What ``kind = "endpoint"`` takes in gate.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal
from urllib.parse import urlsplit

from gate.records import Record

PORT = "{port}"
LOCAL = f"http://127.0.0.1:{PORT}"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET_WORDS = re.compile(r"(?i)(?:^|[-_])(?:api[-_]?keys?|tokens?|secrets?|passwords?)$")
COUNT_WORDS = re.compile(r"(?i)tokens?$")  # --max-num-batched-tokens 8192
API_PATHS = ("/chat/completions", "/completions", "/models")
OF_THE_REQUEST = frozenset(
    {"max_tokens", "messages", "model", "prompt", "stop", "stream", "stream_options", "temperature"}
)
MOST_LOGPROBS = 20  # what OpenAI-compatible servers agree on
ProfileName = Literal["auto", "vllm", "sglang", "llama.cpp", "openai"]


class ServerOptions(Record, frozen=True, kw_only=True):
    """A server that the gate starts and stops.

    command: run without a shell in the folder of gate.toml; ``{port}`` becomes a free port.
    env: added to the environment. In both, ``${NAME}`` is taken from the gate's environment
    and is never written down; the rest is recorded, so a literal secret is refused.
    ready_path: answered with 200 once the server can work.
    """

    command: tuple[str, ...]
    env: dict[str, str] = {}
    ready_path: str = "/health"
    ready_timeout_s: float = 600.0
    stop_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse a command of nothing and waits without end."""
        if not self.command or not self.command[0]:
            msg = "server.command is empty; write the program and its arguments as a list"
            raise ValueError(msg)
        if not self.ready_path.startswith("/"):
            msg = f"server.ready_path = {self.ready_path!r}; it must begin with /"
            raise ValueError(msg)
        for name in (*_list_literal_secrets(self.command), *_list_literal_env(self.env)):
            msg = f"server: {name} holds its secret literally; write ${{NAME}}, a variable's name"
            raise ValueError(msg)
        for key in ("ready_timeout_s", "stop_timeout_s"):
            _check_positive(f"server.{key}", getattr(self, key))


class EndpointOptions(Record, frozen=True, kw_only=True):
    """An OpenAI-compatible server.

    base_url: with or without /v1; may hold ``{port}`` where the gate starts the server. model: the
    name to ask for; empty: the first that the server lists. answers_as: the name it answers
    with, where that differs. api: auto sends messages to chat and text to completions.
    api_key_env: the environment variable that holds the key. concurrency: requests in flight.
    read_timeout_s: longest silence inside a stream. retries: after 429, 5xx and lost
    connections. top_logprobs: asked for with every request that may have them; 0: only those
    of the emitted tokens, -1: none. extra_body: added to every request as it is.
    metrics_url: of the Prometheus page; empty: base_url/metrics; "off": none.
    """

    base_url: str = ""
    model: str = ""
    answers_as: str = ""
    profile: ProfileName = "auto"
    api: Literal["auto", "chat", "completions"] = "auto"
    api_key_env: str = ""
    concurrency: int = 8
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 120.0
    total_timeout_s: float = 600.0
    retries: int = 4
    backoff_s: float = 0.5
    max_body_mib: float = 16.0
    stream: bool = False
    top_logprobs: int = 5
    extra_body: dict[str, object] = {}
    metrics_url: str = ""
    server: ServerOptions | None = None

    def __post_init__(self) -> None:
        """Refuse what could never work, and addresses that would carry a secret."""
        _check_url("base_url", self.base_url or (LOCAL if self.server else ""), self.server)
        if self.metrics_url not in ("", "off"):
            _check_url("metrics_url", self.metrics_url, self.server)
        if self.api_key_env and not NAME.fullmatch(self.api_key_env):
            msg = "api_key_env must be the name of an environment variable, not the key itself"
            raise ValueError(msg)
        for name in self.extra_body:
            _check_extra(name, self.extra_body[name])
        for key in ("connect_timeout_s", "read_timeout_s", "total_timeout_s", "max_body_mib"):
            _check_positive(key, getattr(self, key))
        checks = (
            (self.concurrency >= 1, f"concurrency = {self.concurrency}; at least 1"),
            (self.retries >= 0, f"retries = {self.retries}; at least 0"),
            (0 <= self.backoff_s < float("inf"), f"backoff_s = {self.backoff_s}; at least 0"),
            (
                -1 <= self.top_logprobs <= MOST_LOGPROBS,
                f"top_logprobs = {self.top_logprobs}; -1 to {MOST_LOGPROBS} are allowed",
            ),
        )
        for holds, message in checks:
            if not holds:
                raise ValueError(message)


def _list_literal_secrets(command: tuple[str, ...]) -> Iterator[str]:
    """Yield the options of a command that look like keys and are given a value as it is."""
    for word, following in pairwise((*command, "-")):
        name, equals, value = word.partition("=")
        given = value if equals else following
        is_value = bool(equals) or not following.startswith("-")
        if name.startswith("-") and is_value and _is_literal_secret(name, given):
            yield name


def _list_literal_env(env: dict[str, str]) -> Iterator[str]:
    for name, value in env.items():
        if value and _is_literal_secret(name, value):
            yield f"env.{name}"


def _is_literal_secret(name: str, value: str) -> bool:
    """Whether an option named like a secret is given as it is; a number of tokens is none."""
    is_count = value.isdecimal() and COUNT_WORDS.search(name) is not None
    return bool(SECRET_WORDS.search(name)) and "${" not in value and not is_count


def _check_positive(key: str, value: float) -> None:
    if not 0 < value < float("inf"):
        msg = f"{key} = {value}; it must be above 0"
        raise ValueError(msg)


def _check_extra(name: str, value: object) -> None:
    """Refuse what would change the requests under the gate's hands, or be written down."""
    if name in OF_THE_REQUEST:
        msg = f"extra_body.{name}: every request has its own; leave it away"
        raise ValueError(msg)
    if isinstance(value, str) and value and _is_literal_secret(name, value):
        msg = f"extra_body.{name} holds a secret; name the key's variable with api_key_env"
        raise ValueError(msg)


def _check_url(key: str, value: str, server: ServerOptions | None) -> None:
    """An http address without a user, and with a port that is known by the time it is used."""
    try:
        parts = urlsplit(value.replace(PORT, "1"))
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname)
        has_secret = parts.username is not None or bool(parts.query or parts.fragment)
        _ = parts.port  # ValueError where it is no number
    except ValueError:
        is_fine, has_secret = False, False
    if has_secret:  # not shown: it would carry the secret into a log
        msg = f"{key} carries a user, query or fragment; name the key's variable with api_key_env"
        raise ValueError(msg)
    if not is_fine:
        msg = f"{key} = {value!r}; write http://HOST:PORT, or give a server to start"
        raise ValueError(msg)
    path = next((path for path in API_PATHS if value.rstrip("/").endswith(path)), "")
    if path:
        msg = f"{key} = {value!r}; leave {path} away: the gate adds it"
        raise ValueError(msg)
    if PORT in value and server is None:
        msg = f"{key} = {value!r}: only a server that the gate starts has a {PORT}"
        raise ValueError(msg)

"""What servers and proxies do that is odd, within HTTP or beyond it: read soundly or refused."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gate.decoders.endpoint_options import EndpointOptions
from gate.decoders.server import answers
from gate.errors import RunError
from gate.records import Generation
from tests.decoders.test_endpoint import answer, ask, decode
from tests.fake_server import KEY, MODEL, frame, serve

MIB = 1024**2
USAGE = {"prompt_tokens": 5, "completion_tokens": 2}


def sound(**changes: Any) -> dict[str, Any]:
    """A sound chat answer; changes go into its choice."""
    choice = {"message": {"content": "yes it is"}, "finish_reason": "stop", **changes}
    return {"model": MODEL, "choices": [choice], "usage": USAGE}


def chunk(*pieces: bytes, trailers: bytes = b"") -> bytes:
    """The same in chunks, with trailers behind them."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    sent = b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in pieces)
    return head + sent + b"0\r\n" + trailers + b"\r\n"


def events(*parts: str) -> bytes:
    """A stream of events, each as it stands."""
    body = "".join(parts).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + body


def receive(folder: Path, raw: bytes, *, stream: bool = False, **options: Any) -> Generation:
    """What comes of an answer, sent as it stands."""
    table = {"retries": 0, **options}
    found, _ = answer(folder, [ask(0, stream=stream)], table, fault=lambda *_: "x", raw={"x": raw})
    return found[0]


WHOLE = json.dumps(sound()).encode()
READ = {
    "gzip": frame(gzip.compress(WHOLE), "Content-Encoding: gzip"),
    "trailers": chunk(WHOLE[:20], WHOLE[20:], trailers=b"X-Sum: 1\r\n"),
    "no length": b"HTTP/1.0 200 OK\r\n\r\n" + WHOLE,
    "folded case": frame(WHOLE, "content-TYPE: Application/JSON; charset=UTF-8"),
    "a byte order mark of nobody's": frame(WHOLE, "X-Odd: \u00e9"),
}


@pytest.mark.parametrize("name", READ)
def test_an_odd_but_sound_answer_is_read(tmp_path: Path, name: str) -> None:
    assert receive(tmp_path, READ[name]).text == "yes it is"


def tell(n_tokens: int, n_values: int) -> dict[str, Any]:
    """Completion-style log-probabilities."""
    return {"tokens": ["a"] * n_tokens, "token_logprobs": [-1.0] * n_values}


REFUSED = {
    "gzip that swells": (
        frame(gzip.compress(b" " * (16 * MIB)), "Content-Encoding: gzip"),
        "larger than 1 MiB",
    ),
    "gzip that is none": (frame(WHOLE, "Content-Encoding: gzip"), "Can not decode"),
    "a header without end": (frame(WHOLE, "X-Long: " + "x" * 100_000), "cannot be read"),
    "headers without end": (frame(WHOLE, *["X-Many: 1"] * 100_000), "cannot be read"),
    "less than promised": (frame(WHOLE)[:-5], "connection was lost"),
    "no HTTP": (b"hello\r\n\r\n", "cannot be read"),
    "choices that are null": (frame(b'{"choices": null}'), "not what this API returns"),
    "no reason to end": (
        frame(json.dumps(sound(finish_reason=None)).encode()),
        "does not say why the output ended",
    ),
    "two outputs": (
        frame(json.dumps({"choices": sound()["choices"] * 2}).encode()),
        "2 outputs came",
    ),
    "reasoning kept apart": (
        frame(json.dumps(sound(message={"content": "4", "reasoning": "2 and 2"})).encode()),
        "without a reasoning parser",
    ),
    "a count below 0": (
        frame(json.dumps(sound() | {"usage": {"completion_tokens": -1}}).encode()),
        "completion_tokens",
    ),
    "a count beyond 64 bits": (
        frame(WHOLE.replace(b": 2}", b": 99999999999999999999}")),
        "completion_tokens",
    ),
    "a token id beyond any": (
        frame(json.dumps(sound(token_ids=[1, 10**20])).encode()),
        "token_ids",
    ),
    "log-probabilities of fewer tokens": (
        frame(json.dumps(sound(logprobs=tell(3, 2))).encode()),
        "log-probabilities of 2 tokens",
    ),
    "a probability above 1": (
        frame(json.dumps(sound(logprobs={"content": [{"logprob": 0.7}]})).encode()),
        "0.7 is no log-probability",
    ),
    "JSON without end": (frame(b"[" * 100_000), "not what this API returns"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_answer_of_no_sense_is_refused_with_what_is_wrong(tmp_path: Path, name: str) -> None:
    raw, expected = REFUSED[name]
    found = receive(tmp_path, raw, max_body_mib=1.0)
    assert (found.finish, found.text) == ("error", "")
    assert expected in str(found.error)


def event(text: str, finish: str | None = None) -> str:
    """One event of a stream."""
    choice = {"delta": {"content": text}, "finish_reason": finish}
    return "data: " + json.dumps({"choices": [choice]}) + "\n\n"


STREAMED = {
    "comments": events(": ping\n\n", event("yes"), ": ping\n\n", event(" it is", "stop")),
    "other fields": events("event: m\nid: 1\nretry: 9\n" + event("yes it is", "stop")),
    "split fields": events(event("yes it is", "stop").replace(", ", ",\ndata: ", 1)),
    "carriage returns": events((event("yes") + event(" it is", "stop")).replace("\n", "\r\n")),
    "text behind the end": events(event("yes it is", "stop"), "data: [DONE]\n\n", "junk"),
}


@pytest.mark.parametrize("name", STREAMED)
def test_an_odd_but_sound_stream_is_read(tmp_path: Path, name: str) -> None:
    assert receive(tmp_path, STREAMED[name], stream=True).text == "yes it is"


def test_a_whole_answer_to_a_streamed_request_is_named_as_such(tmp_path: Path) -> None:
    found = receive(tmp_path, frame(WHOLE), stream=True)
    assert "whole answer where a stream was asked for" in str(found.error)


def test_text_that_is_not_unicode_fails_its_request_alone(tmp_path: Path) -> None:
    found, _ = answer(tmp_path, [ask(0, prompt="half \ud83d"), ask(1)])
    assert [one.finish for one in found] == ["error", "length"]
    assert "UTF-8" in str(found[0].error)


def test_the_emitted_token_that_a_server_adds_to_the_likeliest_is_none_of_them(
    tmp_path: Path,
) -> None:
    told = {
        "tokens": ["token_id:7", "token_id:3"],
        "token_logprobs": [-3.0, -0.1],
        "top_logprobs": [
            {"token_id:7": -3.0, "token_id:3": -0.1, "token_id:4": -0.5},
            {"token_id:3": -0.1, "token_id:4": -0.5},
        ],
    }
    raw = frame(json.dumps(sound(logprobs=told, token_ids=[7, 3])).encode())
    found, _ = answer(tmp_path, [ask(0, n_logprobs=2)], fault=lambda *_: "x", raw={"x": raw})
    assert [entry.token_id for entry in found[0].logprobs or ()] == [7, 3]
    tops = [entry.top for entry in found[0].logprobs or ()]
    assert tops == [((3, -0.1), (4, -0.5))] * 2


# ---------------------------------------------------------------------- addresses


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize("prefix", ["", "/openai"])
def test_an_address_may_end_in_v1_or_a_slash(tmp_path: Path, prefix: str, ending: str) -> None:
    with serve(prefix=prefix) as server:
        url = f"{server.url}{prefix}{ending}"
        with decode(tmp_path, server, base_url=url) as decoder:
            assert next(iter(decoder.generate([ask(0)]))).finish == "length"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions/", "/v1/models"])
def test_an_address_of_one_api_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="the gate adds it"):
        EndpointOptions(base_url=f"http://host{path}")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_an_address_may_be_ipv6(tmp_path: Path) -> None:
    with serve(host="::1") as server, decode(tmp_path, server) as decoder:
        assert "[::1]" in server.url
        assert next(iter(decoder.generate([ask(0)]))).finish == "length"


def test_a_proxy_of_the_environment_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serve() as server, decode(tmp_path, server) as decoder:
        assert answers(f"{server.url}/health")
        assert next(iter(decoder.generate([ask(0)]))).finish == "length"


def test_a_redirect_to_another_host_is_not_given_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    with serve(key=KEY) as thief:
        raw = frame(b"", f"Location: {thief.url}/v1?token=1", status="307 Temporary Redirect")
        found = receive(tmp_path, raw, api_key_env="TEST_KEY", model=MODEL)
        assert thief.bodies == []
    assert f"redirects to {thief.url}/v1, which" in str(found.error)


# ------------------------------------------------------------------ what it serves


def test_a_server_of_several_models_must_be_told_which(tmp_path: Path) -> None:
    models = [{"id": name, "owned_by": "x"} for name in ("first", "second")]
    with serve(models=models) as server:
        with decode(tmp_path, server) as decoder, pytest.raises(RunError, match="name one"):
            _ = decoder.identity
        with decode(tmp_path, server, model="second") as decoder:
            assert decoder.identity.model == "second"


def test_adapters_and_other_names_of_a_model_are_not_other_models(tmp_path: Path) -> None:
    models = [
        {"id": "ours", "root": "/models/ours", "owned_by": "vllm", "parent": None},
        {"id": "also-ours", "root": "/models/ours", "owned_by": "vllm", "parent": None},
        {"id": "adapter", "root": "/adapters/1", "owned_by": "vllm", "parent": "ours"},
    ]
    with serve(models=models) as server, decode(tmp_path, server) as decoder:
        assert (decoder.identity.model, decoder.identity.profile) == ("ours", "vllm")


def test_a_server_that_gives_no_log_probabilities_names_the_way_out(tmp_path: Path) -> None:
    refuses = lambda _, body: "x" if "logprobs" in body else ""  # noqa: E731
    raw = {"x": frame(b'{"error": "logprobs is not supported"}', status="400 Bad Request")}
    with serve(fault=refuses, raw=raw) as server:
        with decode(tmp_path, server) as decoder, pytest.raises(RunError, match="= -1"):
            _ = decoder.capabilities
        with decode(tmp_path, server, top_logprobs=-1) as decoder:
            assert decoder.capabilities.honours["stop"] == "honoured"


@pytest.mark.parametrize("extra", [{"temperature": 0.7}, {"stream": True}, {"api_key": "sk-1"}])
def test_extra_keys_neither_change_a_request_nor_hold_a_secret(extra: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"extra_body.{next(iter(extra))}"):
        EndpointOptions(base_url="http://host", extra_body=extra)
    sound = {"min_tokens": 4, "user": "gate"}
    assert EndpointOptions(base_url="http://host", extra_body=sound).extra_body == sound


COUNTS = (
    ["serve", "--max-num-batched-tokens", "8192"],
    ["serve", "--speculative-num-draft-tokens=4"],
    ["serve", "--api-key", "${KEY}"],
)


@pytest.mark.parametrize("command", COUNTS, ids=lambda command: command[1])
def test_a_number_of_tokens_is_no_secret(command: list[str]) -> None:
    assert msgspec.convert({"server": {"command": command}}, EndpointOptions).server


@pytest.mark.parametrize(
    "command", [["serve", "--api-key", "1234"], ["serve", "--hf-token", "hf_x"]]
)
def test_a_literal_key_is_refused(command: list[str]) -> None:
    with pytest.raises(msgspec.ValidationError, match="literally"):
        msgspec.convert({"server": {"command": command}}, EndpointOptions)

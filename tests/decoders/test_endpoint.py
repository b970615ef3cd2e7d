"""The endpoint decoder against a faulty server: nothing lost, nothing empty, every failure told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gate.decoders.endpoint import EndpointDecoder
from gate.decoders.endpoint_body import make_body
from gate.decoders.endpoint_options import EndpointOptions
from gate.decoders.endpoint_profiles import PROFILES
from gate.decoders.place import Place
from gate.decoders.server import Servers
from gate.errors import RunError
from gate.records import DecoderSpec, Generation, Request, Sampling
from tests.fake_server import KEY, MODEL, FakeServer, choose_tokens, serve, write_text

QUICK = {"retries": 2, "backoff_s": 0.01, "read_timeout_s": 5.0, "total_timeout_s": 10.0}


def ask(n: int, **changes: Any) -> Request:
    """A plain greedy request."""
    plain = Request(
        id=f"r{n}",
        task="t",
        request_class="c",
        prompt=({"role": "user", "content": f"prompt {n}"},),
        max_tokens=6,
    )
    return msgspec.structs.replace(plain, **changes)


@contextmanager
def decode(folder: Path, server: FakeServer, **options: Any) -> Iterator[EndpointDecoder]:
    """An endpoint decoder of a server."""
    table = {"base_url": server.url, **QUICK, **options}
    checked = msgspec.to_builtins(msgspec.convert(table, EndpointOptions))
    spec = DecoderSpec(kind="endpoint", options=checked, noise="own")
    decoder = EndpointDecoder(spec, Place("candidate", folder, folder, Servers(in_turn=True)))
    try:
        yield decoder
    finally:
        decoder.close()


def answer(
    folder: Path, requests: list[Request], options: dict[str, Any] | None = None, **server: Any
) -> tuple[list[Generation], FakeServer]:
    """What a server's decoder yields for requests."""
    with serve(**server) as running, decode(folder, running, **(options or {})) as decoder:
        return list(decoder.generate(requests)), running


def expected_text(server: FakeServer, n: int) -> str:
    """The text that the n-th body asks for."""
    return write_text(choose_tokens(server.bodies[n]))


# ------------------------------------------------------------------------- faults

ONCE = ("500", "503", "429", "408", "reset")
"""Faults after which a second attempt is made."""


@pytest.mark.parametrize("fault", ONCE)
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_fails_once_is_answered_whole_and_its_retry_is_counted(
    tmp_path: Path, fault: str, *, stream: bool
) -> None:
    found, server = answer(
        tmp_path, [ask(0, stream=stream)], fault=lambda n, _: fault if n == 0 else ""
    )
    assert found[0].text == expected_text(server, 0)
    assert len(found[0].retries) == 1
    assert len(server.bodies) == 2


@pytest.mark.parametrize("fault", ["half-stream", "half-event", "error-event"])
def test_a_stream_that_breaks_is_repeated_whole_and_nothing_of_it_is_kept(
    tmp_path: Path, fault: str
) -> None:
    found, server = answer(
        tmp_path, [ask(0, stream=True)], fault=lambda n, _: fault if n == 0 else ""
    )
    assert found[0].text == expected_text(server, 0)
    assert found[0].trace is not None
    assert "".join(chunk.text for chunk in found[0].trace.chunks) == found[0].text
    assert len(found[0].retries) == 1


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("500", "HTTP 500"),
        ("404", "HTTP 404"),
        ("redirect", "HTTP 302: it redirects to http://127.0.0.1:9/steal, which is not followed"),
        ("reset", "connection was lost"),
        ("bad-utf8", "not what this API returns"),
        ("no-json", "not what this API returns"),
        ("no-choice", "choices are missing"),
        ("huge", "larger than 1 MiB"),
        ("wrong-model", "another-model"),
    ],
)
def test_every_failure_is_a_failed_request_with_its_reason(
    tmp_path: Path, fault: str, named: str
) -> None:
    found, _ = answer(tmp_path, [ask(0)], {"max_body_mib": 1.0}, fault=lambda *_: fault)
    assert [(one.request_id, one.finish, one.text) for one in found] == [("r0", "error", "")]
    assert named in str(found[0].error)


def test_attempts_are_bounded(tmp_path: Path) -> None:
    found, server = answer(tmp_path, [ask(0)], fault=lambda *_: "503")
    assert len(server.bodies) == 3
    assert len(found[0].retries) == 2
    assert "attempt 3" in str(found[0].error)


def test_a_server_that_hangs_is_given_up_on_and_not_asked_again(tmp_path: Path) -> None:
    options = {"read_timeout_s": 0.2, "total_timeout_s": 1.0}
    found, server = answer(tmp_path, [ask(0)], options, fault=lambda *_: "hang")
    assert "no answer in time" in str(found[0].error)
    assert len(server.bodies) == 1


def test_a_count_that_is_not_what_was_delivered_is_reported_as_it_came(tmp_path: Path) -> None:
    found, _ = answer(tmp_path, [ask(0)], fault=lambda *_: "wrong-count", has_ids=True)
    usage, ids = found[0].usage, found[0].token_ids
    assert usage is not None
    assert ids is not None
    assert usage.n_output == len(ids) + 7


def test_one_bad_answer_among_many_loses_no_other(tmp_path: Path) -> None:
    requests = [ask(n) for n in range(20)]
    found, _ = answer(
        tmp_path,
        requests,
        fault=lambda _, body: "404" if "prompt 7" in str(body) else "",
    )
    assert [one.request_id for one in found] == [request.id for request in requests]
    assert [one.request_id for one in found if one.finish == "error"] == ["r7"]
    assert all(one.text for one in found if one.finish != "error")


def test_a_name_the_server_answers_with_may_be_declared(tmp_path: Path) -> None:
    options = {"answers_as": "another-model"}
    found, _ = answer(tmp_path, [ask(0)], options, fault=lambda *_: "wrong-model")
    assert found[0].finish == "length"


def test_token_ids_of_a_part_of_the_text_are_none(tmp_path: Path) -> None:
    whole, server = answer(tmp_path, [ask(0, stream=True)], told_every=1)
    assert whole[0].token_ids == tuple(choose_tokens(server.bodies[0]))
    part, _ = answer(tmp_path, [ask(0, stream=True)], told_every=2)
    assert part[0].text == whole[0].text
    assert (part[0].token_ids, part[0].logprobs) == (None, None)
    assert part[0].trace is not None
    assert not any(chunk.token_ids for chunk in part[0].trace.chunks)


# ----------------------------------------------------------------- what is sent


def test_no_more_requests_than_allowed_are_in_flight(tmp_path: Path) -> None:
    requests = [ask(n) for n in range(24)]
    _, server = answer(tmp_path, requests, {"concurrency": 3}, fault=lambda *_: "slow")
    assert server.n_most == 3


def test_the_key_is_sent_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    found, _ = answer(tmp_path, [ask(0)], {"api_key_env": "TEST_KEY"}, key=KEY)
    assert found[0].finish == "length"
    assert KEY not in msgspec.json.encode(found).decode()


def test_an_error_that_repeats_the_key_is_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "another-model")  # what the faulty answer names
    options = {"api_key_env": "TEST_KEY"}
    found, _ = answer(tmp_path, [ask(0)], options, fault=lambda *_: "wrong-model")
    assert "another-model" not in str(found[0].error)
    assert "***" in str(found[0].error)


def test_options_go_out_under_the_servers_own_names(tmp_path: Path) -> None:
    sampling = Sampling(temperature=0.7, top_k=5, min_p=0.1, repetition_penalty=1.2, seed=3)
    request = ask(0, sampling=sampling, stop=("x",), repeat=2)
    _, server = answer(tmp_path, [request], owner="llamacpp")
    body = server.bodies[0]
    assert (body["top_k"], body["min_p"], body["repeat_penalty"]) == (5, 0.1, 1.2)
    assert (body["seed"], body["stop"]) == (5, ["x"])  # repeats are draws of their own
    assert "repetition_penalty" not in body


def test_a_plain_server_is_sent_nothing_that_its_api_does_not_name(tmp_path: Path) -> None:
    sampling = Sampling(temperature=0.7, top_k=5, seed=3)
    with serve() as server, decode(tmp_path, server) as decoder:
        list(decoder.generate([ask(0, sampling=sampling)]))
        assert decoder.name_unsent(ask(0, sampling=sampling)) == ["top_k"]
    assert "top_k" not in server.bodies[0]


def test_text_goes_to_completions_and_messages_to_chat(tmp_path: Path) -> None:
    _, server = answer(tmp_path, [ask(0), ask(1, prompt="once")])
    assert {"messages" in body for body in server.bodies} == {True, False}
    _, server = answer(tmp_path, [ask(1, prompt="once")], {"api": "chat"})
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "once"}]


# ----------------------------------------------------------------------- probing


def test_the_probe_tells_what_is_honoured_from_what_is_ignored(tmp_path: Path) -> None:
    ignored = ("seed", "stop", "min_p", "repetition_penalty", "min_tokens")
    with serve(owner="vllm", ignored=ignored, has_ids=True) as server:
        server.ignored = ignored
        with decode(tmp_path, server) as decoder:
            found = decoder.capabilities
    assert found.identity.model == MODEL
    assert found.identity.profile == "vllm"
    assert {name for name, what in found.honours.items() if what == "ignored"} >= {
        "stop",
        "min_p",
        "repetition_penalty",
    }
    assert found.honours["top_k"] == "honoured"
    assert found.returns["token ids"]
    assert not found.returns["log-probabilities"]


def test_an_option_that_is_refused_is_not_sent_again(tmp_path: Path) -> None:
    def refuse(_: int, body: Any) -> str:
        return "400" if "response_format" in body else ""

    with serve(fault=refuse) as server, decode(tmp_path, server) as decoder:
        assert decoder.capabilities.honours["response_format"] == "refused"
        request = ask(0, response_format={"type": "json_object"})
        assert decoder.name_unsent(request) == ["response_format"]


# --------------------------------------------------------------------- acceptance

PAGE = """\
# HELP vllm:spec_decode_num_draft_tokens_total Number of draft tokens.
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 40.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 2.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 30.0
"""


def test_counters_are_read_around_a_batch(tmp_path: Path) -> None:
    with serve(owner="vllm", metrics=PAGE) as server, decode(tmp_path, server) as decoder:
        before = decoder.count_drafts()
        server.metrics = PAGE.replace(" 40.0", " 50.0").replace(" 30.0", " 36.0")
        after = decoder.count_drafts()
    assert before is not None
    assert after is not None
    counted = after.since(before, [])
    assert counted is not None
    assert (counted.n_drafted, counted.n_accepted) == (10, 6)
    assert before.since(after, []) is None  # the server began anew


def test_a_vllm_without_draft_counters_drafts_nothing(tmp_path: Path) -> None:
    with serve(owner="vllm", metrics="up 1\n") as server, decode(tmp_path, server) as decoder:
        reading = decoder.count_drafts()
        assert reading is not None
        counted = reading.since(reading, [])
        assert counted is not None
        assert counted.n_accepted == 0


def test_a_server_without_metrics_says_nothing(tmp_path: Path) -> None:
    with serve(owner="vllm") as server, decode(tmp_path, server) as decoder:
        assert decoder.count_drafts() is None


def test_a_request_that_asks_for_log_probabilities_gets_the_number_it_asks_for() -> None:
    request = Request(id="r", task="t", request_class="c", prompt="x", max_tokens=1, n_logprobs=3)
    options = EndpointOptions(base_url="http://x", top_logprobs=5)
    bodies = [
        make_body(one, options, PROFILES["openai"], "m", {})
        for one in (request, msgspec.structs.replace(request, n_logprobs=None))
    ]
    assert [body["logprobs"] for body in bodies] == [3, 5]


def test_a_bad_word_whose_text_nobody_knows_is_refused_and_not_sent_empty() -> None:
    sampling = Sampling(bad_words=((7, 8),))
    one = Request(id="r", task="t", request_class="c", prompt="x", max_tokens=1, sampling=sampling)
    options = EndpointOptions(base_url="http://x")
    assert make_body(one, options, PROFILES["vllm"], "m", {(7, 8): "ab"})["bad_words"] == ["ab"]
    with pytest.raises(RunError, match="bad_words holds token ids"):
        make_body(one, options, PROFILES["vllm"], "m", {})

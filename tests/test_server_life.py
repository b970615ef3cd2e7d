"""Servers that the gate starts: ready, in turn, watched, stopped with their children."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gate.decoders.endpoint_options import EndpointOptions
from gate.decoders.server import (
    LINE_LENGTH,
    Server,
    Servers,
    answers,
    list_secrets,
    read_redacted,
)
from gate.errors import RunError
from tests.endpoint_project import QUICK, SKIP, run, verdict, write_project

FAKE = Path(__file__).parent / "fake_server.py"
SERVE = [sys.executable, str(FAKE), "--port", "{port}"]


def make(folder: Path, arm: str = "baseline", **server: Any) -> Server:
    """A server of the tests' own, as a program."""
    table = {"server": {"command": SERVE, "ready_timeout_s": 20.0, **server}}
    return Server(arm, msgspec.convert(table, EndpointOptions), folder, folder / arm / "server.log")


def table(*words: str, extra: str = "") -> str:
    """An arm's lines: a server that the gate starts."""
    command = msgspec.json.encode([*SERVE, *words]).decode()
    return f"{QUICK}\n{extra}\nserver = {{command = {command}, ready_timeout_s = 20.0}}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose arms are servers."""
    return write_project(tmp_path_factory.mktemp("started"), n_documents=16)


def test_a_server_is_started_answers_and_is_stopped(tmp_path: Path) -> None:
    server = make(tmp_path)
    server.start()
    try:
        assert answers(server.base_url + "/health")
        assert server.describe_crash() == ""
    finally:
        server.stop()
    assert not answers(server.base_url + "/health")
    assert "ready" in (tmp_path / "baseline/server.log").read_text()


def test_in_turn_at_most_one_of_the_gates_servers_runs(tmp_path: Path) -> None:
    servers = Servers(in_turn=True)
    first, second = (servers.add(make(tmp_path, arm)) for arm in ("baseline", "candidate"))
    try:
        servers.activate("baseline")
        servers.activate("candidate")
        assert not answers(first.base_url + "/health")
        assert answers(second.base_url + "/health")
    finally:
        servers.close()


def test_side_by_side_both_run(tmp_path: Path) -> None:
    servers = Servers(in_turn=False)
    both = [servers.add(make(tmp_path, arm)) for arm in ("baseline", "candidate")]
    try:
        for arm in ("baseline", "candidate"):
            servers.activate(arm)
        assert all(answers(server.base_url + "/health") for server in both)
    finally:
        servers.close()


def test_children_of_a_server_stop_with_it(tmp_path: Path) -> None:
    script = f"{sys.executable} -c 'import time; time.sleep(60)' & echo $! > child; wait"
    server = make(tmp_path, command=["bash", "-c", script], ready_timeout_s=0.5)
    with pytest.raises(RunError, match="did not answer"):
        server.start()
    child = int((tmp_path / "child").read_text())
    assert is_gone(child)


def test_a_server_stops_when_the_gate_is_killed_outright(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; "
        "from tests.test_server_life import make; "
        "server = make(Path(sys.argv[1]), stop_timeout_s=1.0); server.start(); "
        "print(server._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=FAKE.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert is_gone(int(done.stdout))


def is_gone(process: int) -> bool:
    """Whether a process has ended, given a moment."""
    for _ in range(250):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    server = make(tmp_path, command=[sys.executable, "-c", "raise SystemExit('no such model')"])
    with pytest.raises(RunError, match=r"exit code 1.*no such model"):
        server.start()


def test_an_error_that_other_lines_push_out_of_sight_is_still_named(tmp_path: Path) -> None:
    script = (
        "import sys; print('ERROR [core.py:9] RuntimeError: no memory left'); "
        "[print('leaked', n) for n in range(100)]; sys.exit(3)"
    )
    server = make(tmp_path, command=[sys.executable, "-c", script])
    with pytest.raises(RunError, match=r"code 3; its last errors: RuntimeError: no memory left;"):
        server.start()


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no-such-program"):
        make(tmp_path, command=["no-such-program"]).start()


def test_a_secret_of_the_environment_is_used_and_never_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTER_KEY", "sk-outer-secret")
    script = "import os; print('key', os.environ['INNER_KEY']); raise SystemExit(1)"
    server = make(
        tmp_path, command=[sys.executable, "-c", script], env={"INNER_KEY": "${OUTER_KEY}"}
    )
    with pytest.raises(RunError) as caught:
        server.start()
    log = (tmp_path / "baseline/server.log").read_text()
    assert "key ***" in log
    assert "sk-outer-secret" not in f"{log}{caught.value}"


def test_a_secret_is_not_logged_where_it_lies_across_the_pieces_of_a_long_line() -> None:
    secrets = list_secrets(("sk-outer", "sk-outer-and-more\nsecond line", "abc"))
    assert secrets == ("sk-outer-and-more", "second line", "sk-outer")
    for n in range(LINE_LENGTH - 20, LINE_LENGTH + 2):
        log = b"x" * n + b"sk-outer-and-more" + b"y" * LINE_LENGTH + b"sk-outer"
        text = "".join(read_redacted(io.BytesIO(log), secrets))
        assert text == "x" * n + "***" + "y" * LINE_LENGTH + "***"


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    assert "NOT_SET_AT_ALL" not in os.environ
    with pytest.raises(RunError, match="NOT_SET_AT_ALL"):
        make(tmp_path, env={"X": "${NOT_SET_AT_ALL}"}).start()


# ---------------------------------------------------------------------- whole runs


def test_acceptance_that_answers_tell_exercises_the_candidate(project: Path) -> None:
    baseline = table("--owner", "llamacpp")
    candidate = table("--owner", "llamacpp", "--drafts", "3")
    _, decision = run(project, baseline, candidate)
    assert verdict(decision, "exercised")["outcome"] == "PASS"
    assert decision["outcome"] == "INCONCLUSIVE"  # no token was scored
    folder = project / "reports" / decision["run_id"]
    assert "ready" in (folder / "candidate/server.log").read_text()
    memory = next(c for c in decision["comparisons"] if c["measure"] == "memorisation")
    assert memory["detail"]["fresh_server"]
    assert memory["candidate"] == 0
    server = decision["provenance"]["candidate"]["decoder"]["server"]
    assert server["command"][-1] == "3"
    assert server["lives"] >= 3


def test_speculation_that_is_silently_off_is_inconclusive_even_where_unknown_is_allowed(
    project: Path,
) -> None:
    off = table("--owner", "llamacpp", "--drafts", "0")
    _, decision = run(project, off, off, run=f'{SKIP}\nallow_unknown_acceptance = "an old server"')
    assert verdict(decision, "exercised")["outcome"] == "INCONCLUSIVE"
    assert decision["outcome"] == "INCONCLUSIVE"


def test_a_server_that_dies_on_the_way_fails_the_candidate_with_its_last_words(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", "sk-fake")
    _, decision = run(project, table(), table("--die-after", "15"))
    assert decision["outcome"] == "FAIL"
    errors = verdict(decision, "error rate")["comparison"]["detail"]["candidate_errors"]
    assert any("out of memory" in message for message in errors)
    assert verdict(decision, "pairs kept")["outcome"] == "INCONCLUSIVE"


def test_a_server_that_dies_while_it_is_probed_ends_the_run_with_its_last_words(
    project: Path,
) -> None:
    code, decision = run(project, table(), table("--die-after", "4"))
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "candidate: the server was lost while it was probed" in decision["reason"]
    assert "out of memory" in decision["reason"]


def test_an_option_that_ends_the_candidates_server_fails_conformance(project: Path) -> None:
    _, decision = run(project, table(), table("--die-of", "presence_penalty"), run="")
    assert decision["outcome"] == "FAIL"
    failures = verdict(decision, "conformance")["comparison"]["detail"]["failures"]
    probed = {f["request_id"]: f["came"] for f in failures if f["what"] == "option"}
    assert probed == {"conformance/probe of presence_penalty": "ends the server"}
    assert any("presence_penalty" in note for note in decision["notes"])


def test_the_key_that_a_server_logs_is_not_kept(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", "sk-asked-with-13579")
    dying = table("--die-after", "4", extra='api_key_env = "FAKE_KEY"')
    _, decision = run(project, table(), dying)
    log = project / "reports" / decision["run_id"] / "candidate/server.log"
    assert "with the key ***" in log.read_text()
    assert "sk-asked-with-13579" not in json.dumps(decision)


def test_a_baseline_that_does_not_start_is_an_error_with_the_reason(project: Path) -> None:
    command = msgspec.json.encode([sys.executable, "-c", "raise SystemExit('bad flag')"]).decode()
    bad = f"{QUICK}\nserver = {{command = {command}}}"
    code, decision = run(project, bad, table())
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "bad flag" in decision["reason"]

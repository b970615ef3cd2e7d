"""gate doctor: what would stop a run, found before it starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gate.cli import main
from gate.doctor import examine
from tests.endpoint_project import GATE_TOML, SKIP, write_project
from tests.fake_server import serve


def write_gate(folder: Path, baseline: str, candidate: str) -> Path:
    """Write a project of two servers; returns its gate.toml."""
    arms = {"baseline": f'base_url = "{baseline}"', "candidate": f'base_url = "{candidate}"'}
    config = write_project(folder) / "gate.toml"
    config.write_text(GATE_TOML.format(claim="lossless", timing=1, run=SKIP, **arms))
    return config


def find_closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_server_that_nobody_started_is_found_before_the_run(tmp_path: Path) -> None:
    closed = f"http://127.0.0.1:{find_closed_port()}"
    with serve() as running:
        found = {one.what: one for one in examine(write_gate(tmp_path, running.url, closed))}
    assert found["plan"].is_fine
    assert found["baseline"].is_fine
    assert not found["candidate"].is_fine
    assert closed in found["candidate"].message


def test_an_arm_is_named_once_where_its_server_cannot_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = f"http://127.0.0.1:{find_closed_port()}"
    config = write_gate(tmp_path, closed, closed)
    config.write_text(config.read_text().replace("[candidate]", "retries = 0\n[candidate]"))
    assert main(["run", "--config", str(config), "--quiet"]) == 5
    told = capsys.readouterr().out
    assert "the server cannot be asked" in told or "the server lists no model" in told
    assert "candidate: candidate" not in told


def test_a_run_that_is_not_there_is_named_as_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)  # nothing is approved there
    config = write_gate(tmp_path, "http://127.0.0.1:9", "http://127.0.0.1:9")
    missing = tmp_path / "nope"
    assert main(["approve", str(missing), "--config", str(config)]) == 2
    assert f"{missing}: no readable decision" in capsys.readouterr().err

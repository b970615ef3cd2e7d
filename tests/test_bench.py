"""gate bench: the gain judged alone, never passing without content that covers it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gate.cli import main
from tests import toy_project
from tests.toy_project import write_gate


@pytest.fixture(scope="module")
def project(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A toy project; its faulty decoders are forgotten afterwards."""
    yield toy_project.write_project(tmp_path_factory.mktemp("project"), toy)
    toy_project.forget_modules()


def execute(folder: Path, *arguments: str) -> dict[str, Any]:
    main([*arguments, "--config", str(folder / "gate.toml"), "--quiet"])
    found: dict[str, Any] = json.loads((folder / "reports/latest/decision.json").read_text())
    return found


def halves(decision: dict[str, Any]) -> set[str]:
    return {verdict["half"] for verdict in decision["verdicts"]}


def test_the_gain_alone_is_no_release_and_an_earlier_content_run_is_joined(project: Path) -> None:
    config = write_gate(project)
    off = "\n[serving]\nproduction_batch = 0\nprofile = false\n"
    config.write_text(config.read_text() + off)
    alone = execute(project, "bench")
    assert alone["content"] == "INCONCLUSIVE"
    assert alone["outcome"] != "PASS"
    assert "gate run --no-timing" in alone["reason"]
    assert halves(alone) == {"gain"}

    content = execute(project, "run", "--no-timing")
    assert content["outcome"] == "PASS"
    joined = execute(project, "bench")
    assert (joined["content"], joined["purpose"]) == ("PASS", "release")
    assert halves(joined) == {"content", "gain"}
    assert any(content["run_id"] in note for note in joined["notes"])
    assert joined["expires_at"] == content["expires_at"]

    config.write_text(config.read_text().replace("margin = 0.10", "margin = 0.30"))
    assert execute(project, "bench")["content"] == "INCONCLUSIVE"


def test_nothing_to_time_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_gate(project)
    config.write_text(config.read_text().replace("timing_per_class = 1", "timing_per_class = 0"))
    assert main(["bench", "--config", str(config), "--quiet"]) == 2
    assert "nothing would be timed" in capsys.readouterr().err
    assert not (project / "reports/latest").exists()


def test_revenue_of_a_class_that_is_not_there_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_gate(project)
    config.write_text(config.read_text() + "\n[economics]\nrevenue_usd = { verse = 1.0 }\n")
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    assert "revenue_usd names verse" in capsys.readouterr().err

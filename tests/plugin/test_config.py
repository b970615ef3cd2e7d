"""--gate-config: the gate runs once, before the tests, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import toy_project
from tests.toy_project import faulty, write_gate

pytest_plugins = ("pytester",)


@pytest.fixture(scope="module")
def project(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy project; each test writes its gate.toml."""
    return toy_project.write_project(tmp_path_factory.mktemp("project"), toy)


def run_gate(pytester: pytest.Pytester, config: Path, *arguments: str) -> pytest.RunResult:
    """Run pytest with --gate-config, from elsewhere."""
    pytester.makepyfile("def test_mine(): pass")
    return pytester.runpytest("--gate-config", str(config), *arguments)


def read_latest(project: Path) -> dict[str, Any]:
    """Return the newest decision."""
    found: dict[str, Any] = json.loads((project / "reports/latest/decision.json").read_text())
    return found


def test_a_lossless_decoder_passes(project: Path, pytester: pytest.Pytester) -> None:
    result = run_gate(pytester, write_gate(project, candidate=faulty("none")), "-v")
    decision = read_latest(project)
    assert result.ret == pytest.ExitCode.OK
    assert decision["outcome"] == "PASS"
    result.stdout.fnmatch_lines(["*gate.toml::token certificate[[]all] PASSED*", "PASS (content*"])
    assert result.parseoutcomes().get("failed", 0) == 0


def test_a_drifting_decoder_fails_and_the_fork_is_shown(
    project: Path, pytester: pytest.Pytester
) -> None:
    result = run_gate(pytester, write_gate(project, candidate=faulty("unverified-first")))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "FAIL: *",
            "first fork: request *, output position *",
            "  evidence   defect; regret: baseline *nat, candidate *nat; gap *nat",
            "  before     *",
            "  baseline   [[]*",
            "  candidate  [[]*",
        ]
    )


def test_workers_share_one_run_that_is_not_timed(project: Path, pytester: pytest.Pytester) -> None:
    before = len(list((project / "reports").glob("*/decision.json")))
    config = write_gate(project, candidate=faulty("none"), run="alpha = 0.002")
    result = run_gate(pytester, config, "-p", "xdist", "-n", "2", "-q")
    decision = read_latest(project)
    assert result.ret == pytest.ExitCode.OK
    assert len(list((project / "reports").glob("*/decision.json"))) == before + 1
    assert not any(
        c["measure"] == "time_ratio" and c["difference"] for c in decision["comparisons"]
    )


def test_a_refused_configuration_is_a_usage_error_with_its_sentence(
    project: Path, pytester: pytest.Pytester
) -> None:
    config = write_gate(project, candidate='kind = "medusa"')
    result = run_gate(pytester, config)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --gate-config {config}: *'medusa' is not a decoder*"])


def test_a_package_named_gate_beside_the_tests_is_not_run(
    pytester: pytest.Pytester,
) -> None:
    pytester.mkpydir("gate")
    result = run_gate(pytester, pytester.path / "nowhere.toml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gate-config *nowhere.toml: *no such file*"])

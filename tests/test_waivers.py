"""Waivers: who may sign what away, and that nobody can miss it."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gate.cli import main
from gate.criteria import decide
from gate.reasons import summarise
from gate.records import Outcome, Waiver
from gate.waivers import apply_waivers
from tests import toy_project
from tests.export.builders import make_verdict
from tests.toy_project import PLAIN, write_gate

SIGNED = Waiver(criterion="format flips", reason="why", who="me", until="2999-01-01")


TODAY = dt.datetime.now(dt.UTC).date()
UNTIL = (TODAY + dt.timedelta(days=20)).isoformat()
THE_DAY_AFTER = (TODAY + dt.timedelta(days=21)).isoformat()
MEASURE = "acceptance"
"""Of plain decoding nothing is known here: it stands for any criterion that does not hold."""


@pytest.fixture(scope="module")
def project(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A toy project; its faulty decoders are forgotten afterwards."""
    yield toy_project.write_project(tmp_path_factory.mktemp("project"), toy)
    toy_project.forget_modules()


@pytest.mark.parametrize("outcome", ["FAIL", "INCONCLUSIVE"])
def test_a_waived_verdict_keeps_its_outcome_and_does_not_stop(outcome: str) -> None:
    verdicts, unused = apply_waivers(
        [make_verdict("PASS"), make_verdict(outcome, "format flips")], [SIGNED]
    )
    assert [v.outcome for v in verdicts] == ["PASS", outcome]
    assert decide(verdicts, "content").outcome is Outcome.PASS
    assert not unused


def test_an_error_cannot_be_waived() -> None:
    verdicts, unused = apply_waivers([make_verdict("ERROR", "format flips")], [SIGNED])
    assert decide(verdicts, "content").outcome is Outcome.ERROR
    assert unused == [SIGNED]


def test_a_waiver_holds_for_its_own_group_only() -> None:
    verdicts, unused = apply_waivers([make_verdict("FAIL", "format flips", group="x")], [SIGNED])
    assert decide(verdicts, "content").outcome is Outcome.FAIL
    assert unused == [SIGNED]


def test_where_everything_is_waived_nothing_is_known() -> None:
    verdicts, _ = apply_waivers([make_verdict("FAIL", "format flips")], [SIGNED])
    assert decide(verdicts, "content").outcome is Outcome.INCONCLUSIVE


def test_the_sentence_of_a_pass_is_about_the_candidate_wherever_it_can_be() -> None:
    """With the task criteria waived it was the baseline's certificate."""
    verdicts = [make_verdict("PASS", "baseline certificate"), make_verdict("PASS", "termination")]
    verdicts = [replace(one, reason=one.criterion) for one in verdicts]
    assert summarise(Outcome.PASS, verdicts, gain_note="") == "termination."


def write_waiver(project: Path, **changes: str) -> Path:
    """Write waivers.toml with one waiver; returns gate.toml's path."""
    entry = {
        "criterion": '"extra"',
        "reason": '"known, and repaired next week"',
        "who": '"release desk"',
        "until": UNTIL,
    } | changes
    lines = [f"{key} = {value}" for key, value in entry.items() if value]
    (project / "waivers.toml").write_text("schema = 1\n[[waiver]]\n" + "\n".join(lines) + "\n")
    config = write_gate(project, candidate=PLAIN, claim="control")
    extra = f'\n[[criteria]]\nname = "extra"\nmeasure = "{MEASURE}"\nrule = "at_least"\n'
    config.write_text(config.read_text() + extra)
    return config


REFUSED = (
    ({"criterion": '"no such"'}, "there is no such criterion"),
    ({"reason": '""'}, "reason = ''"),
    ({"reason": ""}, "reason"),
    ({"who": '" "'}, "who = ' '"),
    ({"who": r'"a\u001b[2J"'}, "printable"),
    ({"until": "2020-01-01"}, "it ended on 2020-01-01"),
    ({"until": "2999-01-01"}, "days away"),
    ({"until": '"soon"'}, "until"),
    ({"group": '"nobody"'}, "group = 'nobody'"),
    ({"whom": '"x"'}, "whom"),
    ({"criterion": '"baseline certificate"'}, "cannot be waived"),
    ({"criterion": '"pairs kept"'}, "cannot be waived"),
)


@pytest.mark.parametrize(("change", "named"), REFUSED)
def test_a_bad_waiver_is_refused_in_one_sentence(
    project: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], named: str
) -> None:
    config = write_waiver(project, **change)
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    assert named in said


@pytest.mark.parametrize("name", ["token certificate", "termination", "exercised", "conformance"])
def test_what_a_lossless_claim_means_cannot_be_waived(
    project: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    config = write_waiver(project, criterion=f'"{name}"')
    config.write_text(config.read_text().replace('"control"', '"lossless"'))
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    assert "cannot be waived" in capsys.readouterr().err


def test_a_named_file_must_be_there(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_gate(project, run='waivers = "signed.toml"')
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    assert "signed.toml" in capsys.readouterr().err


def test_a_waived_run_passes_and_says_so_on_every_surface(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_waiver(project)
    assert main(["run", "--config", str(config), "--quiet"]) == 0
    said, folder = capsys.readouterr().out, project / "reports/latest"
    decision = json.loads((folder / "decision.json").read_text())
    assert decision["outcome"] == "PASS"
    assert decision["reason"].startswith("PASS with 1 waiver [extra (all), signed by release desk")
    assert decision["expires_at"] == f"{THE_DAY_AFTER}T00:00:00+00:00"
    assert [one["criterion"] for one in decision["waivers"]] == ["extra"]
    summary = (folder / "summary.md").read_text()
    assert summary.splitlines()[0].endswith("PASS with 1 waiver")
    assert "waived until " in summary
    assert f"Waived until {UNTIL} by release desk" in (folder / "report.html").read_text()
    junit = ET.fromstring((folder / "junit.xml").read_text())
    skipped = [case.find("skipped") for case in junit.iter("testcase") if case.get("name") == "all"]
    assert any("waived until" in one.get("message", "") for one in skipped if one is not None)
    assert "PASS with 1 waiver" in said
    (project / "waivers.toml").unlink()
    assert main(["run", "--config", str(config), "--quiet"]) == 4


def test_a_waiver_that_is_not_needed_is_reported(project: Path) -> None:
    config = write_waiver(project, criterion='"task alarm"', group='"toy_maths"')
    config.write_text(config.read_text().partition('\n[[criteria]]\nname = "extra"')[0])
    assert main(["run", "--config", str(config), "--quiet"]) == 0
    decision = json.loads((project / "reports/latest/decision.json").read_text())
    assert any("was not needed" in note for note in decision["notes"])
    assert not decision["waivers"]
    (project / "waivers.toml").unlink()


def test_a_waiver_nobody_committed_is_reported(project: Path) -> None:
    config = write_waiver(project)
    git("init", project)
    assert main(["run", "--config", str(config), "--quiet"]) == 0
    decision = json.loads((project / "reports/latest/decision.json").read_text())
    assert any("not committed" in note for note in decision["notes"])
    (project / "waivers.toml").unlink()


def git(word: str, folder: Path) -> None:
    subprocess.run(["git", "-C", str(folder), word, "-q"], check=True)  # noqa: S603, S607

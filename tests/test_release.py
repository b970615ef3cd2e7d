"""A decision held to what is about to be deployed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gate.cli import main
from gate.errors import UsageError
from gate.provenance import make_surface
from gate.records import Decision
from gate.store import ENCODER, read_decision, seal
from gate.surface import Surface, write_surface
from tests import toy_project
from tests.export.builders import make_decision, make_verdict
from tests.toy_project import write_gate

VALUES: dict[str, dict[str, object]] = {
    "weights": {"sha256": "aa"},
    "runtime": {"dtype": "float32", "torch": "2.13.0"},
    "decoder": {"kind": "lookahead", "options": {"window": 5}},
}


def describe(values: dict[str, dict[str, object]]) -> Surface:
    hashes = make_surface(values)
    return Surface(hash=hashes.pop("hash"), parts=hashes, values=values)


def make_sealed(outcome: str = "PASS", **changes: Any) -> Decision:
    """Return a decision on VALUES as a run writes it."""
    fields: dict[str, Any] = {"surface": make_surface(VALUES), "surface_values": VALUES}
    return seal(make_decision(outcome, make_verdict(outcome), **(fields | changes)))


@pytest.fixture
def check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[Decision | bytes, Surface | bytes], tuple[int, str]]:
    """Write both files, run 'gate check', return its exit code and all it said."""

    def run(decision: Decision | bytes, surface: Surface | bytes) -> tuple[int, str]:
        files = [tmp_path / "decision.json", tmp_path / "surface.json"]
        for path, value in zip(files, (decision, surface), strict=True):
            path.write_bytes(value if isinstance(value, bytes) else ENCODER.encode(value))
        code = main(["check", "--decision", str(files[0]), "--surface", str(files[1])])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


Check = Callable[[Decision | bytes, Surface | bytes], tuple[int, str]]


def test_the_same_surface_in_time_with_a_pass_may_be_deployed(check: Check) -> None:
    code, said = check(make_sealed(), describe(VALUES))
    assert code == 0
    assert "may be deployed until 2999-01-01" in said


@pytest.mark.parametrize("outcome", ["FAIL", "INCONCLUSIVE", "ERROR"])
def test_every_other_outcome_is_refused_with_its_reason(check: Check, outcome: str) -> None:
    code, said = check(make_sealed(outcome), describe(VALUES))
    assert code == 3
    assert f"is {outcome}, not PASS: the decision is {outcome}" in said


def test_an_expired_decision_is_refused(check: Check) -> None:
    code, said = check(make_sealed(expires_at="2026-01-01T00:00:00+00:00"), describe(VALUES))
    assert code == 3
    assert "expired at 2026-01-01" in said


def test_a_control_is_refused(check: Check) -> None:
    code, said = check(make_sealed(claim="control"), describe(VALUES))
    assert code == 3
    assert "control" in said


CHANGES = (
    ("runtime", {"dtype": "bfloat16", "torch": "2.13.0"}, "dtype is bfloat16", "covers float32"),
    ("runtime", {"dtype": "float32"}, "torch is nothing", "covers 2.13.0"),
    ("weights", {"sha256": "bb"}, "sha256 is bb", "covers aa"),
    (
        "decoder",
        {"kind": "lookahead", "options": {"window": 7}},
        "options.window is 7",
        "covers 5",
    ),
)


@pytest.mark.parametrize(("part", "value", "now", "then"), CHANGES)
def test_a_difference_is_named_by_its_part_with_both_values(
    check: Check, part: str, value: dict[str, object], now: str, then: str
) -> None:
    code, said = check(make_sealed(), describe(VALUES | {part: value}))
    assert code == 3
    assert f"the {part} to be deployed is not what was judged" in said
    assert now in said
    assert then in said


def test_a_part_that_is_missing_is_a_difference(check: Check) -> None:
    fewer = {k: v for k, v in VALUES.items() if k != "decoder"}
    code, said = check(make_sealed(), describe(fewer))
    assert code == 3
    assert "the decoder to be deployed" in said
    code, said = check(make_sealed(), describe(VALUES | {"plugin": {}}))
    assert code == 3
    assert "the plugin to be deployed" in said


def edit(decision: Decision, **changes: object) -> bytes:
    """Change fields of a file behind the gate's back."""
    return json.dumps(json.loads(ENCODER.encode(decision)) | changes).encode()


EDITS = (
    {"outcome": "PASS"},
    {"expires_at": "2999-12-31T00:00:00Z"},
    {"claim": "bounded"},
    {"reason": "all is well"},
    {"digest": "sha256:" + "0" * 64},
)


@pytest.mark.parametrize("change", EDITS)
def test_an_edited_decision_is_a_bad_file(check: Check, change: dict[str, object]) -> None:
    code, said = check(edit(make_sealed("FAIL"), **change), describe(VALUES))
    assert code == 2
    assert "edited" in said


def test_an_edited_decision_is_not_reported_either(tmp_path: Path) -> None:
    path = tmp_path / "decision.json"
    path.write_bytes(edit(make_sealed("FAIL"), outcome="PASS"))
    assert main(["report", str(path)]) == 2
    assert not (tmp_path / "report.html").exists()


def test_a_decision_whose_digest_was_taken_out_is_not_reported_either(tmp_path: Path) -> None:
    path = tmp_path / "decision.json"
    path.write_bytes(edit(make_sealed("FAIL"), outcome="PASS", digest=""))
    assert main(["report", str(path)]) == 2
    assert not (tmp_path / "report.html").exists()


def test_spacing_and_order_of_keys_are_no_edit(tmp_path: Path) -> None:
    path = tmp_path / "decision.json"
    fields = json.loads(ENCODER.encode(make_sealed()))
    path.write_text(json.dumps(dict(reversed(fields.items())), indent=7))
    assert read_decision(path).outcome == "PASS"


CONTRADICTIONS = (
    ({"digest": ""}, "no digest"),
    ({"surface": {"hash": "sha256:00"}}, "surface hashes"),
    ({"verdicts": ()}, "no blocking criterion was judged"),
    ({"verdicts": (make_verdict("FAIL"),)}, "one of its blocking verdicts does not"),
    ({"verdicts": (make_verdict("NOT_JUDGED"),)}, "no blocking criterion was judged"),
    ({"schema": 2}, "schema 2"),
)


@pytest.mark.parametrize(("change", "named"), CONTRADICTIONS)
def test_a_decision_that_contradicts_itself_is_a_bad_file(
    check: Check, change: dict[str, Any], named: str
) -> None:
    changed = msgspec.structs.replace(make_sealed(), **change)
    code, said = check(changed if "digest" in change else seal(changed), describe(VALUES))
    assert code == 2
    assert named in said


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"schema": 1'])
def test_files_that_are_not_what_they_should_be_are_bad_files(check: Check, data: bytes) -> None:
    assert check(data, describe(VALUES))[0] == 2
    assert check(make_sealed(), data)[0] == 2


def test_an_edited_surface_is_a_bad_file(check: Check) -> None:
    true, other = describe(VALUES), describe(VALUES | {"weights": {"sha256": "bb"}})
    lying = msgspec.structs.replace(other, hash=true.hash, parts=true.parts)
    code, said = check(make_sealed(), lying)
    assert code == 2
    assert "edited" in said


def test_model_text_in_a_reason_stays_on_its_line(check: Check) -> None:
    code, said = check(make_sealed("FAIL", reason="a\x1b[2Jb\nPASS: c"), describe(VALUES))
    assert code == 3
    assert "\x1b" not in said
    assert "\nPASS" not in said


def test_report_says_that_a_decision_expired_and_returns_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "decision.json"
    path.write_bytes(ENCODER.encode(make_sealed(expires_at="2026-01-01T00:00:00+00:00")))
    assert main(["report", str(path)]) == 3
    assert "no longer stands" in capsys.readouterr().err
    page = (tmp_path / "report.html").read_text()
    assert "PASS, expired</h1>" in page
    assert "Do not ship on this page" in page
    assert "Ready to sign" not in page
    assert "is-PASS" not in page.split("</h1>")[0].rpartition("<section")[2]
    assert "has expired" in (tmp_path / "summary.md").read_text().splitlines()[0]


def test_a_pass_without_any_evidence_is_not_drawn_whatever_its_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "decision.json"
    forged = seal(msgspec.structs.replace(make_sealed(), verdicts=()))
    path.write_bytes(ENCODER.encode(forged))
    assert main(["report", str(path)]) == 2
    assert "no blocking criterion was judged" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_a_run_and_gate_surface_say_the_same(toy: Any, tmp_path: Path) -> None:
    folder = toy_project.write_project(tmp_path, toy)
    config, target = write_gate(folder), folder / "surface.json"
    assert main(["run", "--config", str(config), "--quiet"]) == 0
    decision = folder / "reports/latest/decision.json"
    arguments = ["check", "--decision", str(decision), "--surface", str(target)]
    assert main(["surface", "--config", str(config), "--out", str(target)]) == 0
    assert main(arguments) == 0
    config.write_text(
        config.read_text().replace('kind = "lookahead"', 'kind = "lookahead"\nwindow = 7')
    )
    assert main(["surface", "--config", str(config), "--out", str(target)]) == 0
    assert main(arguments) == 3


def test_earlier_runs_are_counted_wherever_they_went_and_however_they_ended(
    toy: Any, tmp_path: Path
) -> None:
    folder = toy_project.write_project(tmp_path, toy)
    config = write_gate(folder, candidate=toy_project.faulty("relaxed"))
    assert main(["run", "--config", str(config), "--quiet"]) == 3
    elsewhere = folder / "elsewhere"
    assert main(["run", "--config", str(config), "--quiet", "--out", str(elsewhere)]) == 3
    found = read_decision(elsewhere / "latest")
    assert (found.earlier_runs, found.earlier_outcomes) == (1, {"FAIL": 1})
    assert "1 FAIL" in (elsewhere / "latest/summary.md").read_text()


def test_how_long_a_decision_is_valid_is_configured(toy: Any, tmp_path: Path) -> None:
    folder = toy_project.write_project(tmp_path, toy)
    config = write_gate(folder, candidate=toy_project.PLAIN, claim="control", run="valid_days = 7")
    main(["run", "--config", str(config), "--quiet"])
    found = read_decision(folder / "reports/latest")
    assert found.expires_at[:10] > found.created_at[:10]
    config.write_text(config.read_text().replace("valid_days = 7", "valid_days = 0"))
    assert main(["run", "--config", str(config), "--quiet"]) == 2


def test_write_and_read_a_surface(tmp_path: Path) -> None:
    write_surface(tmp_path / "a.json", describe(VALUES))
    assert json.loads((tmp_path / "a.json").read_text())["values"] == VALUES


def test_a_surface_is_not_written_over_a_folder(tmp_path: Path) -> None:
    surface = describe({"runtime": {"dtype": "float32"}})
    with pytest.raises(UsageError, match=r"a folder; name the file to write"):
        write_surface(tmp_path, surface)
    assert list(tmp_path.iterdir()) == []

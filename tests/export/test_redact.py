"""The redacted copy: no prompt, output, token or message on any surface, every figure kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gate.cli import main
from gate.export.junit import render_junit
from gate.export.redact import HIDDEN, UNJUDGED, redact
from gate.export.summary import render_summary
from gate.reasons import MOST_OFTEN
from gate.records import Alternative, Comparison, Decision, Outcome, TokenView
from gate.report import render_html
from gate.store import encode_record, read_decision, seal
from tests.report.builders import FACTORIES, make_decision, make_error, make_full
from tests.report.parts import make_fork

QUOTED = "the patient's name is Q7-SECRET"
TOKEN = TokenView(token_id=7007, text=QUOTED)


def make_secret() -> Decision:
    """Return a decision with a secret wherever prompts, outputs and messages go."""
    fork = msgspec.structs.replace(
        make_fork("defect"),
        prompt=QUOTED, before=QUOTED, after_baseline=QUOTED, after_candidate=QUOTED,
        token_baseline=TOKEN, token_candidate=TOKEN,
        tokens_baseline=(QUOTED, QUOTED), tokens_candidate=(QUOTED,),
        alternatives=(Alternative(token=TOKEN, behind_nat=0.5),),
    )  # fmt: skip
    flip = {"request_id": "r1", "baseline_label": "valid", "candidate_label": "invalid",
            "baseline_text": QUOTED, "candidate_text": QUOTED}  # fmt: skip
    details: dict[str, dict[str, object]] = {
        "guard_flips": {"flipped": [flip]},
        "conformance": {"failures": [{"request_id": "r2", "what": "stop", "expected": QUOTED,
                                      "came": QUOTED}]},
        "error_rate": {"candidate_errors": {QUOTED: 3}, "baseline_errors": {}},
        "termination": {"faults": [{"request_id": "r3", "kind": "late", "message": QUOTED}]},
        "token_defects": {"defects": [{"request_id": "r4", "token_id": 7007, "best_id": 7007}]},
        "a new measure": {"anything": QUOTED, "deep": {"deeper": [QUOTED, {"deepest": QUOTED}]}},
    }  # fmt: skip
    old = make_full()
    comparisons = tuple(Comparison(measure=name, detail=one) for name, one in details.items())
    quoting = f"the candidate failed 3%{MOST_OFTEN}{QUOTED}; and 1 more."
    verdicts = tuple(
        msgspec.structs.replace(one, reason=quoting, comparison=comparisons[2])
        for one in old.verdicts
    )
    return msgspec.structs.replace(
        old, reason=quoting, notes=(f"the server said: {QUOTED}",), verdicts=verdicts,
        comparisons=comparisons, forks=(fork,))  # fmt: skip


def render_all(decision: Decision) -> str:
    surfaces = (render_html, render_summary, render_junit)
    return "\n".join([one(decision) for one in surfaces]) + encode_record(decision).decode()


def test_no_surface_of_the_redacted_copy_holds_a_secret() -> None:
    secret = make_secret()
    assert "Q7-SECRET" in render_all(secret)
    shared = render_all(redact(secret))
    assert "Q7-SECRET" not in shared
    assert "7007" not in shared
    assert HIDDEN in shared


def test_figures_names_and_labels_stay() -> None:
    shared = redact(make_secret())
    assert shared.forks[0].position == make_fork().position
    assert shared.forks[0].kind == "defect"
    assert shared.forks[0].alternatives[0].behind_nat == 0.5
    by_name = {one.measure: one.detail for one in shared.comparisons}
    flips = by_name["guard_flips"]["flipped"]
    assert isinstance(flips, list)
    assert flips[0]["candidate_label"] == "invalid"
    assert by_name["error_rate"]["candidate_errors"] == {HIDDEN: 3}


def test_a_class_that_a_measure_names_stays_in_every_sentence() -> None:
    """It was blanked out of the names of tasks that hold it, such as toy_structured."""
    named = Comparison(measure="a", group="structured", detail={"name": "structured"})
    decision = msgspec.structs.replace(
        make_decision(), comparisons=(named,), notes=("task alarm (toy_structured): not judged",)
    )
    assert redact(decision).notes[1:] == decision.notes


@pytest.mark.parametrize("factory", FACTORIES)
def test_the_outcome_and_its_verdicts_stay_and_the_copy_says_what_it_is(
    factory: Callable[[], Decision],
) -> None:
    decision = factory()
    shared = redact(decision)
    assert [v.outcome for v in shared.verdicts] == [v.outcome for v in decision.verdicts]
    assert (shared.outcome, shared.content, shared.gain) == (
        decision.outcome, decision.content, decision.gain)  # fmt: skip
    assert shared.notes[0].startswith("Redacted:")


def test_an_error_that_may_quote_what_broke_is_named_without_it() -> None:
    broken = msgspec.structs.replace(make_error(), reason=f"the run broke: {QUOTED}")
    assert redact(broken).reason == UNJUDGED


def test_redacting_twice_changes_nothing_more() -> None:
    once = redact(make_secret())
    twice = redact(once)
    assert msgspec.structs.replace(twice, notes=twice.notes[1:]) == once


def test_the_command_writes_the_copy_beside_the_report_and_leaves_that_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "decision.json").write_bytes(encode_record(seal(make_secret())))
    main(["report", str(tmp_path)])
    before = (tmp_path / "report.html").read_bytes()
    main(["report", str(tmp_path), "--redact"])
    assert (tmp_path / "report.html").read_bytes() == before
    written = sorted(path.name for path in (tmp_path / "redacted").iterdir())
    assert written == ["decision.json", "junit.xml", "report.html", "summary.md"]
    for path in (tmp_path / "redacted").iterdir():
        assert b"Q7-SECRET" not in path.read_bytes()
    assert read_decision(tmp_path / "redacted").outcome == Outcome.FAIL


def test_a_redacted_copy_never_replaces_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "decision.json").write_bytes(encode_record(seal(make_secret())))
    assert main(["report", str(tmp_path), "--redact", "--out", str(tmp_path)]) == 2
    assert "would replace the run itself" in capsys.readouterr().err
    assert b"Q7-SECRET" in (tmp_path / "decision.json").read_bytes()


def test_a_short_text_does_not_blank_out_ordinary_words() -> None:
    fork = msgspec.structs.replace(make_fork(), prompt="the", before="a", after_baseline="")
    decision = make_decision(forks=(fork,))
    assert redact(decision).reason == decision.reason

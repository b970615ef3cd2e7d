"""--gate-decision: one item per verdict, and one for the decision."""

from __future__ import annotations

from importlib.metadata import entry_points

import msgspec
import pytest

from gate.records import SCHEMA, Verdict, Waiver
from gate.store import encode_record, seal
from tests.export.builders import make_decision, make_verdict
from tests.plugin.running import run_on, write_decision

pytest_plugins = ("pytester",)


def test_installing_the_gate_installs_the_plugin() -> None:
    assert [point.value for point in entry_points(group="pytest11", name="gate")] == ["gate.plugin"]


def test_each_verdict_is_an_item_and_so_is_the_decision(pytester: pytest.Pytester) -> None:
    decision = make_decision("PASS", make_verdict("PASS"), make_verdict("PASS", "termination"))
    result = run_on(pytester, decision, "-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "*collected 3 items",
            "decision.json::token certificate[[]all] PASSED*",
            "decision.json::termination[[]all] PASSED*",
            "decision.json::decision PASSED*",
        ]
    )
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("outcome", ["FAIL", "INCONCLUSIVE"])
def test_what_stops_the_release_fails_with_its_reason(
    pytester: pytest.Pytester, outcome: str
) -> None:
    result = run_on(pytester, make_decision(outcome, make_verdict(outcome), make_verdict("PASS")))
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(
        [
            f"{outcome}: token certificate came to {outcome}",
            f"FAILED *::decision - *{outcome}: the decision is*",
        ]
    )


def test_an_error_shows_as_an_error(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, make_decision("ERROR", make_verdict("ERROR")))
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["ERROR *::decision - *ERROR: the decision is ERROR"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("outcome", ["FAIL", "INCONCLUSIVE", "ERROR", "NOT_JUDGED"])
def test_a_verdict_that_does_not_block_is_skipped_with_its_reason(
    pytester: pytest.Pytester, outcome: str
) -> None:
    verdict = make_verdict(outcome, "guard flips", blocking=False)
    result = run_on(pytester, make_decision("PASS", make_verdict("PASS"), verdict), "-rs")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED*{outcome}: guard flips came to {outcome}"])


def test_a_gain_that_was_not_judged_is_skipped(pytester: pytest.Pytester) -> None:
    verdict = make_verdict("NOT_JUDGED", "speed-up")
    result = run_on(pytester, make_decision("PASS", make_verdict("PASS"), verdict))
    result.assert_outcomes(passed=2, skipped=1)


@pytest.mark.parametrize("outcome", ["FAIL", "INCONCLUSIVE", "NOT_JUDGED"])
def test_only_pass_passes_whatever_the_verdicts_say(
    pytester: pytest.Pytester, outcome: str
) -> None:
    result = run_on(pytester, make_decision(outcome, make_verdict("PASS")))
    result.assert_outcomes(failed=1, passed=1)


@pytest.mark.parametrize(
    "verdicts",
    [
        (),
        (make_verdict("NOT_JUDGED"),),
        (make_verdict("PASS", blocking=False),),
    ],
    ids=["no verdict", "nothing judged", "nothing blocking"],
)
def test_a_pass_without_evidence_fails(
    pytester: pytest.Pytester, verdicts: tuple[Verdict, ...]
) -> None:
    result = run_on(pytester, make_decision("PASS", *verdicts))
    result.stdout.fnmatch_lines(["no evidence: it says PASS, and no blocking criterion passed (*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_the_decision_runs_beside_the_users_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    result = run_on(pytester, make_decision("PASS", make_verdict("PASS")))
    result.assert_outcomes(passed=3)


def test_a_decision_outside_the_rootdir_is_read(
    pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    path = write_decision(elsewhere, make_decision("PASS", make_verdict("PASS")))
    pytester.runpytest(f"--gate-decision={path}").assert_outcomes(passed=2)


def test_without_the_option_nothing_is_added(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    pytester.runpytest().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "*No such file*"),
        (b"", "*"),
        (b"\xff\xfe", "*"),
        (b'{"outcome": "PASS"}', "*missing required field*"),
        (
            msgspec.json.encode(make_decision("PASS")).replace(b'"PASS"', b'"GREEN"', 1),
            "*GREEN*",
        ),
        (msgspec.json.encode(make_decision("PASS")), "it has no digest, *"),
        (
            encode_record(seal(make_decision("PASS", schema=SCHEMA + 1))),
            f"has schema {SCHEMA + 1}, and this version reads {SCHEMA}*",
        ),
    ],
    ids=["missing", "empty", "not UTF-8", "half", "unknown outcome", "no digest", "newer schema"],
)
def test_a_file_that_is_no_decision_is_a_usage_error(
    pytester: pytest.Pytester, content: bytes | None, problem: str
) -> None:
    path = pytester.path / "decision.json"
    if content is not None:
        path.write_bytes(content)
    result = pytester.runpytest("--gate-decision", str(path))
    result.stderr.fnmatch_lines([f"ERROR: --gate-decision {path}: {problem}; *"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_terminal_escapes_in_a_reason_are_shown_not_obeyed(pytester: pytest.Pytester) -> None:
    verdict = msgspec.structs.replace(make_verdict("FAIL"), reason="red \x1b[31m text")
    result = run_on(pytester, make_decision("FAIL", verdict))
    assert "\x1b" not in result.stdout.str()
    result.stdout.fnmatch_lines([r"*red \x1b[[]31m text*"])


@pytest.mark.parametrize(
    ("expires_at", "named"),
    [
        ("2026-01-01T00:00:00Z", "*it expired at 2026-01-01T00:00:00*run the gate again*"),
        ("soon", "*'soon' is not a time*"),
    ],
)
@pytest.mark.parametrize("mode", ["fail", "warn", "skip"])
def test_an_expired_decision_fails_whatever_it_says(
    pytester: pytest.Pytester, expires_at: str, named: str, mode: str
) -> None:
    decision = make_decision("PASS", make_verdict("PASS"), expires_at=expires_at)
    result = run_on(pytester, decision, f"--gate-inconclusive={mode}")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([named])


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [("PASS", "FAIL"), ("PASS", "INCONCLUSIVE"), ("INCONCLUSIVE", "FAIL"), ("PASS", "ERROR")],
)
@pytest.mark.parametrize("mode", ["fail", "warn", "skip"])
def test_a_decision_that_contradicts_its_verdicts_never_passes(
    pytester: pytest.Pytester, outcome: str, verdict: str, mode: str
) -> None:
    decision = make_decision(outcome, make_verdict("PASS"), make_verdict(verdict, "termination"))
    result = run_on(pytester, decision, f"--gate-inconclusive={mode}", "-k", "no_verdict")
    found = result.parseoutcomes()
    assert found.get("failed", 0) + found.get("errors", 0) == 1


def test_two_verdicts_of_one_name_are_two_items(pytester: pytest.Pytester) -> None:
    decision = make_decision("FAIL", make_verdict("PASS"), make_verdict("FAIL"))
    result = run_on(pytester, decision, "-v")
    result.stdout.fnmatch_lines(
        ["*::token certificate[[]all] PASSED*", "*::#2 token certificate[[]all] FAILED*"]
    )


def test_names_from_a_file_stay_on_one_line(pytester: pytest.Pytester) -> None:
    verdict = make_verdict("PASS", "a::b\nc\x1b[31m")
    result = run_on(pytester, make_decision("PASS", verdict), "-v")
    assert "\x1b" not in result.stdout.str()
    result.stdout.fnmatch_lines([r"decision.json::a: :b\nc\x1b[[]31m[[]all] PASSED*"])


def test_a_run_and_a_decision_at_once_are_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--gate-decision", "a.json", "--gate-config", "gate.toml")
    result.stderr.fnmatch_lines(["ERROR: *name one of the two"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("outcome", ["FAIL", "INCONCLUSIVE"])
def test_a_waived_verdict_is_skipped_and_never_silent(
    pytester: pytest.Pytester, outcome: str
) -> None:
    waiver = Waiver(criterion="termination", reason="known", who="Ada", until="2999-01-01")
    verdict = make_verdict(outcome, "termination", waiver=waiver)
    result = run_on(pytester, make_decision("PASS", make_verdict("PASS"), verdict), "-rs")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(
        [
            f"  {outcome} termination[[]all], waived until 2999-01-01 by Ada: known",
            f"SKIPPED*{outcome}: termination came to {outcome} (waived until *by Ada: known)",
        ]
    )

"""--gate-inconclusive: what INCONCLUSIVE does, and what it never touches."""

from __future__ import annotations

import pytest

from gate.records import Decision
from tests.export.builders import make_decision, make_verdict
from tests.plugin.running import run_on

pytest_plugins = ("pytester",)

INCONCLUSIVE = make_decision(
    "INCONCLUSIVE", make_verdict("INCONCLUSIVE"), make_verdict("PASS", "termination")
)


def test_inconclusive_fails_by_default(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, INCONCLUSIVE)
    result.assert_outcomes(failed=2, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_warn_passes_with_a_warning_per_item(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, INCONCLUSIVE, "--gate-inconclusive=warn", "-W", "default")
    result.assert_outcomes(passed=3, warnings=2)
    result.stdout.fnmatch_lines(
        [
            "*InconclusiveWarning: INCONCLUSIVE: token certificate came to INCONCLUSIVE",
            "*InconclusiveWarning: INCONCLUSIVE: the decision is INCONCLUSIVE",
            "INCONCLUSIVE (content INCONCLUSIVE, gain NOT_JUDGED)*",
        ]
    )
    assert result.ret == pytest.ExitCode.OK


def test_a_warning_is_a_failure_where_warnings_are_errors(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, INCONCLUSIVE, "--gate-inconclusive=warn", "-W", "error")
    result.assert_outcomes(failed=2, passed=1)


def test_skip_skips_with_the_reason(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, INCONCLUSIVE, "--gate-inconclusive=skip", "-rs")
    result.assert_outcomes(skipped=2, passed=1)
    result.stdout.fnmatch_lines(["SKIPPED*INCONCLUSIVE: the decision is INCONCLUSIVE"])
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("quiet", [(), ("-q",), ("-qq",), ("-q", "--no-summary")])
def test_where_every_item_is_skipped_the_outcome_is_still_said(
    pytester: pytest.Pytester, quiet: tuple[str, ...]
) -> None:
    decision = make_decision("INCONCLUSIVE", make_verdict("INCONCLUSIVE"))
    result = run_on(pytester, decision, "--gate-inconclusive=skip", *quiet)
    result.stdout.fnmatch_lines(["INCONCLUSIVE (content INCONCLUSIVE, *", "the decision is *"])


@pytest.mark.parametrize("mode", ["warn", "skip"])
@pytest.mark.parametrize(
    "decision",
    [
        make_decision("ERROR", make_verdict("INCONCLUSIVE"), make_verdict("ERROR", "termination")),
        make_decision("ERROR"),
        make_decision("FAIL", make_verdict("INCONCLUSIVE"), make_verdict("FAIL", "termination")),
        make_decision("NOT_JUDGED", make_verdict("NOT_JUDGED")),
        make_decision("PASS", make_verdict("NOT_JUDGED")),
        make_decision("INCONCLUSIVE", make_verdict("ERROR")),
    ],
    ids=["error", "error alone", "fail", "not judged", "no evidence", "error inside"],
)
def test_nothing_but_inconclusive_is_forgiven(
    pytester: pytest.Pytester, mode: str, decision: Decision
) -> None:
    result = run_on(pytester, decision, f"--gate-inconclusive={mode}")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_another_word_is_refused(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, INCONCLUSIVE, "--gate-inconclusive=ignore")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--gate-inconclusive*ignore*"])

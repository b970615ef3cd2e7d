"""-k, -m, --lf, --deselect, -x, --collect-only and -p no:gate: selecting is not passing."""

from __future__ import annotations

import pytest

from tests.export.builders import make_decision, make_verdict
from tests.plugin.running import run_on, write_decision

pytest_plugins = ("pytester",)

FAILING = make_decision("FAIL", make_verdict("FAIL"), make_verdict("PASS", "termination"))
PASSING = make_decision("PASS", make_verdict("PASS"), make_verdict("PASS", "termination"))
LEFT_OUT = "{} of 2 verdicts were not run here (deselected, or pytest stopped)*"


@pytest.mark.parametrize(
    "selection", [("-k", "nothing_else"), ("-m", "slow"), ("--deselect", "decision.json")]
)
def test_the_decision_runs_whatever_is_selected(
    pytester: pytest.Pytester, selection: tuple[str, str]
) -> None:
    pytester.makeini("[pytest]\nmarkers = slow")
    pytester.makepyfile("def test_mine(): pass")
    result = run_on(pytester, FAILING, *selection)
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["*FAIL: the decision is FAIL*", LEFT_OUT.format(2)])


def test_a_verdict_is_selected_by_its_name(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, PASSING, "-k", "termination", "-v")
    result.assert_outcomes(passed=2, deselected=1)
    result.stdout.fnmatch_lines(["*::termination[[]all] PASSED*", LEFT_OUT.format(1)])


def test_the_items_carry_the_marker_gate(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    run_on(pytester, PASSING, "-m", "gate", "--strict-markers").assert_outcomes(
        passed=3, deselected=1
    )


def test_a_deselected_failing_verdict_still_fails_the_run(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, FAILING, "-k", "termination")
    result.assert_outcomes(passed=1, failed=1, deselected=1)


def test_last_failed_runs_what_failed_and_the_decision(pytester: pytest.Pytester) -> None:
    run_on(pytester, FAILING)
    result = run_on(pytester, FAILING, "--lf", "-v")
    result.assert_outcomes(failed=2, deselected=1)
    assert "termination" not in "".join(x for x in result.outlines if "PASSED" in x)


def test_last_failed_keeps_a_decision_that_passed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): assert False")
    run_on(pytester, PASSING)
    result = run_on(pytester, PASSING, "--lf", "-v")
    result.assert_outcomes(failed=1, passed=1, deselected=2)
    result.stdout.fnmatch_lines(["decision.json::decision PASSED*", LEFT_OUT.format(2)])


def test_stepwise_keeps_the_decision(pytester: pytest.Pytester) -> None:
    run_on(pytester, FAILING, "--stepwise")
    result = run_on(pytester, FAILING, "--stepwise")
    assert result.ret != pytest.ExitCode.OK


def test_stopping_at_the_first_failure_says_what_did_not_run(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, FAILING, "-x")
    result.stdout.fnmatch_lines([LEFT_OUT.format(1), "the item 'decision' did not run*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_conftest_that_drops_every_item_does_not_drop_the_decision(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest("def pytest_collection_modifyitems(items): items.clear()")
    run_on(pytester, FAILING).assert_outcomes(failed=1)


def test_collect_only_lists_stable_names(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, FAILING, "--collect-only", "-q")
    result.stdout.fnmatch_lines(
        [
            "decision.json::token certificate[[]all]",
            "decision.json::termination[[]all]",
            "decision.json::decision",
        ]
    )
    assert "did not run" not in result.stdout.str()


def test_collect_only_does_not_run_the_gate(pytester: pytest.Pytester) -> None:
    pytester.makefile(".toml", gate="this would be refused")
    result = pytester.runpytest("--gate-config", "gate.toml", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["gate.toml::decision"])
    assert result.ret == pytest.ExitCode.OK


def test_without_the_plugin_its_options_are_unknown(pytester: pytest.Pytester) -> None:
    path = write_decision(pytester.path, FAILING)
    result = pytester.runpytest_subprocess("-p", "no:gate.plugin", "--gate-decision", str(path))
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_without_the_plugin_other_tests_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.delenv("PYTEST_PLUGINS")
    pytester.makepyfile("def test_mine(): pass")
    pytester.runpytest_subprocess("-p", "no:gate").assert_outcomes(passed=1)


def test_a_test_file_named_on_the_command_line_does_not_lose_the_decision(
    pytester: pytest.Pytester,
) -> None:
    path = pytester.makepyfile("def test_mine(): pass")
    run_on(pytester, FAILING, str(path)).assert_outcomes(passed=2, failed=2)

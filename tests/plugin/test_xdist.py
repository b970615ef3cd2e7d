"""-n: every worker judges what the controller read, once; nothing is timed."""

from __future__ import annotations

import pytest

from tests.export.builders import make_decision, make_verdict
from tests.plugin.running import run_on

pytest_plugins = ("pytester",)

PARALLEL = ("-p", "xdist", "-n", "2")
DECISION = make_decision(
    "FAIL", make_verdict("FAIL"), make_verdict("PASS", "termination", reason="fine ✓")
)


def test_workers_run_each_item_once_and_the_summary_is_the_controllers(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_mine(): pass")
    result = run_on(pytester, DECISION, *PARALLEL)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*= decoding gate =*", "FAIL (content FAIL, *"])
    assert "were not run" not in result.stdout.str()


def test_what_workers_left_out_is_counted(pytester: pytest.Pytester) -> None:
    result = run_on(pytester, DECISION, *PARALLEL, "-k", "termination")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["1 of 2 verdicts were not run here*"])


def test_timing_is_refused_in_a_worker_and_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.gate_timing
        def test_mine(): pass
        """
    )
    result = pytester.runpytest(*PARALLEL, "--strict-markers")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["timing is refused under pytest-xdist*run without -n"])
    pytester.runpytest("--strict-markers").assert_outcomes(passed=1)


def test_a_release_is_not_run_under_xdist(pytester: pytest.Pytester) -> None:
    pytester.makefile(
        ".toml",
        gate="""
        schema = 1
        evalset = "none"
        purpose = "release"
        model.id = "none"
        baseline.kind = "autoregressive"
        candidate.kind = "lookahead"
        """,
    )
    result = pytester.runpytest(*PARALLEL, "--gate-config", "gate.toml")
    result.stderr.fnmatch_lines(["ERROR: --gate-config gate.toml: purpose = 'release' times both*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR

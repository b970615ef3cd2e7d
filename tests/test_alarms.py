"""Alarms: which take part in the run's error budget, and what they say they can show."""

from __future__ import annotations

from gate.criteria import Rules, find_reaching, judge_all
from gate.measures.bounds import compare_flags, describe_power, read_smallest_pvalue
from gate.records import Comparison, Criterion, Outcome, Verdict

ALPHA = 0.001
CRITERION = Criterion(
    name="task alarm", measure="task_delta", groups="each_task", rule="alarm", floor=0.05
)


def compare(task: str, n: int, n_lost: int) -> Comparison:
    estimate = compare_flags([True] * n, [False] * n_lost + [True] * (n - n_lost), 0.95)
    return Comparison(
        measure="task_delta",
        group=task,
        difference=estimate,
        detectable=f"{describe_power(n, 0.95)}; a loss only on the rest",
        detail={"n_units": n, "smallest_pvalue": read_smallest_pvalue(n)},
    )


def judge(*comparisons: Comparison) -> list[Verdict]:
    tasks = tuple(c.group for c in comparisons)
    rules = Rules(purpose="content", alpha=ALPHA, max_dropped=0.02, tasks=tasks)
    return judge_all([CRITERION], comparisons, rules)


def test_alarms_that_cannot_be_the_first_to_fire_take_no_part() -> None:
    assert find_reaching({0: 0.0, 1: 0.0004, 2: 0.0004}, ALPHA) == [0, 1]
    assert find_reaching({0: 0.0004, 1: 0.0003, 2: 0.0}, ALPHA) == [1, 2]
    assert find_reaching({0: 0.01}, ALPHA) == []
    assert find_reaching({}, ALPHA) == []


def test_an_alarm_that_cannot_reach_its_share_is_not_judged() -> None:
    large = [compare(f"large {n}", 60, 0) for n in range(4)]
    small, alone = compare("small", 12, 12), compare("alone", 12, 12)
    assert judge(*large, small)[-1].outcome is Outcome.NOT_JUDGED
    assert judge(alone)[0].outcome is Outcome.FAIL


def test_an_alarm_says_what_it_can_show_at_its_own_share_of_the_budget() -> None:
    verdict = judge(*(compare(f"task {n}", 70, 0) for n in range(20)))[0]
    assert verdict.comparison is not None
    expected = "a change on 26.7% of the 70 pairs or more (power 80%); a loss only on the rest"
    assert verdict.comparison.detectable == expected


def test_with_many_items_the_floor_decides_what_an_alarm_can_show() -> None:
    verdict = judge(compare("task", 1000, 0))[0]
    assert verdict.comparison is not None
    assert str(verdict.comparison.detectable).startswith("a change on 5.7% of the 1000 pairs")

"""The memorisation control: growth is told where there is any, and nothing is made up."""

from __future__ import annotations

from gate.measures.memorisation import compare_memory, describe_memory
from gate.records import DraftCount, MemoryControl


def control(first: tuple[int, int], second: tuple[int, int]) -> MemoryControl:
    """Counts of (accepted, drafted) the first and the second time."""
    counts = [DraftCount(n_accepted=a, n_drafted=d) for a, d in (first, second)]
    return MemoryControl(n_prompts=20, first=counts[0], second=counts[1], is_fresh=True)


def test_acceptance_that_grows_on_the_same_prompts_is_named_on_the_first_screen() -> None:
    found = control((12, 100), (99, 100))
    (comparison,) = compare_memory(found)
    assert comparison.candidate == 0.87
    assert "12.0%" in describe_memory(found)
    assert "99.0%" in describe_memory(found)


def test_equal_acceptance_is_no_memory() -> None:
    assert describe_memory(control((40, 100), (42, 100))) == ""


def test_nothing_drafted_is_no_share() -> None:
    (comparison,) = compare_memory(control((0, 0), (0, 0)))
    assert comparison.candidate is None
    assert "nothing was drafted" in str(comparison.note)


def test_no_control_is_no_comparison() -> None:
    assert compare_memory(None) == []
    assert describe_memory(None) == ""

"""Reading what measures left in ``detail`` and ``provenance``: JSON-like, never trusted.

A key that is missing or of another type reads as None, and the page says
"not measured"; rendering never fails over a measure's extra figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

from gate.export.outcomes import read_outcome
from gate.report.numbers import LARGEST
from gate.report.page import Badge
from gate.report.wording import OUTCOME_ICONS, OUTCOME_WORDS

if TYPE_CHECKING:
    from gate.records import Comparison, Criterion, Decision, Verdict

NOT_RECORDED = "not recorded"


def read_path(data: object, *path: str) -> object:
    """Return what lies under ``path`` in nested mappings, None where there is nothing."""
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def read_number(data: object, *path: str) -> float | int | None:
    """Return the number under ``path``, None where there is none that a float holds."""
    value = read_path(data, *path)
    return value if is_figure(value) else None


def is_figure(value: object) -> TypeGuard[float | int]:
    """Tell a number that a float holds: JSON has integers of any length."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= LARGEST


def read_items(data: object, *path: str) -> tuple[tuple[str, object], ...]:
    """Return the items of the mapping under ``path``, none where there is no mapping."""
    value = read_path(data, *path)
    return (
        tuple((str(key), item) for key, item in value.items()) if isinstance(value, Mapping) else ()
    )


def read_text(data: object, *path: str, default: str = NOT_RECORDED) -> str:
    """Return the text under ``path``, ``default`` where there is none."""
    value = read_path(data, *path)
    return default if value is None else write_value(value)


def write_value(value: object) -> str:
    """Return a JSON-like value as a reader writes it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {write_value(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(write_value(item) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def flatten(data: object, path: str = "") -> dict[str, str]:
    """Return nested mappings as ``{"decoder.options.window": "5"}``."""
    if not isinstance(data, Mapping) or not data:
        return {path: write_value(data)} if path else {}
    flat: dict[str, str] = {}
    for key, item in data.items():
        flat |= flatten(item, f"{path}.{key}" if path else str(key))
    return flat


def find_comparisons(decision: Decision, measure: str) -> tuple[Comparison, ...]:
    """Return the comparisons of ``measure``, those only a verdict carries included."""
    judged = (verdict.comparison for verdict in decision.verdicts)
    found: dict[str, Comparison] = {}
    for comparison in (*decision.comparisons, *judged):
        if comparison is not None and comparison.measure == measure:
            found.setdefault(comparison.group, comparison)
    return tuple(found.values())


def find_criterion(decision: Decision, verdict: Verdict) -> Criterion | None:
    """Return the criterion behind ``verdict``, None where the decision does not hold it."""
    return next((one for one in decision.criteria if one.name == verdict.criterion), None)


def find_verdict(decision: Decision, measure: str, group: str) -> Verdict | None:
    """Return the first verdict on ``measure`` and ``group``."""
    for verdict in decision.verdicts:
        comparison = verdict.comparison
        if comparison and (comparison.measure, comparison.group) == (measure, group):
            return verdict
    return None


def make_badge(outcome: str) -> Badge:
    """Return the badge of an outcome.

    Errors: RunError where the outcome is unknown.
    """
    known = read_outcome(outcome)
    return Badge(outcome=str(known), icon=OUTCOME_ICONS[known], words=OUTCOME_WORDS[known])


def badge_of(verdict: Verdict | None) -> Badge | None:
    """Return the badge of a verdict, None where there is none."""
    return make_badge(verdict.outcome) if verdict else None

"""Merging gate.toml's criteria into the default ones: what may be replaced, and with what."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gate.defaults import LOCKED, MEASURES, SHARES
from gate.errors import UsageError
from gate.records import Claim, Criterion


def merge_criteria(
    defaults: Sequence[Criterion], own: Sequence[Criterion], claim: Claim
) -> list[Criterion]:
    """Replace defaults by name, add the others. Raises UsageError naming the criterion."""
    for criterion in own:
        if criterion.measure not in MEASURES:
            msg = (
                f"criteria {criterion.name!r}: measure = {criterion.measure!r} is not one; "
                f"choose from {', '.join(sorted(MEASURES))}"
            )
            raise UsageError(msg)
        _check_numbers(criterion)
    by_name = {criterion.name: criterion for criterion in defaults}
    for criterion in own:
        known = by_name.get(criterion.name)
        if claim == "lossless" and known is not None and criterion.name in LOCKED:
            _check_locked(known, criterion)
        by_name[criterion.name] = criterion
    return list(by_name.values())


def _check_numbers(criterion: Criterion) -> None:
    """Refuse numbers against which nothing could ever fail."""
    for key in ("margin", "floor", "confidence_level"):
        value = getattr(criterion, key)
        if not math.isfinite(value):
            msg = f"criteria {criterion.name!r}: {key} = {value}; it must be a finite number"
            raise UsageError(msg)
    if criterion.margin < 0 or criterion.floor < 0 or criterion.min_pairs < 1:
        msg = (
            f"criteria {criterion.name!r}: margin = {criterion.margin}, floor = {criterion.floor}, "
            f"min_pairs = {criterion.min_pairs}; none may be negative, and min_pairs is at least 1"
        )
        raise UsageError(msg)
    if criterion.measure in SHARES and criterion.margin >= 1.0:
        msg = (
            f"criteria {criterion.name!r}: margin = {criterion.margin} is everything there is to "
            "lose; shares go from 0 to 1"
        )
        raise UsageError(msg)
    if not criterion.name.strip() or not criterion.name.isprintable():
        msg = f"criteria: name = {criterion.name!r}; give each a printable name"
        raise UsageError(msg)
    if not 0.5 < criterion.confidence_level < 1.0:  # noqa: PLR2004 - one side of an interval
        msg = (
            f"criteria {criterion.name!r}: confidence_level = {criterion.confidence_level}; "
            "it must lie above 0.5 and below 1"
        )
        raise UsageError(msg)


def _check_locked(known: Criterion, own: Criterion) -> None:
    tighter = own.margin >= known.margin if known.rule == "at_least" else own.margin <= known.margin
    checks = (
        ("measure", own.measure == known.measure, known.measure),
        ("rule", own.rule == known.rule, known.rule),
        ("groups", own.groups == known.groups, known.groups),
        ("blocking", own.blocking, True),
        ("margin", tighter, known.margin),
        ("min_pairs", own.min_pairs >= known.min_pairs, known.min_pairs),
        (
            "confidence_level",
            own.confidence_level >= known.confidence_level,
            known.confidence_level,
        ),
    )
    for key, holds, value in checks:
        if not holds:
            msg = (
                f"criteria {own.name!r}: {key} = {getattr(own, key)!r} would weaken it under claim "
                f"'lossless' (default {value!r}); tighten it, or declare claim = 'bounded'"
            )
            raise UsageError(msg)

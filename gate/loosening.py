"""What asks for less than it did when the baseline was approved: nobody loosens a margin unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from gate.baselines import Approved, find_changes
from gate.records import Criterion, DecoderSpec, Loosened

Asks = Callable[[Criterion, Criterion], bool]
LESS: Mapping[str, Asks] = {
    "margin": lambda old, new: (
        new.margin < old.margin if old.rule == "at_least" else new.margin > old.margin
    ),
    "floor": lambda old, new: new.floor > old.floor,
    "confidence_level": lambda old, new: new.confidence_level < old.confidence_level,
    "min_pairs": lambda old, new: new.min_pairs < old.min_pairs,
    "blocking": lambda old, new: old.blocking and not new.blocking,
    "measure": lambda old, new: new.measure != old.measure,
    "rule": lambda old, new: new.rule != old.rule,
    "groups": lambda old, new: new.groups != old.groups,
}
"""By key of a criterion: whether the new one asks for less, or for something else."""


def find_loosened(approved: Sequence[Criterion], now: Sequence[Criterion]) -> list[Loosened]:
    """Return every key of the approved criteria that asks for less today."""
    by_name = {criterion.name: criterion for criterion in now}
    return [
        found
        for criterion in approved
        for found in _compare(criterion, by_name.get(criterion.name))
    ]


def _compare(old: Criterion, new: Criterion | None) -> Iterator[Loosened]:
    if new is None:
        yield Loosened(criterion=old.name, key="criterion", approved="judged", now="not judged")
        return
    for key, asks_less in LESS.items():
        if asks_less(old, new):
            then, today = getattr(old, key), getattr(new, key)
            yield Loosened(criterion=old.name, key=key, approved=str(then), now=str(today))


def list_baseline_notes(
    approved: Approved | None,
    loosened: Sequence[Loosened],
    candidate: DecoderSpec,
    unused: Sequence[str],
) -> Iterator[str]:
    """Yield what the first screen says of the approved baseline."""
    for one in loosened:
        yield (
            f"looser than when the baseline was approved: {one.criterion}, {one.key} is "
            f"{one.now}, and was {one.approved}"
        )
    changes = find_changes(approved.manifest.candidate, candidate) if approved else []
    if approved and changes:
        yield (
            f"acceptance is not compared with the approved candidate's, which was another "
            f"decoder: {'; '.join(changes)}"
        )
    for name in unused:
        yield f"the baseline {name} is named by no configuration: gate baseline prune"

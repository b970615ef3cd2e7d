"""Whether the drafter remembers prompts: the same ones twice, after everything else."""

from __future__ import annotations

from gate.records import Comparison, DraftCount, MemoryControl

NOTABLE_GROWTH = 0.05  # of acceptance, from the first time to the second


def compare_memory(control: MemoryControl | None) -> list[Comparison]:
    """Return memorisation: the growth of acceptance on prompts that come again; not judged."""
    if control is None:
        return []
    first, second = share_of(control.first), share_of(control.second)
    detail: dict[str, object] = {
        "n_prompts": control.n_prompts,
        "first_accepted": control.first.n_accepted,
        "first_drafted": control.first.n_drafted,
        "second_accepted": control.second.n_accepted,
        "second_drafted": control.second.n_drafted,
        "fresh_server": control.is_fresh,
    }
    if first is None or second is None:
        note = f"{control.n_prompts} prompts came twice, and nothing was drafted"
        return [Comparison(measure="memorisation", unit="share", note=note, detail=detail)]
    note = (
        f"{control.n_prompts} prompts sent twice: {first:.1%} of the drafts were accepted the "
        f"first time, {second:.1%} the second"
    )
    return [
        Comparison(
            measure="memorisation",
            unit="share",
            candidate=second - first,
            note=note,
            detail=detail,
        )
    ]


def share_of(drafts: DraftCount) -> float | None:
    """Return the accepted share of what was drafted; None where nothing was, or none was told."""
    return drafts.n_accepted / drafts.n_drafted if drafts.n_drafted else None


def describe_memory(control: MemoryControl | None) -> str:
    """Return what belongs on the first screen; empty where the drafter does not remember."""
    found = compare_memory(control)
    growth = found[0].candidate if found else None
    if growth is None or growth < NOTABLE_GROWTH:
        return ""
    return f"the drafter remembers prompts ({found[0].note}): traffic without repeats gains less"

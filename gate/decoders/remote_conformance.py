"""Which conformance requests both arms' servers are sent, and what the claim then leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gate.conformance import Row
from gate.decoders.endpoint_profiles import IGNORED
from gate.decoders.requests_plain import plan_plain_conformance
from gate.records import Request
from gate.store import write_atomically

UNSENT = "unsent.json"
WORDS = "words.json"
Words = dict[tuple[int, ...], str]
"""Token ids -> the text that they were encoded from."""


def plan_conformance(
    arms: Mapping[str, Any], rows: Sequence[Row], seed: int, run_folder: Path, words: Words
) -> list[Request]:
    """Return the conformance requests that both arms can be asked.

    words: filled by the baseline as it encodes; kept in the run's folder, with what was not sent.
    """
    if any(hasattr(decoder, "stored_conformance") for decoder in arms.values()):
        return _list_stored(arms)
    decoders = [arms[arm] for arm in ("candidate", "baseline")]  # the baseline runs next
    for decoder in decoders:
        _ = getattr(decoder, "capabilities", None)  # probed before anything is judged
    takes = [found for d in decoders if (found := getattr(d, "name_unsent", None))]
    baseline = arms["baseline"]
    encode = baseline.encode if getattr(baseline, "can_encode", False) else None
    found, unsent = plan_plain_conformance(rows, seed, takes, encode)
    write_atomically(run_folder / WORDS, msgspec.json.encode([*words.items()]))
    write_atomically(run_folder / UNSENT, msgspec.json.encode(unsent))
    return found


def _list_stored(arms: Mapping[str, Any]) -> list[Request]:
    """Return the conformance requests that both arms' stored runs were sent."""
    stored = [
        {(r.id, r.repeat): r for r in decoder.stored_conformance()}
        if hasattr(decoder, "stored_conformance")
        else {}
        for decoder in arms.values()
    ]
    return [r for key, r in stored[0].items() if all(one.get(key) == r for one in stored)]


def read_words(run_folder: Path) -> Words:
    """Return what a run that is resumed has encoded; empty: it is new."""
    path = run_folder / WORDS
    known = path.read_bytes() if path.exists() else b"[]"
    return dict(msgspec.json.decode(known, type=list[tuple[tuple[int, ...], str]]))


def describe_unsent(run_folder: Path) -> list[str]:
    """Say which options kept conformance requests back."""
    path = run_folder / UNSENT
    unsent = msgspec.json.decode(path.read_bytes(), type=dict[str, int]) if path.exists() else {}
    if not unsent:
        return []
    named = ", ".join(f"{name} ({n})" for name, n in unsent.items())
    lost = "conformance requests were not sent for options that a server does not take"
    return [f"{lost}: {named}; the claim does not cover them"]


def describe_limits(probed: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Say which options no server, or only one of them, honours."""
    by_arm = {arm: {n for n, what in one.items() if what == IGNORED} for arm, one in probed.items()}
    both = sorted(set.intersection(*by_arm.values())) if len(by_arm) > 1 else []
    found = [f"neither server honours {', '.join(both)}"] if both else []
    for arm, names in by_arm.items():
        own = sorted(names - set(both))
        found += [f"the {arm}'s server does not honour {', '.join(own)}"] if own else []
    return found

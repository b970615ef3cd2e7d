"""Both arms side by side: what was compared, and everything their provenance recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gate.report.page import PairRow
from gate.report.reading import NOT_RECORDED, flatten, read_path, write_value

if TYPE_CHECKING:
    from gate.records import Decision

# The facts of the first screen, each with the places it may be recorded in, first one wins.
FACTS: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("Decoder", (("decoder", "kind"), ("decoder",))),
    ("Options", (("decoder", "options"), ("options",))),
    ("Model", (("model", "id"), ("model",))),
    ("Precision", (("model", "dtype"), ("dtype",))),
    ("Device", (("model", "device_name"), ("model", "device"), ("device",))),
    ("Evaluation set", (("evalset", "name"), ("evalset", "path"), ("evalset", "id"), ("evalset",))),
    ("Requests", (("n_requests",), ("evalset", "n_requests"))),
)
DECODER_FACTS = ("Decoder", "Options")
INTENDED = "the change under test"
DIFFERS = "differs"
POOL_OPTIONS = frozenset({"window", "ngram", "guesses", "prompt_ngrams"})
TREE_OPTIONS = frozenset({"rows", "sources", "shared_noise", "shared_rows", "step_cost"})


def list_facts(decision: Decision) -> tuple[PairRow, ...]:
    """Return what was compared, as the first screen shows it."""
    return tuple(_write_fact(decision, name, paths) for name, paths in FACTS)


def write_compared(rows: Sequence[PairRow]) -> str:
    """Return in one sentence what was compared: both decoders, and what they share."""
    facts = {row.name: row for row in rows}
    decoder, options = facts["Decoder"], facts["Options"]
    if NOT_RECORDED in {decoder.baseline, decoder.candidate}:
        return ""
    chosen = [one for one in options.candidate.split(", ") if not one.endswith("none")]
    settings = f" ({', '.join(chosen)})" if chosen and options.candidate != NOT_RECORDED else ""
    shared = [facts[name].candidate for name in ("Model", "Precision", "Device", "Evaluation set")]
    known = [one for one in shared if one != NOT_RECORDED]
    n = facts["Requests"].candidate
    count = "" if n == NOT_RECORDED else f", {n} requests"
    return f"{decoder.baseline} against {decoder.candidate}{settings}: {', '.join(known)}{count}"


def list_provenance(decision: Decision) -> tuple[PairRow, ...]:
    """Return every recorded fact of both arms, those that differ first."""
    baseline, candidate = (flatten(read_arm(decision, arm)) for arm in ("baseline", "candidate"))
    names = sorted({*baseline, *candidate})
    rows = [
        _make_row(name, baseline.get(name), candidate.get(name), name.split(".")[0] == "decoder")
        for name in names
    ]
    return tuple(sorted(rows, key=lambda row: (not row.alarming, not row.mark)))


def _write_fact(decision: Decision, name: str, paths: tuple[tuple[str, ...], ...]) -> PairRow:
    baseline, candidate = (
        _read_first(read_arm(decision, arm), paths) for arm in ("baseline", "candidate")
    )
    return _make_row(name, baseline, candidate, name in DECODER_FACTS)


def read_arm(decision: Decision, arm: str) -> object:
    """Return what is recorded about one arm."""
    return decision.provenance.get(arm, {})


def _read_first(data: object, paths: tuple[tuple[str, ...], ...]) -> str | None:
    for path in paths:
        value = read_path(data, *path)
        if value is not None:
            return write_value(keep_used(value))
    return None


def keep_used(value: object) -> object:
    """Return a lookahead decoder's options without those that its other way of guessing has."""
    if not isinstance(value, Mapping) or not set(value) >= POOL_OPTIONS | {"rows"}:
        return value
    unused = TREE_OPTIONS if value["rows"] is None else POOL_OPTIONS
    return {key: item for key, item in value.items() if key not in unused}


def _make_row(name: str, baseline: str | None, candidate: str | None, intended: bool) -> PairRow:  # noqa: FBT001
    mark = "" if baseline == candidate else (INTENDED if intended else DIFFERS)
    return PairRow(
        name=name,
        baseline=NOT_RECORDED if baseline is None else baseline,
        candidate=NOT_RECORDED if candidate is None else candidate,
        mark=mark,
        alarming=mark == DIFFERS,
    )

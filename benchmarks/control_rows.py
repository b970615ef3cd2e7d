"""Control runs as rows, and how often they did not pass."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gate.measures.stats import clopper_pearson
from gate.records import Outcome, Record

NOT_PASSED = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.ERROR)


class RunRow(Record, frozen=True, kw_only=True):
    """How one run ended. shape: of the benchmark's SHAPES; -1: a trained model.

    n_forks: outputs that differ; n_ties: decisions inside the noise band.
    """

    n: int
    kind: str
    shape: int
    dtype: str
    outcome: str
    n_forks: int
    n_ties: int
    bound_nat: float
    reasons: tuple[str, ...]
    seconds: float


def summarise(rows: Sequence[RunRow]) -> dict[str, Any]:
    """Return shares with exact bounds, over all runs and by kind and dtype."""
    rounded = [row for row in rows if row.dtype != "float32"]
    groups: dict[str, list[RunRow]] = {"all": list(rows)}
    for row in rows:
        groups.setdefault(row.dtype, []).append(row)
        groups.setdefault(row.kind, []).append(row)
    return {
        "runs": len(rows),
        "bfloat16_runs": len(rounded),
        "bfloat16_runs_with_forks_or_ties": sum(row.n_forks + row.n_ties > 0 for row in rounded),
        "groups": {name: share_outcomes(found) for name, found in groups.items()},
    }


def share_outcomes(rows: Sequence[RunRow]) -> dict[str, Any]:
    """Return how many runs did not pass, and a 95% upper bound of their rate."""
    counts = Counter(row.outcome for row in rows)
    found: dict[str, Any] = {"runs": len(rows)}
    for outcome in NOT_PASSED:
        k = counts[outcome.value]
        share = clopper_pearson(k, len(rows), 0.95, "upper")
        found[f"false_{outcome.value.lower()}"] = k
        found[f"{outcome.value.lower()}_upper_95"] = round(share.interval[1] or 1.0, 5)
    return found


def read_rows(paths: Sequence[Path]) -> Iterator[RunRow]:
    """Yield the rows of earlier results."""
    for path in paths:
        yield from msgspec.convert(json.loads(path.read_text())["list"], list[RunRow])


def describe(row: RunRow) -> str:
    """Return a run as a line for a terminal."""
    line = f"{row.n:4} {row.kind:26} {row.shape} {row.dtype:9} {row.outcome:13}"
    line += f" forks={row.n_forks} ties={row.n_ties} {row.seconds} s"
    return "\n     ".join([line, *row.reasons])

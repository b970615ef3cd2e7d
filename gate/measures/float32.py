"""Logic in float32: what a run in 16 bits says of its decoders once rounding is out of the way.

In 16 bits a tie band of half a nat hides rules that are slightly wrong. The same decoders on the
same requests in float32 have a band of a thousandth of a nat. The measures are the ones that judge
the serving dtype, under the group ``float32_logic``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from gate.measures.conformance import compare_conformance, without_conformance
from gate.measures.exercise import compare_exercise
from gate.measures.paired import Arm, Paired
from gate.measures.termination import compare_termination
from gate.measures.tokens import compare_certificates
from gate.records import Comparison

GROUP = "float32_logic"
MOST_FAILED = 0.02
"""Share of requests, served in 16 bits, that may fail in float32."""
MEASURES = (
    "token_defects",
    "baseline_certificate",
    "termination",
    "baseline_termination",
    "exercised",
    "conformance",
    "baseline_conformance",
)


@dataclass(frozen=True, kw_only=True)
class Float32:
    """Both arms in float32. paired: None where that did not work, and note says why."""

    paired: Paired | None = None
    note: str = ""


def compare_float32(found: Float32 | None, served: Paired) -> list[Comparison]:
    """Return MEASURES under the group float32_logic; nothing where the run is float32 itself.

    served: the same arms in the dtype they serve in.
    """
    if found is None:
        return []
    note = found.note or (_describe_failures(found.paired, served) if found.paired else "")
    if note or found.paired is None:
        return [Comparison(measure=name, group=GROUP, note=note) for name in MEASURES]
    return [msgspec.structs.replace(c, group=GROUP) for c in _compare(found.paired)]


def _compare(paired: Paired) -> Iterator[Comparison]:
    traffic = without_conformance(paired)
    yield from compare_certificates(traffic)
    yield from compare_termination(traffic)
    yield from compare_exercise(traffic)
    yield from compare_conformance(paired)


def _describe_failures(paired: Paired, served: Paired) -> str:
    """Return why an arm that serves in 16 bits is no evidence in float32; empty where it is."""
    for name in ("baseline", "candidate"):
        arm, other = getattr(paired, name), getattr(served, name)
        known = [key for key in paired.requests if not other.failed(key)]
        lost = [key for key in known if arm.failed(key)]
        if len(lost) > MOST_FAILED * len(known):
            errors = Counter(_read_error(arm, key) for key in lost)
            return (
                f"the {name} failed {len(lost)} of {len(known)} requests in float32 that it serves "
                f"in {served.bound.dtype}, most often with: {errors.most_common(1)[0][0]}"
            )
    return ""


def _read_error(arm: Arm, key: tuple[str, int]) -> str:
    generation = arm.generations.get(key)
    return " ".join(str(generation.error if generation else "no output").split())[:200]

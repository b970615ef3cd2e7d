"""Acceptance from a server's Prometheus page, read before and after a batch.

The counters are the server's whole traffic: what else it serves meanwhile is counted too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from gate.decoders.endpoint_profiles import Counters
from gate.records import DraftCount, Generation

SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)
PAGE_BYTES = 4 * 1024**2


class Reading(NamedTuple):
    """What the page said. None: the page, or that line of it, is missing."""

    drafted: float | None = None
    accepted: float | None = None
    accept_length: float | None = None

    def since(self, before: Reading, generations: Sequence[Generation]) -> DraftCount | None:
        """Return the drafts between two readings; None where they do not tell.

        From a mean accepted length L, n tokens took about n / L verifications, so that
        n - n / L of them were drafts.
        """
        n_tokens = sum(_count_tokens(one) for one in generations)
        if self.accept_length is not None and self.accept_length >= 1:
            return DraftCount(
                n_drafted=None, n_accepted=int(n_tokens - n_tokens / self.accept_length)
            )
        if self.accepted is None or before.accepted is None:
            return None
        accepted = self.accepted - before.accepted
        drafted = (self.drafted or 0.0) - (before.drafted or 0.0)
        if not 0 <= accepted <= drafted:
            return None  # the server began anew in between, or its page makes no sense
        return DraftCount(n_drafted=int(drafted), n_accepted=int(accepted))


def _count_tokens(generation: Generation) -> int:
    if generation.usage is not None:
        return generation.usage.n_output
    return len(generation.token_ids or ())


def read_page(page: str, counters: Counters) -> Reading:
    """Return what a Prometheus page says of drafts, summed over labels."""
    found: dict[str, list[float]] = {}
    for name, value in SAMPLE.findall(page):
        number = _read_number(value)
        if number is not None:
            found.setdefault(name, []).append(number)
    if counters.accept_length:
        lengths = found.get(counters.accept_length)
        return Reading(accept_length=sum(lengths) / len(lengths) if lengths else None)
    missing = 0.0 if counters.is_complete else None
    return Reading(
        drafted=sum(found[counters.drafted]) if counters.drafted in found else missing,
        accepted=sum(found[counters.accepted]) if counters.accepted in found else missing,
    )


def _read_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None

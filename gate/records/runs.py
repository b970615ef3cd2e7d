"""What ran, and the noise it ran in."""

from __future__ import annotations

from gate.records.base import SCHEMA, Noise, Record
from gate.records.generations import DraftCount, Generation, TokenScores


class DecoderSpec(Record, frozen=True, kw_only=True):
    """Which decoder an arm uses, and with what options.

    ``noise`` decides whether sampled output is judged by regret (``position_keyed``)
    or by its distribution (``own``). ``unsupported``: what the decoder does not offer
    (gate/offers.py); conformance leaves it out and the report names it.
    """

    kind: str
    target: str | None = None
    options: dict[str, object] = {}
    noise: Noise = "position_keyed"
    max_batch: int | None = None
    unsupported: tuple[str, ...] = ()


class NoiseBound(Record, frozen=True, kw_only=True):
    """How far honest arithmetic moves the top-1 to top-2 gap, nats, and how that was measured.

    weakness: why no certificate can rest on it, in one sentence; empty: it can.
    """

    bound: float
    dtype: str
    n_positions: int
    n_rows: int
    q999_one_row: float
    q999_wide: float
    source: str
    largest: float = 0.0
    flip_rate_one_row: float = 0.0
    flip_rate_wide: float = 0.0
    weakness: str = ""


class BandProbe(Record, frozen=True, kw_only=True):
    """The referee's second choices, offered to the candidate as drafts.

    n_in_band: positions whose two best scores lie within ``band_nat``. accepted: per offer,
    the closest first, whether the candidate took it.
    """

    band_nat: float
    n_in_band: int
    accepted: tuple[bool, ...] = ()


class MemoryControl(Record, frozen=True, kw_only=True):
    """What was drafted when the same prompts came a first and a second time.

    is_fresh: the server was started for it, so that it had seen no prompt before.
    """

    n_prompts: int
    first: DraftCount
    second: DraftCount
    is_fresh: bool


class AcceptanceReference(Record, frozen=True, kw_only=True):
    """What each request took. work: "request id#repeat" -> (forwards, tokens committed)."""

    schema: int = SCHEMA
    evalset_sha256: str
    model: str
    dtype: str
    work: dict[str, tuple[int, int]]


class Run(Record, frozen=True, kw_only=True):
    """One arm's side of a run: what ran, and what came out."""

    schema: int = SCHEMA
    decoder: DecoderSpec
    evalset_sha256: str
    provenance: dict[str, object]
    generations: tuple[Generation, ...]
    scores: tuple[TokenScores, ...]

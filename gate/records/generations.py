"""What a decoder returned, and what the referee says of it."""

from __future__ import annotations

from typing import Literal

from gate.records.base import Finish, Record


class Step(Record, frozen=True, kw_only=True):
    """One forward of one request. The prefill is the first, with n_drafted 0.

    n_rows: rows of this request in the forward. n_drafted: draft rows verified.
    n_accepted: drafts committed. n_emitted: tokens committed, the bonus token included.
    draft_s, wall_s: host time drafting, and this request's share of the step's time.
    """

    n_rows: int = 1
    n_drafted: int = 0
    n_accepted: int = 0
    n_emitted: int = 1
    draft_s: float = 0.0
    wall_s: float = 0.0


class Chunk(Record, frozen=True, kw_only=True):
    """What one streamed event carried, ``at_s`` seconds after the request was sent."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    at_s: float = 0.0


class DraftCount(Record, frozen=True, kw_only=True):
    """Draft tokens verified and committed, in total: of a decoder that tells no single steps.

    n_drafted None: not told.
    """

    n_drafted: int | None
    n_accepted: int


class Trace(Record, frozen=True, kw_only=True):
    """Timing and acceptance of one generation.

    ``steps`` empty: the decoder does not tell them; ``drafts`` may still hold their totals.

    sent_s: seconds after its timing block began, on the gate's clock; None outside of one.
    queued_s: how long it then waited for the decoder; part of ttft_s and total_s.
    """

    sent_s: float | None = None
    queued_s: float = 0.0
    ttft_s: float | None = None
    total_s: float | None = None
    device_s: float | None = None
    peak_memory_bytes: int | None = None
    steps: tuple[Step, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    drafts: DraftCount | None = None


class Usage(Record, frozen=True, kw_only=True):
    """Token counts as the decoder reports them; an ending EOS is one of n_output."""

    n_prompt: int
    n_output: int


class TokenLogprob(Record, frozen=True, kw_only=True):
    """Log-probability of an emitted token, nats, and of the likeliest tokens at its position."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Generation(Record, frozen=True, kw_only=True):
    """What a decoder returned for a request.

    ``token_ids`` holds the output, an ending EOS included. At ``finish = "stop"``
    text and ids end before the stop string; ``tail_ids`` are the tokens decoded and
    cut off (they complete the stop string), so that the referee can check the stop.
    ``text`` left empty is detokenised by the pipeline. ``retries``: why each earlier attempt
    of a server's failed; it was repeated whole.
    """

    request_id: str
    repeat: int = 0
    text: str = ""
    token_ids: tuple[int, ...] | None = None
    tail_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    logprobs_kind: Literal["raw", "processed"] = "raw"
    finish: Finish
    usage: Usage | None = None
    trace: Trace | None = None
    error: str | None = None
    retries: tuple[str, ...] = ()


class TokenScores(Record, frozen=True, kw_only=True):
    """The referee's view of one generation, one entry per emitted token (tail included).

    regret: nats by which the emitted token misses the referee's best score, cut edges
    allowed for; 1e4 where the token was not allowed at all. gap: top-1 to top-2 of the
    scores. entropy: of the processed law, nats. best_id: the referee's choice.
    cut_distance: nats between the emitted token and the edge of the top-k/top-p/min-p
    set (1e4: no cut). eos_regret: at the position after the output, regret of ending there
    (None where the output ended with EOS or a stop string). logprob: of the emitted token
    in the raw law. rank: of the emitted token in the score order (0 = best).
    kl, tv, js: divergence of the law the decoder used from the referee's (empty: no tap).
    pit: rank-ordered randomised probability integral transform (empty unless sampled).
    top: position -> the referee's likeliest tokens there, each with the nats by which it is
    behind the best; only where the emitted token is not the best, or the choice was close.
    draws: token -> (times expected, times drawn) over the positions where its probability is at
    least 1% (empty unless sampled).
    """

    request_id: str
    repeat: int = 0
    token_ids: tuple[int, ...]
    regret: tuple[float, ...]
    gap: tuple[float, ...]
    entropy: tuple[float, ...]
    best_id: tuple[int, ...]
    rank: tuple[int, ...]
    logprob: tuple[float, ...]
    processed_logprob: tuple[float, ...] = ()
    cut_distance: tuple[float, ...] = ()
    eos_regret: float | None = None
    kl: tuple[float, ...] = ()
    tv: tuple[float, ...] = ()
    js: tuple[float, ...] = ()
    same_top: tuple[bool, ...] = ()
    pit: tuple[float, ...] = ()
    top: dict[int, tuple[tuple[int, float], ...]] = {}
    draws: dict[int, tuple[float, int]] = {}

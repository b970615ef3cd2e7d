"""The data of a run, as frozen records.

Records only hold data; behaviour lives in functions. Units are in the names
(``_s``, ``_bytes``, ``_usd``, ``n_`` for counts). Decoding is strict: an unknown
key or a wrong type is an error that names its path.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

SCHEMA = 1


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: frozen, keyword-only, strict."""


class Outcome(StrEnum):
    """What a criterion, a half of the decision or the decision came to."""

    PASS = "PASS"  # noqa: S105 - not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    ERROR = "ERROR"
    NOT_JUDGED = "NOT_JUDGED"


Finish = Literal["eos", "stop", "length", "error"]
Claim = Literal["lossless", "bounded", "control"]
Purpose = Literal["release", "content"]
Noise = Literal["position_keyed", "own"]
Rule = Literal["non_inferior", "equivalent", "at_most", "at_least", "alarm"]
Direction = Literal["lower_is_better", "higher_is_better", "neutral"]


# ---------------------------------------------------------------- requests


class Sampling(Record, frozen=True, kw_only=True):
    """How the next token is drawn. Temperature 0 is greedy.

    Order of application: repetition penalty (prompt and output), presence and
    frequency penalty (output), logit bias, bad words, minimum tokens, temperature,
    top-k, top-p, min-p. ``seed`` None: the run's seed is used.
    """

    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bad_words: tuple[tuple[int, ...], ...] = ()  # token-id sequences
    logit_bias: dict[int, float] = {}  # token id -> added to its logit, nats
    seed: int | None = None


class Request(Record, frozen=True, kw_only=True):
    """A prompt with its decoding parameters.

    ``prompt`` is text, chat messages or token ids; decoders receive token ids.
    """

    id: str
    task: str
    request_class: str
    prompt: str | tuple[dict[str, str] | int, ...]
    max_tokens: int
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    eos_ids: tuple[int, ...] = ()
    sampling: Sampling = Sampling()
    n_logprobs: int | None = None  # None: none; 0: emitted token only; n: and the n likeliest
    logprobs_kind: Literal["raw", "processed"] = "raw"
    stream: bool = False
    response_format: dict[str, object] | None = None
    repeat: int = 0


def prompt_ids(request: Request) -> tuple[int, ...]:
    """Return the token ids of a tokenised prompt; text and messages have none."""
    return tuple(i for i in request.prompt if isinstance(i, int))


# ------------------------------------------------------------- generations


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


class Trace(Record, frozen=True, kw_only=True):
    """Timing and acceptance of one generation. ``steps`` empty: the decoder does not say."""

    ttft_s: float | None = None
    total_s: float | None = None
    device_s: float | None = None
    peak_memory_bytes: int | None = None
    steps: tuple[Step, ...] = ()
    chunks: tuple[Chunk, ...] = ()


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
    ``text`` left empty is detokenised by the pipeline.
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


# --------------------------------------------------------------------- runs


class DecoderSpec(Record, frozen=True, kw_only=True):
    """Which decoder an arm uses, and with what options.

    ``noise`` decides whether sampled output is judged by regret (``position_keyed``)
    or by its distribution (``own``).
    """

    kind: str
    target: str | None = None
    options: dict[str, object] = {}
    noise: Noise = "position_keyed"
    max_batch: int | None = None


class NoiseBound(Record, frozen=True, kw_only=True):
    """How far honest arithmetic moves the top-1 to top-2 gap, nats, and how that was measured."""

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


class BandProbe(Record, frozen=True, kw_only=True):
    """The referee's second choices, offered to the candidate as drafts.

    n_in_band: positions whose two best scores lie within ``band_nat``. accepted: per offer,
    the closest first, whether the candidate took it.
    """

    band_nat: float
    n_in_band: int
    accepted: tuple[bool, ...] = ()


class Run(Record, frozen=True, kw_only=True):
    """One arm's side of a run: what ran, and what came out."""

    schema: int = SCHEMA
    decoder: DecoderSpec
    evalset_sha256: str
    provenance: dict[str, object]
    generations: tuple[Generation, ...]
    scores: tuple[TokenScores, ...]


# --------------------------------------------------------------- judgement


class Estimate(Record, frozen=True, kw_only=True):
    """A statistic with its interval. ``method`` names how, and which side is bounded."""

    statistic: float
    interval: tuple[float | None, float | None]  # None: unbounded on that side
    confidence_level: float  # per side where ``method`` says one-sided
    n: int
    method: str
    pvalue: float | None = None


class Comparison(Record, frozen=True, kw_only=True):
    """A measure on one group, both arms side by side.

    ``difference`` is candidate minus baseline unless ``unit`` says ratio (candidate
    over baseline). None: nothing could be measured, and ``note`` says why.
    ``detectable``: the effect this n can show, in words. ``detail`` carries the
    measure's own figures for the report.
    """

    measure: str
    group: str = "all"
    unit: str = ""
    direction: Direction = "neutral"
    baseline: float | None = None
    candidate: float | None = None
    difference: Estimate | None = None
    n_dropped: int = 0
    drop_reasons: dict[str, int] = {}
    detectable: str | None = None
    note: str | None = None
    detail: dict[str, object] = {}


class Criterion(Record, frozen=True, kw_only=True):
    """A margin on a measure, written down before the run.

    groups: ``all`` (the pooled comparison), ``each_task``, ``each_class`` or a name.
    floor: smallest effect an alarm may fire on. confidence_level: per side.
    """

    name: str
    measure: str
    groups: str = "all"
    rule: Rule = "at_most"
    margin: float = 0.0
    floor: float = 0.0
    confidence_level: float = 0.95
    min_pairs: int = 1
    blocking: bool = True
    rationale: str = ""


class Verdict(Record, frozen=True, kw_only=True):
    """A judged criterion on one group; ``reason`` is one sentence for a release manager."""

    criterion: str
    group: str
    outcome: Outcome
    blocking: bool
    reason: str
    comparison: Comparison | None = None
    half: Literal["content", "gain"] = "content"


class Waiver(Record, frozen=True, kw_only=True):
    """A criterion somebody signed away, until when and why."""

    criterion: str
    reason: str
    who: str
    until: str


class TokenView(Record, frozen=True, kw_only=True):
    """One token of a fork's context as the report shows it."""

    token_id: int
    text: str


class Fork(Record, frozen=True, kw_only=True):
    """First difference between the arms of one request, with its evidence.

    position: output position. kind: exact | tie | unexplained | defect | unscored.
    regret_baseline, regret_candidate, gap: nats, at the fork under the referee.
    before: shared text ahead of it; after_*: the texts that follow.
    """

    request_id: str
    repeat: int = 0
    task: str
    request_class: str
    position: int
    kind: str
    regret_baseline: float | None = None
    regret_candidate: float | None = None
    gap: float | None = None
    token_baseline: TokenView | None = None
    token_candidate: TokenView | None = None
    prompt: str = ""
    before: str = ""
    after_baseline: str = ""
    after_candidate: str = ""
    score_changed: bool | None = None


class Decision(Record, frozen=True, kw_only=True):
    """All verdicts and the one outcome every surface renders."""

    schema: int = SCHEMA
    run_id: str = ""
    outcome: Outcome
    content: Outcome
    gain: Outcome
    claim: Claim
    purpose: Purpose
    reason: str
    verdicts: tuple[Verdict, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    forks: tuple[Fork, ...] = ()
    notes: tuple[str, ...] = ()  # limitations that belong on the first screen
    provenance: dict[str, dict[str, object]] = {}
    surface: dict[str, str] = {}
    sensitivity: tuple[dict[str, object], ...] = ()
    waivers: tuple[Waiver, ...] = ()
    earlier_runs: int = 0
    created_at: str
    expires_at: str

"""Default criteria per claim, and merging gate.toml's own into them.

Margins come from harm, not from the n at hand; each carries its rationale.
"""

from __future__ import annotations

import msgspec

from gate.measures.float32 import GROUP as FLOAT32
from gate.records import Claim, Criterion, Purpose

GAIN_MEASURES = frozenset(
    {
        "time_ratio",
        "tokens_per_second",
        "ttft",
        "tpot",
        "latency",
        "chunk_gap",
        "worst_gap",
        "goodput",
        "serving_errors",
        "serving_timeouts",
        "device_seconds",
        "cost_per_request",
        "margin_per_request",
        "crossover_batch",
    }
)
MEASURES = GAIN_MEASURES | frozenset(
    {
        "token_defects",
        "token_unexplained",
        "flip_rate",
        "termination",
        "exercised",
        "conformance",
        "error_rate",
        "dropped_pairs",
        "divergence",
        "task_delta",
        "guard_flips",
        "acceptance",
        "baseline_certificate",
        "baseline_termination",
        "baseline_conformance",
        "baseline_repeats",
        "repeats",
        "repeat_rate",
        "reported_logprobs",
        "pit_distance",
        "sample_tokens",
        "sample_lag",
        "sample_duplicates",
        "text_mmd",
        "band_acceptance",
        "acceptance_drop",
        "baseline_drift",
    }
)
IN_FLOAT32 = ", float32 logic"
LOCKED = (
    *("token certificate", "termination", "exercised", "conformance", "error rate"),
    *(f"{name}{IN_FLOAT32}" for name in ("token certificate", "termination", "conformance")),
)
"""Under ``lossless`` these may be tightened, never narrowed, loosened or made non-blocking."""

SHARES = frozenset(
    {
        "task_delta",
        "guard_flips",
        "error_rate",
        "dropped_pairs",
        "flip_rate",
        "goodput",
        "serving_errors",
        "serving_timeouts",
    }
)
"""Measures whose differences are shares: a margin of 1 could never fail."""

_BASELINE = (
    Criterion(
        name="baseline certificate",
        measure="baseline_certificate",
        rule="at_most",
        rationale="a baseline that is not what it says cannot be compared with",
    ),
    Criterion(
        name="baseline termination",
        measure="baseline_termination",
        rule="at_most",
        rationale="a baseline that ends outputs wrongly cannot be compared with",
    ),
)
_CERTIFICATE = Criterion(
    name="token certificate",
    measure="token_defects",
    rule="at_most",
    rationale="a lossless change alters no decision beyond what arithmetic noise explains",
)
_TERMINATION = Criterion(
    name="termination",
    measure="termination",
    rule="at_most",
    rationale="where an output ends is a decision too",
)
_EXERCISED = Criterion(
    name="exercised",
    measure="exercised",
    rule="at_least",
    margin=30.0,
    min_pairs=10,
    rationale="a candidate whose drafts are never accepted is the baseline in disguise",
)
_CONFORMANCE = Criterion(
    name="conformance",
    measure="conformance",
    rule="at_most",
    rationale=(
        "sampling, stop and reporting options must work under the candidate as they do without it"
    ),
)
_ERRORS = Criterion(
    name="error rate",
    measure="error_rate",
    rule="non_inferior",
    margin=0.05,
    rationale="more failed requests are an outage, whatever the others say",
)
_PAIRS = Criterion(
    name="pairs kept",
    measure="dropped_pairs",
    rule="at_most",
    margin=0.02,
    rationale="what was lost on the way cannot be judged",
)
_RATES = (
    Criterion(
        name="flip rate",
        measure="flip_rate",
        rule="alarm",
        floor=0.005,
        rationale="acceptance that is relaxed inside the noise band shows as more second choices",
    ),
    Criterion(
        name="unexplained rate",
        measure="token_unexplained",
        rule="alarm",
        floor=0.002,
        rationale=(
            "decisions beyond the noise bound must not be more frequent than the baseline's own"
        ),
    ),
)
_REPEATS = (
    Criterion(
        name="baseline repeats",
        measure="baseline_repeats",
        rule="at_most",
        rationale="a baseline that does not give the same output again cannot be compared with",
    ),
    Criterion(
        name="repeats",
        measure="repeats",
        rule="at_most",
        rationale="an output must not depend on what is decoded beside it, nor on what came before",
    ),
    Criterion(
        name="repeat rate",
        measure="repeat_rate",
        rule="alarm",
        floor=0.1,
        blocking=False,
        rationale="where exact repeats cannot be asked for, the baseline's own rate is the measure",
    ),
)
_BAND = Criterion(
    name="second choices",
    measure="band_acceptance",
    rule="alarm",
    floor=0.1,
    rationale="a verifier that takes the second choice more often than not is relaxed, however "
    "close the two are",
)
_SAMPLED = (
    Criterion(
        name="sampled law",
        measure="pit_distance",
        rule="at_most",
        margin=0.05,
        min_pairs=4000,
        rationale="no set of likeliest tokens may be drawn a twentieth more or less often; fewer "
        "than 4,000 sampled tokens cannot tell",
    ),
    *(
        Criterion(
            name=f"sampled law alarm, {group.replace('_', ' ')}",
            measure="pit_distance",
            groups=group,
            rule="alarm",
            floor=0.02,
            rationale="sampled tokens that do not follow the model's law, wherever in a run",
        )
        for group in ("all", "first_of_run", "inside_run")
    ),
    Criterion(
        name="sampled token frequencies",
        measure="sample_tokens",
        rule="alarm",
        floor=0.1,
        rationale="frequent tokens drawn a tenth more or less often than the model's law says come "
        "from another law, whichever tokens they are",
    ),
    Criterion(
        name="sampled tokens independent",
        measure="sample_lag",
        rule="alarm",
        floor=0.05,
        rationale="noise that serves two tokens in a row shows in their correlation alone",
    ),
    Criterion(
        name="sampled repeats differ",
        measure="sample_duplicates",
        rule="at_most",
        rationale="repeats of a sampled request are independent draws",
    ),
    Criterion(
        name="sampled texts",
        measure="text_mmd",
        rule="alarm",
        floor=0.005,
        rationale="where tokens cannot be scored, texts must not tell the arms apart",
    ),
)
_DROPS = tuple(
    Criterion(
        name=name,
        measure="acceptance_drop",
        groups=groups,
        rule="at_most",
        margin=0.05,
        min_pairs=3,
        rationale="a twentieth more forwards than the approved candidate took is a lost speed-up, "
        "and a class must not pay for another",
    )
    for name, groups in (("acceptance", "all"), ("acceptance by class", "each_class"))
)
_DRIFT = Criterion(
    name="baseline drift",
    measure="baseline_drift",
    rule="at_most",
    rationale="a baseline that is not the approved one makes every comparison with it another one",
)
_TASKS = (
    Criterion(
        name="task accuracy",
        measure="task_delta",
        rule="non_inferior",
        margin=0.02,
        rationale="two answers in a hundred is the most that a release may lose",
    ),
    Criterion(
        name="task alarm",
        measure="task_delta",
        groups="each_task",
        rule="alarm",
        floor=0.05,
        rationale="a loss on one task must not hide behind a gain on another",
    ),
)
_BOUNDED_TASKS = Criterion(
    name="task accuracy by task",
    measure="task_delta",
    groups="each_task",
    rule="non_inferior",
    margin=0.10,
    rationale="the declared loss per task, a tenth of the answers unless you say otherwise",
)
_GUARDS = tuple(
    Criterion(
        name=f"{group} flips",
        measure="guard_flips",
        groups=group,
        rule="alarm",
        floor=0.02,
        rationale="behaviour that changes in either direction is a change of the product",
    )
    for group in ("refusal", "format", "degeneration")
)
_GAIN = (
    Criterion(
        name="speed",
        measure="time_ratio",
        rule="at_most",
        margin=1.0,
        rationale="a change that is not faster has no reason to ship",
    ),
    Criterion(
        name="speed by class",
        measure="time_ratio",
        groups="each_class",
        rule="at_most",
        margin=1.10,
        rationale="no request class should pay more than a tenth for the others' gain",
    ),
    Criterion(
        name="cost",
        measure="device_seconds",
        rule="at_most",
        margin=1.0,
        rationale="a change that takes more of the device per request does not pay",
    ),
    Criterion(
        name="cost by class",
        measure="device_seconds",
        groups="each_class",
        rule="at_most",
        margin=1.10,
        rationale="a blend must not hide a class that costs more than a tenth more",
    ),
)


def divergence_criterion(dtype: str) -> Criterion:
    """Return the divergence criterion of a dtype: by Pinsker, total variation <= sqrt(KL / 2)."""
    margin = 1e-3 if dtype == "float32" else 0.05
    return Criterion(
        name="divergence",
        measure="divergence",
        rule="at_most",
        margin=margin,
        rationale=f"a mean divergence of {margin:g} nat moves at most {(margin / 2) ** 0.5:.1%} "
        "of the probability per token",
    )


_BASELINE_CONFORMANCE = Criterion(
    name="baseline conformance",
    measure="baseline_conformance",
    rule="at_most",
    rationale=(
        "our own plain decoder must honour every option; where it does not, nothing is proved"
    ),
)


def repeat_criteria(dtype: str, *, own_candidate: bool) -> list[Criterion]:
    """Return the criteria of determinism: exact up to ties in float32, by comparison elsewhere."""
    baseline, candidate, rate = _REPEATS
    exact = dtype == "float32"
    return [
        msgspec.structs.replace(baseline, blocking=exact),
        msgspec.structs.replace(candidate, blocking=exact and own_candidate),
        rate,
    ]


def in_float32(criterion: Criterion) -> Criterion:
    """Return a criterion on the same requests in float32, beside a run in 16 bits."""
    return msgspec.structs.replace(
        criterion,
        name=f"{criterion.name}{IN_FLOAT32}",
        groups=FLOAT32,
        rationale=f"{criterion.rationale}; in float32 no rounding hides it",
    )


def default_criteria(
    claim: Claim,
    purpose: Purpose,
    dtype: str,
    max_dropped: float,
    *,
    own_baseline: bool,
    has_reference: bool = False,
    has_float32: bool = False,
    has_conformance: bool = True,
    own_candidate: bool = False,
    has_approved: bool = False,
) -> list[Criterion]:
    """Return the criteria a claim is judged by unless gate.toml says otherwise."""
    is_bounded = claim == "bounded"
    pairs = msgspec.structs.replace(_PAIRS, margin=max_dropped)
    kept_tokens = [*_RATES, _BAND, *_SAMPLED, divergence_criterion(dtype)]
    logic = [
        *_BASELINE,
        *([_BASELINE_CONFORMANCE] if own_baseline else []),
        _CERTIFICATE,
        _TERMINATION,
        *([] if claim == "control" else [_EXERCISED]),
        *([_CONFORMANCE] if has_conformance else []),
    ]
    return [
        *_BASELINE,
        *([_BASELINE_CONFORMANCE] if own_baseline else []),
        *([in_float32(criterion) for criterion in logic] if has_float32 else []),
        *([_DRIFT] if has_approved else []),
        *([] if is_bounded else [_CERTIFICATE]),
        _TERMINATION,
        *([] if claim == "control" else [_EXERCISED]),
        _CONFORMANCE,
        _ERRORS,
        pairs,
        *repeat_criteria(dtype, own_candidate=own_candidate),
        *([] if is_bounded else kept_tokens),
        *((_TASKS[0], _BOUNDED_TASKS) if is_bounded else _TASKS),
        *_GUARDS,
        *(_DROPS if has_reference else []),
        *(_GAIN if purpose == "release" else []),
    ]

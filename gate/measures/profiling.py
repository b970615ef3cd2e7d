"""What limits decoding here, and which request classes that makes candidates.

Reads what ``profile.py`` measured on the device; no torch here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gate.records import Comparison, Record

SPARE = 1.5
"""A step of the candidate's rows that costs less than this many plain ones leaves compute spare."""
NEAR_CEILING = 0.5
"""Of a ceiling measured in the same run: from here on it is what limits."""
PREFILL_HEAVY = 0.5
QUEUE_HEAVY = 0.5
NO_PROFILE = "not measured: serving.profile is off"
STRONG, NO_CANDIDATE = 1.1, 1.0

MEANING = {
    "decode-bound with spare compute": "decoding waits for memory, and rows beside the first are "
    "nearly free: what lookahead needs",
    "compute-bound": "rows are not free here: every extra row takes time, so guesses must be right "
    "often to pay",
    "prefill-bound": "most time goes into reading prompts, which no decoding change touches",
    "KV-cache-pressure-bound": "the cache, not the weights, fills memory or its bandwidth: "
    "more rows per request make it worse, a smaller cache helps",
    "queue-bound": "requests wait for others longer than they are served: capacity, not decoding",
    "host-bound": "the device waits for the program around it: larger steps cost little, and so "
    "would a faster host",
}


class StepPoint(Record, frozen=True, kw_only=True):
    """One shape of a step, measured: rows of each of ``batch`` requests.

    n_bytes, n_flops: counted from the model's shapes and the cache. copied_share, matmul_share:
    what that came to, over the ceilings of the same run.
    """

    batch: int
    rows: int
    context: int
    wall_s: float
    n_bytes: int
    n_flops: int
    copied_share: float
    matmul_share: float


class Profile(Record, frozen=True, kw_only=True):
    """A device's ceilings and what steps of the model reach. Bytes and flops per second.

    points: the first is one plain row of one request. candidate_rows: of the candidate's step.
    device_figures: clocks, power, memory from NVML, or why not.
    """

    device: str
    dtype: str
    copy_bytes_per_s: float
    matmul_flops_per_s: float
    weight_bytes: int
    cache_bytes_per_token: int
    candidate_rows: int
    points: tuple[StepPoint, ...]
    prefill: StepPoint
    free_bytes: int | None = None
    device_figures: dict[str, object] = {}


def compare_profile(
    profile: Profile | None,
    seconds: Sequence[Comparison],
    queue_share: float | None,
    *,
    is_memory_short: bool = False,
) -> list[Comparison]:
    """Return profile: what binds, for the run and per class. seconds: device_seconds comparisons.

    A class is ``strong`` where its tokens per step beat the step's cost by a tenth or its interval
    says that it saves, ``no candidate`` where they fall short or the interval says that it costs,
    else ``neutral``. Without a profile the run's answer is not measured; classes still have theirs.
    """
    whole = next((one for one in seconds if one.group == "all"), None)
    shares = _read_shares(seconds)
    answer = _answer(profile, shares, queue_share, is_memory_short=is_memory_short)
    found = [
        Comparison(
            measure="profile",
            note=f"{answer}: {MEANING[answer]}"
            if answer
            else "not measured: serving.profile is off",
            detail={
                "answer": answer or "not measured",
                "prefill_share": shares,
                "queue_share": queue_share,
                "interconnect": "not measured: one device",
                "curve": list_curve(profile) if profile else [],
                **({"figures": _describe(profile)} if profile else {}),
            },
        )
    ]
    classes = [one for one in seconds if one is not whole and one.group not in ("all", "mixed")]
    return [*found, *(judge_class(one) for one in classes)]


def _answer(
    profile: Profile | None,
    prefill_share: float | None,
    queue_share: float | None,
    *,
    is_memory_short: bool,
) -> str:
    if profile is None:
        return ""
    return name_bottleneck(profile, prefill_share, queue_share, is_memory_short=is_memory_short)


def name_bottleneck(
    profile: Profile,
    prefill_share: float | None,
    queue_share: float | None,
    *,
    is_memory_short: bool = False,
) -> str:
    """Return what binds, the outermost first: queue, prefill, cache, compute, memory, host."""
    plain = max((p for p in profile.points if p.rows == 1), key=lambda p: p.batch)
    cache = profile.cache_bytes_per_token * plain.context * plain.batch
    if queue_share is not None and queue_share > QUEUE_HEAVY:
        return "queue-bound"
    if prefill_share is not None and prefill_share > PREFILL_HEAVY:
        return "prefill-bound"
    if is_memory_short or cache > profile.weight_bytes:
        return "KV-cache-pressure-bound"
    cost = step_cost(profile, plain.batch)
    if plain.matmul_share > NEAR_CEILING or (cost is not None and cost >= SPARE):
        return "compute-bound"
    return (
        "decode-bound with spare compute" if plain.copied_share > NEAR_CEILING / 2 else "host-bound"
    )


def step_cost(profile: Profile, batch: int) -> float | None:
    """Return the candidate's step over a plain one, at a batch size."""
    walls = {p.rows: p.wall_s for p in profile.points if p.batch == batch}
    wide = walls.get(profile.candidate_rows)
    return wide / walls[1] if wide is not None and 1 in walls else None


def list_curve(profile: Profile) -> list[list[float]]:
    """Return [batch, rows, seconds, over one plain row of that batch, copied, matmul share]."""
    plain = {p.batch: p.wall_s for p in profile.points if p.rows == 1}
    return [
        [p.batch, p.rows, p.wall_s, p.wall_s / plain[p.batch], p.copied_share, p.matmul_share]
        for p in profile.points
        if p.batch in plain
    ]


def find_headroom(profile: Profile) -> int | None:
    """Return the tokens of cache that the free memory holds, over all requests together."""
    if profile.free_bytes is None or profile.cache_bytes_per_token < 1:
        return None
    return profile.free_bytes // profile.cache_bytes_per_token


def _describe(profile: Profile) -> dict[str, object]:
    return {
        "device": profile.device,
        "dtype": profile.dtype,
        "copy_bytes_per_s": profile.copy_bytes_per_s,
        "matmul_flops_per_s": profile.matmul_flops_per_s,
        "weight_bytes": profile.weight_bytes,
        "cache_bytes_per_token": profile.cache_bytes_per_token,
        "free_bytes": profile.free_bytes,
        "cache_headroom_tokens": find_headroom(profile),
        "prefill_s": profile.prefill.wall_s,
        "prefill_tokens": profile.prefill.rows,
        "prefill_matmul_share": profile.prefill.matmul_share,
        "device_figures": profile.device_figures or {"nvml": "not measured"},
    }


def _read_shares(seconds: Sequence[Comparison]) -> float | None:
    """The baseline's prefill share of the device time, weighted by traffic."""
    parts: list[tuple[float, float]] = []
    for one in seconds:
        prefill, decode = one.detail.get("prefill_s"), one.detail.get("decode_s")
        share = one.detail.get("traffic_share")
        if isinstance(prefill, list) and isinstance(decode, list) and isinstance(share, float):
            parts.append((share * prefill[0], share * (prefill[0] + decode[0])))
    total = sum(part for _, part in parts)
    return sum(part for part, _ in parts) / total if total > 0.0 else None


def judge_class(seconds: Comparison) -> Comparison:
    """Return strong, neutral or no candidate for one class, and what that rests on."""
    tokens, cost = _read_steps(seconds.detail)
    low, high = seconds.difference.interval if seconds.difference else (None, None)
    if high is not None and high < 1.0:
        answer, why = "strong", f"its device time falls to at most {high:.2f} of the baseline's"
    elif low is not None and low > 1.0:
        answer, why = "no candidate", f"its device time rises to at least {low:.2f} times"
    elif tokens is None or cost is None:
        answer, why = "not measured", "its traces show no steps, and its interval does not tell"
    else:
        gain = tokens / cost
        answer = (
            "strong" if gain >= STRONG else "neutral" if gain > NO_CANDIDATE else "no candidate"
        )
        why = (
            f"a step brings {tokens:.2f} tokens and costs {cost:.2f} plain ones; the interval of "
            "its device time does not tell yet"
        )
    return Comparison(
        measure="profile",
        group=seconds.group,
        note=f"{answer}: {why}",
        detail={"answer": answer, "tokens_per_step": tokens, "step_cost_ratio": cost},
    )


def _read_steps(detail: Mapping[str, object]) -> tuple[float | None, float | None]:
    tokens, cost = detail.get("tokens_per_step"), detail.get("step_cost_ratio")
    return (
        tokens if isinstance(tokens, float) else None,
        cost[0] if isinstance(cost, list) and isinstance(cost[0], float) else None,
    )

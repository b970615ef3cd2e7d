"""Serving: times of both arms over the timing blocks, from traces alone.

Ratios within one run are judged; absolute figures and percentiles inform.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from gate.measures.bounds import bound_each_side
from gate.measures.means import geometric_mean_ratio, ratio_of_means
from gate.measures.stats import FloatArray, percentile_with_interval
from gate.records import Comparison, Direction, Estimate, Generation, Request, Trace

TimingBlock = tuple[Mapping[str, Sequence[Generation]], Sequence[Request]]
"""Generations by arm ("baseline", "candidate") and the prompts they answer."""
ARMS = ("baseline", "candidate")
ORDERS = ("baseline_first", "candidate_first")
PERCENTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
N_QUANTILES = 41  # points of a distribution that a report draws
Ratio = Callable[[FloatArray, FloatArray, float], Estimate]


class _Timed(NamedTuple):
    """One held-back prompt, each arm once."""

    request_class: str
    order: str
    baseline: Generation | None
    candidate: Generation | None


class _Figure(NamedTuple):
    """``read``: a generation's figure, or what is wrong with it. ``ratio``: of both arms'."""

    measure: str
    direction: Direction
    read: Callable[[Generation], float | str]
    ratio: Ratio = ratio_of_means
    mean: Callable[[FloatArray], float] = lambda values: float(values.mean())


class _Pairs(NamedTuple):
    """What is left of a group: both arms' figures in one order, and why the others are not."""

    baseline: FloatArray
    candidate: FloatArray
    orders: list[str]
    classes: list[str]
    lost: Counter[str]


def compare_serving(
    blocks: Sequence[TimingBlock],
    traffic_shares: Mapping[str, float] | None = None,
    confidence_level: float = 0.95,
) -> list[Comparison]:
    """Return the time comparisons of both arms, for all prompts and per request class.

    blocks: disjoint prompts, the baseline first in even blocks and the candidate in odd ones.
    traffic_shares: class -> share of the traffic; where given, ``all`` weighs the classes by
    it (a class without a pair counts for nothing, and the note names it).

    time_ratio: total time, candidate over baseline; its arms are seconds per request, and
    ``detail`` holds latency percentiles. latency: geometric mean of seconds per request.
    ttft, tpot: seconds; tpot is the mean per-token inter-token latency. chunk_gap, worst_gap:
    mean and longest wait between what a user sees arrive (a step may bring several tokens);
    answers in one piece have none. tokens_per_second: mean over requests. All differences are
    ratios with paired bounds (Fieller), confidence_level on each side; one pair bounds nothing.
    A pair is dropped where an arm failed, or its time is missing, zero or negative.
    """
    timed = [one for n, block in enumerate(blocks) for one in _pair_block(block, ORDERS[n % 2])]
    classes = dict.fromkeys(one.request_class for one in timed)
    return [
        _compare(figure, group, timed, traffic_shares or {}, confidence_level)
        for figure in FIGURES
        for group in ("all", *classes)
    ]


def compare_mixed(
    blocks: Sequence[TimingBlock], confidence_level: float = 0.95
) -> list[Comparison]:
    """Return the same comparisons of blocks drawn at the traffic's shares, as group ``mixed``."""
    if not blocks:
        return []
    whole = compare_serving(blocks, None, confidence_level)
    return [msgspec.structs.replace(one, group="mixed") for one in whole if one.group == "all"]


def _pair_block(block: TimingBlock, order: str) -> list[_Timed]:
    by_arm, requests = block
    found = [{one.request_id: one for one in by_arm.get(arm, ())} for arm in ARMS]
    return [
        _Timed(request.request_class, order, *(arm.get(request.id) for arm in found))
        for request in requests
    ]


# -------------------------------------------------------------------- figures


def read_time(generation: Generation) -> float | str:
    """Return seconds from sending to the last token, or what is wrong."""
    return _check_time(_trace(generation).total_s, "time")


def read_ttft(generation: Generation) -> float | str:
    """Return seconds from sending to the first token, or what is wrong."""
    total = read_time(generation)
    ttft = _check_time(_trace(generation).ttft_s, "time to first token")
    if isinstance(total, float) and isinstance(ttft, float) and ttft > total:
        return "a first token after the last one"
    return ttft


def read_tpot(generation: Generation) -> float | str:
    """Return (E2E - TTFT) / (n - 1), seconds per token after the first, or what is wrong."""
    n_tokens = count_tokens(generation)
    total, ttft = read_time(generation), read_ttft(generation)
    if isinstance(total, str) or isinstance(ttft, str):
        return ttft if isinstance(ttft, str) else str(total)
    if n_tokens is None or n_tokens < 2:  # noqa: PLR2004 - the first token is TTFT's
        return "fewer than two tokens counted"
    if total <= ttft:
        return "no time after the first token"
    return (total - ttft) / (n_tokens - 1)


def read_gaps(generation: Generation) -> list[float]:
    """Return seconds between arrivals: of streamed chunks, else of the engine's steps."""
    trace = _trace(generation)
    if trace.chunks:
        return [right.at_s - left.at_s for left, right in pairwise(trace.chunks)]
    return [step.wall_s for step in trace.steps[1:] if step.n_emitted]


def read_chunk_gap(generation: Generation) -> float | str:
    """Return the mean wait between arrivals, seconds, or what is wrong."""
    gaps = read_gaps(generation)
    return _check_time(sum(gaps) / len(gaps), "chunk gap") if gaps else "no second chunk"


def read_worst_gap(generation: Generation) -> float | str:
    """Return the longest wait between arrivals, seconds, or what is wrong."""
    gaps = read_gaps(generation)
    return _check_time(max(gaps), "chunk gap") if gaps else "no second chunk"


def read_speed(generation: Generation) -> float | str:
    """Return tokens per second over the whole request, or what is wrong."""
    time, n_tokens = read_time(generation), count_tokens(generation)
    if isinstance(time, str):
        return time
    return n_tokens / time if n_tokens else "no token counted"


def count_tokens(generation: Generation) -> int | None:
    """Return the tokens decoded: from ids where there are any, else as reported."""
    if generation.token_ids is not None:
        return len(generation.token_ids) + len(generation.tail_ids)
    return generation.usage.n_output if generation.usage else None


def _trace(generation: Generation) -> Trace:
    return generation.trace or Trace()


def _check_time(value: float | None, name: str) -> float | str:
    if value is None:
        return f"no {name}"
    if not (math.isfinite(value) and value > 0.0):
        return f"a {name} that is not above 0"
    return float(value)


def _geometric_mean(values: FloatArray) -> float:
    return float(np.exp(np.log(values).mean()))


FIGURES = (
    _Figure("time_ratio", "lower_is_better", read_time),
    _Figure("latency", "lower_is_better", read_time, geometric_mean_ratio, _geometric_mean),
    _Figure("ttft", "lower_is_better", read_ttft),
    _Figure("tpot", "lower_is_better", read_tpot),
    _Figure("chunk_gap", "lower_is_better", read_chunk_gap),
    _Figure("worst_gap", "lower_is_better", read_worst_gap),
    _Figure("tokens_per_second", "higher_is_better", read_speed),
)


# ---------------------------------------------------------------- comparisons


def _compare(
    figure: _Figure,
    group: str,
    timed: Sequence[_Timed],
    traffic_shares: Mapping[str, float],
    confidence_level: float,
) -> Comparison:
    members = [one for one in timed if group in ("all", one.request_class)]
    pairs = _read_pairs(members, figure.read)
    empty = Comparison(
        measure=figure.measure,
        group=group,
        unit="ratio",
        direction=figure.direction,
        n_dropped=pairs.lost.total(),
        drop_reasons=dict(pairs.lost),
        note="no pair was timed in both arms",
    )
    if not pairs.orders or not pairs.baseline.any():
        return empty
    shares = traffic_shares if group == "all" and figure.ratio is ratio_of_means else {}
    weights = _weigh(pairs.classes, shares)
    before, after = pairs.baseline * weights, pairs.candidate * weights
    return msgspec.structs.replace(
        empty,
        baseline=figure.mean(before),
        candidate=figure.mean(after),
        difference=bound_each_side(
            lambda level: figure.ratio(before, after, level), confidence_level
        ),
        note=_warn(pairs, members, shares) or None,
        detail={
            "n": len(pairs.orders),
            "by_order": _compare_orders(pairs, figure.mean),
            "weighted_by_traffic": bool(shares),
            "percentiles": {
                "baseline": list_percentiles(pairs.baseline, confidence_level),
                "candidate": list_percentiles(pairs.candidate, confidence_level),
            },
            "quantiles": {
                "baseline": list_quantiles(pairs.baseline),
                "candidate": list_quantiles(pairs.candidate),
            },
        },
    )


def _read_pairs(members: Sequence[_Timed], read: Callable[[Generation], float | str]) -> _Pairs:
    kept: list[tuple[float, float, str, str]] = []
    lost: Counter[str] = Counter()
    for one in members:
        before, after = _read_arm(one.baseline, read), _read_arm(one.candidate, read)
        if isinstance(before, str):
            lost[f"{before} in the baseline"] += 1
        elif isinstance(after, str):
            lost[f"{after} in the candidate"] += 1
        else:
            kept.append((before, after, one.order, one.request_class))
    return _Pairs(
        baseline=np.array([row[0] for row in kept], dtype=np.float64),
        candidate=np.array([row[1] for row in kept], dtype=np.float64),
        orders=[row[2] for row in kept],
        classes=[row[3] for row in kept],
        lost=lost,
    )


def _read_arm(
    generation: Generation | None, read: Callable[[Generation], float | str]
) -> float | str:
    if generation is None:
        return "no generation"
    if generation.finish == "error" or generation.error is not None:
        return "a failed request"
    return read(generation)


def _weigh(classes: Sequence[str], traffic_shares: Mapping[str, float]) -> FloatArray:
    """A weight per pair, mean 1, so that each class counts by its share of the traffic."""
    if not traffic_shares:
        return np.ones(len(classes))
    sizes = Counter(classes)
    weights = np.array([traffic_shares.get(name, 0.0) / sizes[name] for name in classes])
    return weights / weights.mean() if weights.any() else np.ones(len(classes))


def _compare_orders(pairs: _Pairs, mean: Callable[[FloatArray], float]) -> dict[str, float]:
    """Return the ratio in the blocks of each order; far apart, the machine drifted."""
    orders = np.array(pairs.orders)
    ratios = {}
    for name in ORDERS:
        chosen = orders == name
        if chosen.any() and pairs.baseline[chosen].any():
            ratios[name] = mean(pairs.candidate[chosen]) / mean(pairs.baseline[chosen])
    return ratios


def _warn(pairs: _Pairs, members: Sequence[_Timed], traffic_shares: Mapping[str, float]) -> str:
    """Return what the reader must know of the pairs; empty where nothing."""
    warnings = []
    if len(set(pairs.orders)) == 1:
        warnings.append("one order only, so drift of the machine is not cancelled")
    timed = {one.request_class for one in members} | set(traffic_shares)
    missing = sorted(timed - set(pairs.classes)) if len(timed) > 1 else []
    if missing:
        warnings.append(f"no pair was timed in {', '.join(missing)}")
    return "; ".join(warnings)


def list_quantiles(values: FloatArray) -> list[float]:
    """Return what a drawing of the distribution needs: all values in order, or N_QUANTILES."""
    ordered = np.sort(values)
    if len(ordered) <= N_QUANTILES:
        return [float(value) for value in ordered]
    return [float(value) for value in np.quantile(ordered, np.linspace(0, 1, N_QUANTILES))]


def list_percentiles(values: FloatArray, confidence_level: float) -> dict[str, object]:
    """Return p50, p95 and p99 with order-statistic bounds, those only that n carries.

    Each as [value, low, high], confidence_level on each side.
    """
    found: dict[str, object] = {}
    for name, q in PERCENTILES.items():
        low = percentile_with_interval(values, q, confidence_level, "lower")
        high = percentile_with_interval(values, q, confidence_level, "upper")
        if low.interval[0] is not None and high.interval[1] is not None:
            found[name] = [low.statistic, low.interval[0], high.interval[1]]
    return found

"""Economics: device-seconds and money per request, per class and for the whole traffic.

Device-seconds come from the timing blocks, both arms on the same prompts
(``attribution.py``); classes are strata weighted by their share of the traffic (``strata.py``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gate.gain_config import EconomicsConfig
from gate.measures.attribution import Attribution, Method, attribute
from gate.measures.money import compare_money, describe_mix, describe_month
from gate.measures.routing import compare_routing, list_losers
from gate.measures.stepcosts import describe_steps
from gate.measures.strata import (
    Moments,
    estimate_ratio,
    read_moments,
    warn_of_single,
    weigh,
    weighted_means,
)
from gate.records import Comparison, Generation, Request

ARMS = ("baseline", "candidate")


class ServedBlock(NamedTuple):
    """A timing block as both arms served it. wall_s: by arm."""

    requests: Sequence[Request]
    generations: Mapping[str, Sequence[Generation]]
    wall_s: Mapping[str, float]


class _Class(NamedTuple):
    """What was measured of a class: moments where a pair was, else why not."""

    name: str
    share: float
    moments: Moments | None
    lost: Counter[str]
    traced: list[tuple[Generation, Generation]]
    steps: dict[str, object]


def compare_economics(
    blocks: Sequence[ServedBlock],
    traffic_shares: Mapping[str, float],
    config: EconomicsConfig,
    method: Method,
    confidence_level: float = 0.95,
) -> list[Comparison]:
    """Return device_seconds, cost_per_request and margin_per_request, per class and weighted.

    device_seconds: candidate over baseline, arms in seconds. cost_per_request: USD, difference in
    USD; without a price not measured. margin_per_request: revenue minus cost, where every class
    has a revenue. Bounds of confidence_level on each side; a class with one pair has none.
    """
    parts = {
        arm: [attribute(b.requests, b.generations[arm], b.wall_s[arm], method) for b in blocks]
        for arm in ARMS
    }
    shares = config.traffic or traffic_shares
    names = dict.fromkeys(r.request_class for b in blocks for r in b.requests)
    classes = [
        _read_class(name, shares.get(name, 0.0), blocks, parts, confidence_level)
        for name in names | dict.fromkeys(shares)
    ]
    conservation = {arm: describe_parts(parts[arm]) for arm in ARMS}
    steps = describe_steps([pair for one in classes for pair in one.traced], confidence_level)
    return compare_classes(
        classes, config, {"conservation": conservation} | steps, confidence_level
    )


def compare_whole(
    blocks: Sequence[ServedBlock], method: Method, confidence_level: float = 0.95
) -> list[Comparison]:
    """Return device_seconds of blocks drawn at the traffic's shares, as group ``mixed``."""
    if not blocks:
        return []
    as_one = [
        block._replace(
            requests=[msgspec.structs.replace(r, request_class="mixed") for r in block.requests]
        )
        for block in blocks
    ]
    found = compare_economics(as_one, {"mixed": 1.0}, EconomicsConfig(), method, confidence_level)
    whole, own = found[0], found[1]
    detail = own.detail | {"conservation": whole.detail["conservation"]}
    return [msgspec.structs.replace(own, detail=detail)]


def describe_parts(parts: Sequence[Attribution]) -> dict[str, object]:
    """Return where an arm's seconds went: served + failed + unattributed = run."""
    problems = Counter(reason for one in parts for reason in one.problems.values())
    return {
        "run_s": math.fsum(one.wall_s for one in parts),
        "served_s": math.fsum(one.served_s for one in parts),
        "failed_s": math.fsum(one.failed_s for one in parts),
        "unattributed_s": math.fsum(one.unattributed_s for one in parts),
        "method": parts[0].method if parts else "none",
        "problems": dict(problems),
    }


def _read_class(
    name: str,
    share: float,
    blocks: Sequence[ServedBlock],
    parts: Mapping[str, Sequence[Attribution]],
    confidence_level: float,
) -> _Class:
    pairs: list[tuple[float, float]] = []
    traced: list[tuple[Generation, Generation]] = []
    lost: Counter[str] = Counter()
    for n, block in enumerate(blocks):
        used = {arm: {u.request_id: u for u in parts[arm][n].used} for arm in ARMS}
        found = {arm: {g.request_id: g for g in block.generations[arm]} for arm in ARMS}
        for request in block.requests:
            if request.request_class != name:
                continue
            arms = [used[arm].get(request.id) for arm in ARMS]
            reason = _find_loss(arms, request.id, [parts[arm][n] for arm in ARMS])
            if reason:
                lost[reason] += 1
                continue
            pairs.append((arms[0].device_s, arms[1].device_s))  # type: ignore[union-attr]
            traced.append((found["baseline"][request.id], found["candidate"][request.id]))
    moments = read_moments(name, share, *zip(*pairs, strict=True)) if pairs else None
    return _Class(name, share, moments, lost, traced, describe_steps(traced, confidence_level))


def _find_loss(arms: Sequence[Any], request_id: str, parts: Sequence[Attribution]) -> str:
    """Return why a request has no pair; empty where it has one."""
    for arm, used, part in zip(ARMS, arms, parts, strict=True):
        if used is None:
            return f"{part.problems.get(request_id, 'no generation')} in the {arm}"
        if used.failed:
            return f"a failed request in the {arm}"
    return ""


# ---------------------------------------------------------------- comparisons


def compare_classes(
    classes: Sequence[_Class],
    config: EconomicsConfig,
    extra: Mapping[str, object],
    confidence_level: float,
) -> list[Comparison]:
    """Return the comparisons of measured classes. extra: details of the whole."""
    known = [one.moments for one in classes if one.moments is not None and one.share > 0.0]
    singles = [one.moments for one in classes if one.moments is not None]
    whole = _describe_whole(classes, known, config, extra, confidence_level)
    usable = known if len(known) == sum(one.share > 0.0 for one in classes) else []
    wanted = {one.name: one.share for one in classes}
    return [
        *_compare_seconds(classes, usable, whole, confidence_level),
        compare_routing(known, wanted, confidence_level),
        *compare_money(usable, singles, config, _name_missing(classes), confidence_level),
    ]


def _compare_seconds(
    classes: Sequence[_Class],
    usable: Sequence[Moments],
    whole: dict[str, object],
    confidence_level: float,
) -> list[Comparison]:
    empty = Comparison(
        measure="device_seconds", unit="ratio", direction="lower_is_better", detail=whole
    )
    found = [_fill(empty, usable, confidence_level, _name_missing(classes))]
    for one in classes:
        alone = [one.moments.alone] if one.moments else []
        base = msgspec.structs.replace(
            empty,
            group=one.name,
            n_dropped=one.lost.total(),
            drop_reasons=dict(one.lost),
            detail={"traffic_share": one.share, **_list_moments(one.moments), **one.steps},
        )
        found.append(_fill(base, alone, confidence_level, "no pair was timed in both arms"))
    return found


def _list_moments(moments: Moments | None) -> dict[str, object]:
    return {"moments": msgspec.to_builtins(moments)} if moments else {}


def _fill(
    base: Comparison, moments: Sequence[Moments], confidence_level: float, missing: str
) -> Comparison:
    if not moments or not any(one.baseline for one in moments):
        return msgspec.structs.replace(base, note=missing)
    baseline, candidate = weighted_means(weigh(moments))
    return msgspec.structs.replace(
        base,
        baseline=baseline,
        candidate=candidate,
        difference=estimate_ratio(moments, confidence_level),
        note=warn_of_single(moments) or None,
    )


def _name_missing(classes: Sequence[_Class]) -> str:
    missing = [one.name for one in classes if one.moments is None and one.share > 0.0]
    if not classes:
        return "nothing was timed"
    return f"no pair was timed in {', '.join(missing)}, which has traffic" if missing else ""


# -------------------------------------------------------------------- whole


def _describe_whole(
    classes: Sequence[_Class],
    known: Sequence[Moments],
    config: EconomicsConfig,
    extra: Mapping[str, object],
    confidence_level: float,
) -> dict[str, object]:
    detail = dict(extra)
    detail["traffic"] = {one.name: one.share for one in classes}
    if not known:
        return detail
    losers = list_losers(known, confidence_level)
    baseline, candidate = weighted_means(weigh(known))
    detail["losing_classes"] = losers
    detail["hidden_by_blend"] = losers if candidate < baseline else []
    detail["break_even_mix"] = describe_mix(known)
    monthly = describe_month(known, config, confidence_level)
    return detail | ({"monthly": monthly} if monthly else {})

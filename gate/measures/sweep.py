"""The sweep over batch sizes: where more requests at once turn a gain into a loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from gate.measures.bounds import bound_each_side
from gate.measures.means import geometric_mean_ratio
from gate.records import Comparison, Estimate, Generation


class Wave(NamedTuple):
    """Requests served together, in both arms. generations, wall_s: baseline, candidate."""

    size: int
    generations: tuple[Sequence[Generation], Sequence[Generation]]
    wall_s: tuple[float, float]


def compare_sweep(
    waves: Sequence[Wave], limits: Mapping[str, str], confidence_level: float = 0.95
) -> list[Comparison]:
    """Return sweep per batch size (``batch 8``) and crossover_batch; nothing without a sweep.

    sweep: the candidate's wall time over the baseline's, a wave a pair (geometric mean, t).
    limits: size -> why it was not served; named, no failure. Waves with a failed request are
    dropped: what did not fit the memory shows there too.
    """
    sizes = sorted({wave.size for wave in waves} | {int(size) for size in limits})
    if not sizes:
        return []
    by_size = {size: [wave for wave in waves if wave.size == size] for size in sizes}
    # all sizes at once: the crossover is read off several of them
    level = 1.0 - (1.0 - confidence_level) / len(sizes)
    found = {size: _compare(size, by_size[size], limits, confidence_level) for size in sizes}
    strict = {size: _estimate(by_size[size], level) for size in sizes}
    return [*found.values(), find_crossover(strict, limits, confidence_level)]


def _compare(
    size: int, waves: Sequence[Wave], limits: Mapping[str, str], confidence_level: float
) -> Comparison:
    sound = [wave for wave in waves if _is_sound(wave)]
    n_lost = len(waves) - len(sound)
    base = Comparison(
        measure="sweep",
        group=f"batch {size}",
        unit="ratio",
        direction="lower_is_better",
        n_dropped=n_lost,
        drop_reasons={_name_failure(waves): n_lost} if n_lost else {},
        note=limits.get(str(size)) or (_name_failure(waves) if not sound else None),
    )
    if not sound:
        return base
    walls = [float(np.mean([wave.wall_s[arm] for wave in sound])) for arm in (0, 1)]
    return msgspec.structs.replace(
        base,
        baseline=walls[0],
        candidate=walls[1],
        difference=_estimate(waves, confidence_level),
        detail={"size": size, "tokens_per_second": [_speed(sound, arm) for arm in (0, 1)]},
    )


def _is_sound(wave: Wave) -> bool:
    times = all(math.isfinite(wall) and wall > 0.0 for wall in wave.wall_s)
    return times and not any(g.finish == "error" for arm in wave.generations for g in arm)


def _name_failure(waves: Sequence[Wave]) -> str:
    errors = [g.error or "failed" for w in waves for arm in w.generations for g in arm if g.error]
    return f"a limit: {errors[0][:120]}" if errors else "no wave was timed in both arms"


def _speed(waves: Sequence[Wave], arm: int) -> float:
    n_tokens = sum(len(g.token_ids or ()) for wave in waves for g in wave.generations[arm])
    return n_tokens / math.fsum(wave.wall_s[arm] for wave in waves)


def _estimate(waves: Sequence[Wave], confidence_level: float) -> Estimate | None:
    walls = np.array([wave.wall_s for wave in waves if _is_sound(wave)], dtype=np.float64)
    if not walls.size:
        return None
    return bound_each_side(
        lambda level: geometric_mean_ratio(walls[:, 0], walls[:, 1], level), confidence_level
    )


def find_crossover(
    ratios: Mapping[int, Estimate | None], limits: Mapping[str, str], confidence_level: float
) -> Comparison:
    """Return crossover_batch: the batch size from which on the candidate is slower.

    ratios: size -> time ratio with bounds that hold for all sizes at once. Between the largest
    size at which the candidate is surely faster and the smallest at which it is surely slower,
    given that its disadvantage grows with the batch. The point is where the ratio's logarithm
    crosses 0, by interpolation over the logarithm of the size.
    """
    base = Comparison(measure="crossover_batch", unit="requests", direction="higher_is_better")
    known = {size: one for size, one in sorted(ratios.items()) if one is not None}
    faster = [size for size, one in known.items() if _is_below(one.interval[1])]
    slower = [size for size, one in known.items() if _is_above(one.interval[0])]
    detail = {"faster_at": faster, "slower_at": slower, "limits": dict(limits)}
    base = msgspec.structs.replace(base, detail=detail)
    if faster and slower and max(faster) >= min(slower):
        note = "the ratio does not grow with the batch, so there is no single crossover"
        return msgspec.structs.replace(base, note=note)
    point = interpolate({size: one.statistic for size, one in known.items()})
    if point is None:
        return msgspec.structs.replace(base, note=_describe_side(known))
    estimate = Estimate(
        statistic=point,
        interval=(float(max(faster)) if faster else None, float(min(slower)) if slower else None),
        confidence_level=confidence_level,
        n=sum(one.n for one in known.values()),
        method="interpolated; between sizes surely faster and surely slower (Bonferroni), "
        "one-sided bound on each side",
    )
    low, high = estimate.interval
    inside = (None if low is None else min(low, point), None if high is None else max(high, point))
    return msgspec.structs.replace(
        base, candidate=point, difference=msgspec.structs.replace(estimate, interval=inside)
    )


def _is_below(high: float | None) -> bool:
    return high is not None and high < 1.0


def _is_above(low: float | None) -> bool:
    return low is not None and low > 1.0


def _describe_side(known: Mapping[int, Estimate]) -> str:
    if not known:
        return "no batch size was timed in both arms"
    sizes = sorted(known)
    if known[sizes[0]].statistic >= 1.0:
        return f"below {sizes[0]}: the candidate is slower at every batch size that was timed"
    return f"above {sizes[-1]}: the candidate is faster at every batch size that was timed"


def interpolate(ratios: Mapping[int, float]) -> float | None:
    """Return the size at which a ratio first rises through 1, linear in both logarithms."""
    sizes = sorted(ratios)
    for left, right in pairwise(sizes):
        below, above = math.log(ratios[left]), math.log(ratios[right])
        if below < 0.0 <= above:
            share = -below / (above - below)
            return float(2 ** (math.log2(left) + share * (math.log2(right) - math.log2(left))))
    return None

"""Goodput, errors and timeouts of the timing blocks: who got an answer in the time promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gate.measures.bounds import compare_flags
from gate.measures.economics import ServedBlock
from gate.measures.serving import read_time, read_ttft
from gate.records import Comparison, Direction, Generation, Request

ARMS = ("baseline", "candidate")
Read = Callable[[Request, Generation | None], bool]


class Promise(NamedTuple):
    """What the users of a class are promised, seconds; None: nothing."""

    ttft_s: float | None = None
    e2e_s: float | None = None


class _Flags(NamedTuple):
    """One flag per request and arm, and of which class each request is."""

    baseline: list[bool]
    candidate: list[bool]
    classes: list[str]


def compare_goodput(
    blocks: Sequence[ServedBlock],
    promises: Mapping[str, Promise],
    timeout_s: float | None = None,
    confidence_level: float = 0.95,
) -> list[Comparison]:
    """Return goodput per class and for all, serving_errors and, with a limit, serving_timeouts.

    Shares of the requests sent: a failed one meets no promise. goodput: answered within the
    class's SLOs; classes without one are left out. A first token whose time nobody reports
    breaks no promise, and the note says how many there are. detail: requests per second
    that met their promise.
    """
    if not blocks:
        return []
    promised = {name: one for name, one in promises.items() if any(one)}
    met = _flag(blocks, lambda r, g: _is_met(g, promised[r.request_class]), promised)
    found = [
        _compare("goodput", group, met, "higher_is_better", confidence_level)
        for group in ("all", *dict.fromkeys(met.classes))
    ]
    found[0] = msgspec.structs.replace(
        found[0],
        note=_warn_of_ttft(blocks, promised) or found[0].note,
        detail={"requests_per_second": _read_rates(blocks, met)},
    )
    errors = _flag(blocks, lambda _, g: _is_failed(g))
    found.append(_compare("serving_errors", "all", errors, "lower_is_better", confidence_level))
    if timeout_s is not None:
        late = _flag(blocks, lambda _, g: _is_late(g, timeout_s))
        found.append(_compare("serving_timeouts", "all", late, "lower_is_better", confidence_level))
    return found


def _flag(
    blocks: Sequence[ServedBlock], read: Read, classes: Mapping[str, object] | None = None
) -> _Flags:
    flags = _Flags([], [], [])
    for block in blocks:
        found = {arm: {g.request_id: g for g in block.generations[arm]} for arm in ARMS}
        for request in block.requests:
            if classes is not None and request.request_class not in classes:
                continue
            for arm, listed in zip(ARMS, flags[:2], strict=True):
                listed.append(read(request, found[arm].get(request.id)))
            flags.classes.append(request.request_class)
    return flags


def _is_failed(generation: Generation | None) -> bool:
    return generation is None or generation.finish == "error" or generation.error is not None


def _is_late(generation: Generation | None, limit_s: float) -> bool:
    time = read_time(generation) if generation else None
    return isinstance(time, float) and time > limit_s


def _is_met(generation: Generation | None, promise: Promise) -> bool:
    if generation is None or _is_failed(generation):
        return False
    time, ttft = read_time(generation), read_ttft(generation)
    if not isinstance(time, float):
        return False
    in_time = promise.e2e_s is None or time <= promise.e2e_s
    return in_time and (
        promise.ttft_s is None or not isinstance(ttft, float) or ttft <= promise.ttft_s
    )


def _warn_of_ttft(blocks: Sequence[ServedBlock], promised: Mapping[str, Promise]) -> str:
    n = sum(
        not isinstance(read_ttft(g), float)
        for block in blocks
        for arm in ARMS
        for g in block.generations[arm]
        if not _is_failed(g)
    )
    asked = any(one.ttft_s is not None for one in promised.values())
    if not (n and asked):
        return ""
    return f"{n} answers report no first token, so its SLO was not judged there"


def _read_rates(blocks: Sequence[ServedBlock], met: _Flags) -> dict[str, float]:
    walls = {arm: sum(block.wall_s[arm] for block in blocks) for arm in ARMS}
    return {
        arm: sum(flags) / walls[arm]
        for arm, flags in zip(ARMS, met[:2], strict=True)
        if walls[arm] > 0.0
    }


def _compare(
    measure: str, group: str, flags: _Flags, direction: Direction, confidence_level: float
) -> Comparison:
    chosen = [n for n, name in enumerate(flags.classes) if group in ("all", name)]
    base = Comparison(measure=measure, group=group, unit="share", direction=direction)
    if not chosen:
        return msgspec.structs.replace(base, note="no request was timed, or no SLO is declared")
    before, after = ([arm[n] for n in chosen] for arm in flags[:2])
    return msgspec.structs.replace(
        base,
        baseline=sum(before) / len(before),
        candidate=sum(after) / len(after),
        difference=compare_flags(before, after, confidence_level),
    )

"""Who used the device: every second of a timing block goes to a request or stays unattributed.

steps: a step's time goes to its requests by rows and a prefill's by prompt tokens, as the
engine's traces hold them, drafting included. in_flight: where a decoder shows no steps that
the gate measured, an instant is shared by the requests that are in flight. What is left is
idle or the host's: ``unattributed``. The parts add up to the block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from gate.records import Generation, Request

Method = Literal["steps", "in_flight"]
ROUNDING_S = 1e-6


class Used(NamedTuple):
    """Device-seconds of one request. decode_s is 0 where only the total is known."""

    request_id: str
    request_class: str
    prefill_s: float
    decode_s: float
    failed: bool

    @property
    def device_s(self) -> float:
        """All of it."""
        return self.prefill_s + self.decode_s


class Attribution(NamedTuple):
    """One arm's block. problems: requests whose times cannot be used, and why."""

    used: tuple[Used, ...]
    wall_s: float
    unattributed_s: float
    method: Method
    problems: dict[str, str]

    @property
    def served_s(self) -> float:
        """Seconds of requests that were answered."""
        return math.fsum(one.device_s for one in self.used if not one.failed)

    @property
    def failed_s(self) -> float:
        """Seconds of requests that failed."""
        return math.fsum(one.device_s for one in self.used if one.failed)


def attribute(
    requests: Sequence[Request],
    generations: Sequence[Generation],
    wall_s: float,
    method: Method,
) -> Attribution:
    """Return what each request used of a block that took ``wall_s`` seconds.

    A request whose trace cannot be true (missing, negative or endless times) gets nothing and is
    named: its time stays unattributed. Raises ValueError where ``wall_s`` is not above 0.
    """
    if not (math.isfinite(wall_s) and wall_s > 0.0):
        msg = f"a timing block took {wall_s} s; it must be finite and above 0"
        raise ValueError(msg)
    classes = {request.id: request.request_class for request in requests}
    known = [one for one in generations if one.request_id in classes]
    read = _read_steps if method == "steps" else _read_flights
    parts, problems = read(known, wall_s)
    used = tuple(
        Used(one.request_id, classes[one.request_id], *parts[one.request_id], _failed(one))
        for one in known
        if one.request_id in parts
    )
    left = wall_s - math.fsum(one.device_s for one in used)
    if left < -ROUNDING_S:
        message = f"its block's parts exceed the {wall_s:.3g} s that it took"
        problems |= {one.request_id: message for one in known}
        return Attribution((), wall_s, wall_s, method, problems)
    return Attribution(used, wall_s, max(0.0, left), method, problems)


def _failed(generation: Generation) -> bool:
    return generation.finish == "error" or generation.error is not None


Parts = tuple[dict[str, tuple[float, float]], dict[str, str]]


def _read_steps(generations: Iterable[Generation], _: float) -> Parts:
    """Prefill and decode seconds from the engine's steps: the first is the prefill."""
    parts, problems = {}, {}
    for one in generations:
        steps = one.trace.steps if one.trace else ()
        walls = [step.wall_s for step in steps]
        if not steps:
            problems[one.request_id] = "no steps in the trace"
        elif not all(math.isfinite(wall) and wall >= 0.0 for wall in walls) or not any(walls):
            problems[one.request_id] = "step times that are missing, negative or not finite"
        else:
            parts[one.request_id] = (walls[0], math.fsum(walls[1:]))
    return parts, problems


def _read_flights(generations: Iterable[Generation], wall_s: float) -> Parts:
    """Shares of the instants in which a request was in flight, from the gate's own clock."""
    flights, problems = {}, {}
    for one in generations:
        sent, total = (one.trace.sent_s, one.trace.total_s) if one.trace else (None, None)
        if total is None or not (math.isfinite(total) and total > 0.0):
            problems[one.request_id] = "a time that is missing, not finite or not above 0"
            continue
        sent, queued = sent or 0.0, one.trace.queued_s if one.trace else 0.0
        if not (math.isfinite(sent + queued) and sent >= 0.0 and 0.0 <= queued <= total):
            problems[one.request_id] = "a time of sending or waiting that cannot be true"
            continue
        flights[one.request_id] = (min(sent + queued, wall_s), min(sent + total, wall_s))
    shares = _share_instants(flights)
    return {name: (0.0, share) for name, share in shares.items()}, problems


def _share_instants(flights: dict[str, tuple[float, float]]) -> dict[str, float]:
    edges = sorted({edge for flight in flights.values() for edge in flight})
    shares = dict.fromkeys(flights, 0.0)
    for left, right in pairwise(edges):
        inside = [name for name, (start, end) in flights.items() if start <= left and end >= right]
        for name in inside:
            shares[name] += (right - left) / len(inside)
    return shares

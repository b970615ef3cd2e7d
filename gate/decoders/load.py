"""Sending requests as users do, on the gate's own clock: a closed loop, or arrivals at a rate.

A decoder that serves one batch at a time gets batches: in a closed loop of ``concurrency``
requests, in an open loop of all that arrived while the batch before them ran, so that waiting
counts. A decoder whose ``generate`` serves callers side by side (``is_concurrent``) gets each
request on a thread. A server gets a batch side by side over as many connections; in an open loop
its client (``generate_at``) sends each request when it arrives, however many are still unanswered.

Latency counts from the arrival that was planned, never from a sending that came late: a server that
stalls cannot hide by slowing the load down ("coordinated omission", Tene 2013).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec
import numpy as np

from gate.decoders.base import OWN_ENGINE
from gate.records import Generation, Record, Request, Trace

Arrivals = Literal["fixed", "poisson"]
Clock = Callable[[], float]
Collect = Callable[[Any, Sequence[Request]], list[Generation]]
"""Decodes one batch: one generation per request, in order."""
MOST_THREADS = 256
WARM_UP = ("Say hello.", "Count from one to five.")
WARM_UP_TOKENS = 8


class Load(Record, frozen=True, kw_only=True):
    """How requests are sent. arrival_rate_per_s: an open loop; None: a closed one.

    arrivals: evenly spaced, or at random with that rate (Poisson), drawn from ``seed``: the same
    for both arms.
    """

    concurrency: int = 1
    arrival_rate_per_s: float | None = None
    arrivals: Arrivals = "fixed"
    seed: tuple[int, ...] = (0,)


def make_warm_ups() -> list[Request]:
    """Return prompts from outside the evalset, so that no block pays for a first time."""
    return [
        Request(
            id=f"warm-up-{n}",
            task="warm-up",
            request_class="warm-up",
            prompt=({"role": "user", "content": text},),
            max_tokens=WARM_UP_TOKENS,
        )
        for n, text in enumerate(WARM_UP)
    ]


def serve(
    collect: Collect,
    decoder: Any,
    requests: Sequence[Request],
    load: Load,
    clock: Clock = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[list[Generation], float]:
    """Serve requests under a load; returns generations in order, and the seconds all took.

    In a trace, total_s and ttft_s count from the request's arrival (waiting included), sent_s is
    when that was.
    """
    arrivals = list_arrivals(len(requests), load)
    began = clock()
    if load.arrival_rate_per_s is not None and hasattr(decoder, "generate_at"):
        found = _serve_arrivals(decoder, requests, [at or 0.0 for at in arrivals])
    elif getattr(decoder, "is_concurrent", False):
        found = _serve_threads(collect, decoder, requests, arrivals, load, began, clock, sleep)
    else:
        found = _serve_batches(collect, decoder, requests, arrivals, load, began, clock, sleep)
    return found, clock() - began


def list_arrivals(n: int, load: Load) -> list[float | None]:
    """Return when each request arrives, seconds from the start; None in a closed loop."""
    rate = load.arrival_rate_per_s
    if rate is None:
        return [None] * n
    if load.arrivals == "fixed":
        return [k / rate for k in range(n)]
    gaps = np.random.default_rng(load.seed).exponential(1.0 / rate, n)
    return [float(at) for at in np.cumsum(gaps)]


def _serve_arrivals(
    decoder: Any, requests: Sequence[Request], arrivals: Sequence[float]
) -> list[Generation]:
    """Let the decoder's client send each request at its arrival."""
    served = decoder.generate_at(requests, arrivals)
    return [
        _stamp_arrival(generation, started, ended, at)
        for (generation, started, ended), at in zip(served, arrivals, strict=True)
    ]


def _stamp_arrival(
    generation: Generation, started_s: float, ended_s: float, arrival_s: float
) -> Generation:
    """Count a request's times from its arrival: waiting, sending late and retries included."""
    trace = generation.trace or Trace()
    total = ended_s - arrival_s
    own, first = trace.total_s, trace.ttft_s
    ttft = None
    if own is not None and first is not None and 0.0 < first <= own <= total:
        ttft = total - (own - first)  # the last attempt's first token
    timed = msgspec.structs.replace(
        trace,
        sent_s=arrival_s,
        queued_s=max(0.0, started_s - arrival_s),
        total_s=total,
        ttft_s=ttft,
    )
    return msgspec.structs.replace(generation, trace=timed)


def _serve_batches(
    collect: Collect,
    decoder: Any,
    requests: Sequence[Request],
    arrivals: Sequence[float | None],
    load: Load,
    began: float,
    clock: Clock,
    sleep: Callable[[float], None],
) -> list[Generation]:
    found: list[Generation] = []
    while len(found) < len(requests):
        at = len(found)
        first = arrivals[at]
        if first is not None and first > clock() - began:
            sleep(first - (clock() - began))
        start = clock() - began
        n = _count_waiting(arrivals[at:], start, load.concurrency)
        generations = collect(decoder, requests[at : at + n])
        end = clock() - began
        kind = decoder.spec.kind
        trusted = kind == "endpoint" or (n > 1 and kind in OWN_ENGINE)
        for generation, arrival in zip(generations, arrivals[at : at + n], strict=True):
            sent = start if arrival is None else arrival
            found.append(_stamp(generation, sent, start, end, trusted=trusted))
    return found


def _count_waiting(arrivals: Sequence[float | None], now_s: float, most: int) -> int:
    """At least the one that is there, and of the others those that have arrived."""
    waiting = [one for one in arrivals[:most] if one is None or one <= now_s]
    return max(1, len(waiting))


def _serve_threads(
    collect: Collect,
    decoder: Any,
    requests: Sequence[Request],
    arrivals: Sequence[float | None],
    load: Load,
    began: float,
    clock: Clock,
    sleep: Callable[[float], None],
) -> list[Generation]:
    def serve_one(request: Request, arrival: float | None) -> Generation:
        start = clock() - began
        generation = collect(decoder, [request])[0]
        end = clock() - began
        return _stamp(generation, start if arrival is None else arrival, start, end)

    is_open = load.arrival_rate_per_s is not None
    n_threads = MOST_THREADS if is_open else load.concurrency
    with ThreadPoolExecutor(max(1, min(n_threads, len(requests)))) as pool:
        futures = []
        for request, arrival in zip(requests, arrivals, strict=True):
            if arrival is not None and arrival > clock() - began:
                sleep(arrival - (clock() - began))
            futures.append(pool.submit(serve_one, request, arrival))
        return [future.result() for future in futures]


def _stamp(
    generation: Generation, sent_s: float, start_s: float, end_s: float, *, trusted: bool = False
) -> Generation:
    """Put the gate's own times in place of the decoder's, waiting included.

    trusted: our own engine, or our client of a server, tells when each request of a batch ended.
    What another decoder says of moments inside its call counts for the first token alone, and
    where it can be true.
    """
    trace = generation.trace or Trace()
    whole, waited = end_s - start_s, max(0.0, start_s - sent_s)
    own = trace.total_s if trusted else None
    total = own if own is not None and 0.0 < own <= whole else whole
    ttft = trace.ttft_s if trace.ttft_s is not None and 0.0 < trace.ttft_s <= total else None
    timed = msgspec.structs.replace(
        trace,
        sent_s=sent_s,
        queued_s=waited,
        total_s=total + waited,
        ttft_s=None if ttft is None else ttft + waited,
    )
    return msgspec.structs.replace(generation, trace=timed)

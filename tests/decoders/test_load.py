"""Sending requests: a closed loop in batches, an open one on a clock, threads for those who can."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gate.decoders.load import Load, serve
from gate.records import Generation, Request, Trace


class Clock:
    """Time that passes only where somebody sleeps or serves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.batches: list[int] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def collect(self, _: Any, requests: Sequence[Request]) -> list[Generation]:
        """Serve a batch in one second; every trace claims to have taken nothing."""
        self.now += 1.0
        self.batches.append(len(requests))
        trace = Trace(ttft_s=0.5, total_s=0.001)
        return [Generation(request_id=r.id, finish="eos", trace=trace) for r in requests]


def make(n: int) -> list[Request]:
    return [
        Request(id=str(k), task="t", request_class="c", prompt="p", max_tokens=1) for k in range(n)
    ]


def run(n: int, load: Load, kind: str = "python") -> tuple[Clock, list[Trace], float]:
    clock = Clock()
    decoder = SimpleNamespace(spec=SimpleNamespace(kind=kind))
    found, wall = serve(clock.collect, decoder, make(n), load, clock, clock.sleep)
    assert [one.request_id for one in found] == [str(k) for k in range(n)]
    return clock, [one.trace or Trace() for one in found], wall


def test_a_closed_loop_serves_batches_of_its_concurrency() -> None:
    clock, traces, wall = run(5, Load(concurrency=2))
    assert clock.batches == [2, 2, 1]
    assert wall == pytest.approx(3.0)
    assert [one.sent_s for one in traces] == pytest.approx([0.0, 0.0, 1.0, 1.0, 2.0])


def test_a_decoder_does_not_report_its_own_time() -> None:
    for kind, n in (("python", 2), ("python", 1), ("lookahead", 1)):
        _, traces, _ = run(n, Load(concurrency=n), kind)
        assert [one.total_s for one in traces] == pytest.approx([1.0] * n)
        assert [one.ttft_s for one in traces] == pytest.approx([0.5] * n)


def test_our_own_engine_tells_when_each_request_of_a_batch_ended() -> None:
    _, traces, _ = run(2, Load(concurrency=2), "lookahead")
    assert [one.total_s for one in traces] == pytest.approx([0.001, 0.001])


def test_in_an_open_loop_waiting_counts_and_is_kept_apart() -> None:
    clock, traces, wall = run(4, Load(concurrency=8, arrival_rate_per_s=2.0))
    assert clock.batches == [1, 2, 1]
    assert [one.queued_s for one in traces] == pytest.approx([0.0, 0.5, 0.0, 0.5])
    assert [one.total_s for one in traces] == pytest.approx([1.0, 1.5, 1.0, 1.5])
    assert wall == pytest.approx(3.0)


def test_a_slow_arrival_rate_leaves_the_decoder_idle() -> None:
    clock, traces, wall = run(3, Load(arrival_rate_per_s=0.5))
    assert clock.batches == [1, 1, 1]
    assert wall == pytest.approx(5.0)
    assert [one.sent_s for one in traces] == pytest.approx([0.0, 2.0, 4.0])


def test_a_concurrent_decoder_gets_its_requests_side_by_side() -> None:
    gate = threading.Barrier(3, timeout=10)

    def collect(_: Any, requests: Sequence[Request]) -> list[Generation]:
        gate.wait()
        return [Generation(request_id=r.id, finish="eos") for r in requests]

    decoder = SimpleNamespace(spec=SimpleNamespace(kind="python"), is_concurrent=True)
    found, _ = serve(collect, decoder, make(3), Load(concurrency=3))
    assert [one.request_id for one in found] == ["0", "1", "2"]
    assert all(one.trace and (one.trace.total_s or 0.0) > 0.0 for one in found)

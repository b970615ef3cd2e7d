"""An open loop against a server: requests come when they come, and waiting is the server's."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from gate.decoders.load import Load, list_arrivals, serve
from gate.gain_config import ServingConfig
from gate.records import Generation, Trace
from tests.decoders.test_endpoint import ask, decode
from tests.fake_server import Fault
from tests.fake_server import serve as run_server

SERVICE_S, N = 0.06, 8


def one_at_a_time() -> Fault:
    """A server that takes ``SERVICE_S`` for each request, and one at a time."""
    turn = threading.Lock()

    def wait(_: int, body: Mapping[str, Any]) -> str:
        if "messages" in body:
            with turn:
                time.sleep(SERVICE_S)
        return ""

    return wait


def run(folder: Path, load: Load, fault: Fault) -> tuple[list[Generation], float]:
    """Serve ``N`` streamed requests."""
    with run_server(fault=fault) as server, decode(folder, server, concurrency=1) as decoder:
        list(decoder.generate([ask(99)]))  # warm: the server was asked who it is
        requests = [msgspec.structs.replace(ask(n), stream=True) for n in range(N)]
        return serve(lambda d, r: list(d.generate(r)), decoder, requests, load)


def times(generations: list[Generation]) -> list[Trace]:
    assert all(one.finish != "error" for one in generations)
    return [one.trace or Trace() for one in generations]


def test_a_server_that_falls_behind_cannot_hide_it(tmp_path: Path) -> None:
    closed, _ = run(tmp_path, Load(), one_at_a_time())
    waits = [one.total_s or 0.0 for one in times(closed)]
    assert (
        statistics.median(waits) < 3 * SERVICE_S
    )  # each is sent when the server is free: nothing shows

    found, _ = run(tmp_path, Load(arrival_rate_per_s=4 / SERVICE_S), one_at_a_time())
    traces = times(found)
    totals = [one.total_s or 0.0 for one in traces]
    behind = N * SERVICE_S - (N - 1) * SERVICE_S / 4
    assert max(totals) > 0.9 * behind > 5 * SERVICE_S
    assert [one.sent_s for one in traces] == pytest.approx([n * SERVICE_S / 4 for n in range(N)])
    assert all((one.ttft_s or 0.0) <= total for one, total in zip(traces, totals, strict=True))
    assert max(one.ttft_s or 0.0 for one in traces) > 3 * SERVICE_S  # the queue counts there too


def test_requests_are_not_bunched_where_the_server_keeps_up(tmp_path: Path) -> None:
    found, wall = run(tmp_path, Load(arrival_rate_per_s=0.5 / SERVICE_S), one_at_a_time())
    assert wall >= (N - 1) * 2 * SERVICE_S
    assert statistics.median(one.total_s or 0.0 for one in times(found)) < 2 * SERVICE_S


def test_a_stalled_attempt_that_was_tried_again_counts_from_the_arrival(tmp_path: Path) -> None:
    def stall(n: int, _: Mapping[str, Any]) -> str:
        if n == 1:
            time.sleep(SERVICE_S)
            return "503"
        return ""

    found, _ = run(tmp_path, Load(arrival_rate_per_s=1000.0), stall)
    again = [one for one in found if one.retries]
    assert len(again) == 1
    assert again[0].trace
    assert (again[0].trace.total_s or 0.0) >= SERVICE_S
    assert (again[0].trace.ttft_s or 0.0) >= SERVICE_S


def test_random_arrivals_have_the_rate_and_come_again_from_their_seed() -> None:
    load = Load(arrival_rate_per_s=20.0, arrivals="poisson", seed=(3, 0))
    found = [at or 0.0 for at in list_arrivals(4000, load)]
    gaps = np.diff(found)
    assert found == list_arrivals(4000, load)
    assert float(gaps.mean()) == pytest.approx(1 / 20, rel=0.05)
    assert float(gaps.std()) == pytest.approx(1 / 20, rel=0.08)  # as an exponential's
    assert list_arrivals(3, msgspec.structs.replace(load, seed=(3, 1))) != found[:3]


def test_random_arrivals_without_a_rate_are_refused() -> None:
    with pytest.raises(ValueError, match="set the rate too"):
        ServingConfig(arrivals="poisson")

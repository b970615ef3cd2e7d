"""The batch sweep and what binds: crossovers where they are, limits as limits."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from gate.measures.profiling import Profile, StepPoint, compare_profile, name_bottleneck
from gate.measures.sweep import Wave, compare_sweep, interpolate
from gate.records import Comparison, Estimate, Generation

OK = Generation(request_id="a", finish="eos", token_ids=(1, 2))


def make_waves(ratios: Mapping[int, float], n: int = 3, noise: float = 0.01) -> list[Wave]:
    rng = np.random.default_rng(0)
    return [
        Wave(size, ([OK], [OK]), (1.0, ratio * float(rng.lognormal(0.0, noise))))
        for size, ratio in ratios.items()
        for _ in range(n)
    ]


def crossover(ratios: Mapping[int, float], **options: float) -> Comparison:
    return compare_sweep(make_waves(ratios, **options), {})[-1]  # type: ignore[arg-type]


def test_the_crossover_lies_between_the_sizes_that_are_surely_faster_and_slower() -> None:
    found = crossover({1: 0.6, 2: 0.7, 4: 0.9, 8: 1.3})
    assert found.difference is not None
    assert found.difference.interval == (4.0, 8.0)
    assert 4.0 < found.difference.statistic < 8.0


@pytest.mark.parametrize(
    ("ratios", "words"),
    [({1: 1.2, 2: 1.4}, "below 1"), ({1: 0.5, 2: 0.7}, "above 2"), ({}, "no batch size")],
)
def test_without_a_crossover_the_side_is_named(ratios: Mapping[int, float], words: str) -> None:
    limits = {} if ratios else {"8": "the memory holds 4 requests"}
    found = compare_sweep(make_waves(ratios), limits)[-1]
    assert found.difference is None
    assert words in (found.note or "")


def test_a_ratio_that_falls_again_has_no_crossover() -> None:
    found = crossover({1: 1.5, 2: 0.5})
    assert (found.difference, "does not grow" in (found.note or "")) == (None, True)


def test_the_interval_covers_the_crossover_of_a_known_curve_in_simulation() -> None:
    truth, missed = 2**1.5, 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        waves = [
            Wave(size, ([OK], [OK]), (1.0, float((size / truth) ** 0.3 * rng.lognormal(0, 0.1))))
            for size in (1, 2, 4, 8)
            for _ in range(4)
        ]
        found = compare_sweep(waves, {})[-1].difference
        if found is not None:
            low, high = found.interval
            missed += not ((low is None or low <= truth) and (high is None or truth <= high))
    assert missed <= 200 * 0.1


def test_what_the_memory_does_not_hold_is_a_limit_and_no_crash() -> None:
    error = Generation(request_id="a", finish="error", error="OutOfMemoryError: 3 GiB")
    waves = [*make_waves({1: 0.8}), Wave(8, ([OK], [error]), (1.0, 1.0))]
    found = {one.group: one for one in compare_sweep(waves, {"16": "the memory holds 9 requests"})}
    assert "OutOfMemory" in (found["batch 8"].note or "")
    assert found["batch 16"].note == "the memory holds 9 requests"
    assert found["batch 1"].difference is not None


def test_no_sweep_is_no_comparison() -> None:
    assert compare_sweep([], {}) == []
    assert interpolate({}) is None


# ----------------------------------------------------------------- profile


def make_point(rows: int, wall_s: float, copied: float, matmul: float, batch: int = 1) -> StepPoint:
    return StepPoint(
        batch=batch,
        rows=rows,
        context=100,
        wall_s=wall_s,
        n_bytes=1,
        n_flops=1,
        copied_share=copied,
        matmul_share=matmul,
    )


def make_profile(wide_s: float = 1.1, copied: float = 0.7, matmul: float = 0.01) -> Profile:
    return Profile(
        device="toy",
        dtype="float32",
        copy_bytes_per_s=1e9,
        matmul_flops_per_s=1e9,
        weight_bytes=10_000_000,
        cache_bytes_per_token=1000,
        candidate_rows=31,
        points=(make_point(1, 1.0, copied, matmul), make_point(31, wide_s, copied, matmul)),
        prefill=make_point(100, 1.0, 0.1, 0.5),
    )


@pytest.mark.parametrize(
    ("profile", "prefill", "queue", "answer"),
    [
        (make_profile(), 0.1, None, "decode-bound with spare compute"),
        (make_profile(wide_s=2.0), 0.1, None, "compute-bound"),
        (make_profile(matmul=0.8), 0.1, None, "compute-bound"),
        (make_profile(copied=0.05), 0.1, None, "host-bound"),
        (make_profile(), 0.8, None, "prefill-bound"),
        (make_profile(), 0.1, 0.7, "queue-bound"),
        (
            msgspec.structs.replace(make_profile(), cache_bytes_per_token=10**6),
            0.1,
            None,
            "KV-cache-pressure-bound",
        ),
    ],
)
def test_what_binds_is_named(
    profile: Profile, prefill: float, queue: float | None, answer: str
) -> None:
    assert name_bottleneck(profile, prefill, queue) == answer


def seconds(group: str, interval: tuple[float, float], **detail: object) -> Comparison:
    estimate = Estimate(statistic=1.0, interval=interval, confidence_level=0.95, n=9, method="toy")
    return Comparison(
        measure="device_seconds", group=group, unit="ratio", difference=estimate, detail=detail
    )


@pytest.mark.parametrize(
    ("interval", "tokens", "cost", "answer"),
    [
        ((0.5, 0.8), 1.0, 2.0, "strong"),
        ((1.1, 1.3), 3.0, 1.0, "no candidate"),
        ((0.5, 1.5), 2.0, 1.5, "strong"),
        ((0.5, 1.5), 1.55, 1.5, "neutral"),
        ((0.5, 1.5), 1.2, 1.5, "no candidate"),
    ],
)
def test_a_class_is_rated_by_its_interval_first_and_its_steps_next(
    interval: tuple[float, float], tokens: float, cost: float, answer: str
) -> None:
    one = seconds("code", interval, tokens_per_step=tokens, step_cost_ratio=[cost, None, None])
    found = compare_profile(None, [one], None)
    assert [c.detail["answer"] for c in found] == ["not measured", answer]

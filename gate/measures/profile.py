"""Measuring a device: ceilings, and what steps of the model reach beside them, in one run.

The one measure that may import torch; it is reached by name. Bytes and operations are counted
from the model's shapes and the cache, times are the best of several.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gate.decoders.engine import Engine, cache_shape
from gate.decoders.memory import free_bytes
from gate.measures.profiling import Profile, StepPoint

if TYPE_CHECKING:
    from gate.models import LoadedModel

CONTEXT = 256
REPEATS = 3
COPY_BYTES = {"cuda": 2**31, "cpu": 2**27}
MATMUL_SIZE = {"cuda": 8192, "cpu": 1024}


def profile_model(
    model: LoadedModel, candidate_rows: int, batches: Sequence[int], context: int = CONTEXT
) -> Profile:
    """Measure ceilings, plain and wide steps at each batch size, and a prefill.

    candidate_rows: rows of one request in the candidate's step. batches: ascending. A shape that
    does not fit the memory is left out.
    """
    ceilings = measure_ceilings(model)
    config = model.model.config.get_text_config(decoder=True)
    context = min(context, max(8, model.context - candidate_rows - 1))
    shapes = [(b, r) for b in batches for r in _list_rows(candidate_rows, is_first=b == batches[0])]
    steps = []
    for batch, rows in shapes:
        try:
            steps.append((batch, rows, context, time_step(model, batch, rows, context)))
        except (torch.OutOfMemoryError, MemoryError):
            continue
    steps.append((1, context, 0, time_prefill(model, context)))
    counted = [(*one, *count_step(model.model, config, model.dtype, *one[:3])) for one in steps]
    # what a step reached is no more than what the device can do, whoever disturbed the ceilings
    again = measure_ceilings(model)
    copied = max(ceilings[0], again[0], *(n_bytes / wall for *_, wall, n_bytes, _ in counted))
    matmul = max(ceilings[1], again[1], *(n_flops / wall for *_, wall, _, n_flops in counted))
    *points, prefill = (_make_point(*one, copied, matmul) for one in counted)
    return Profile(
        device=_name_device(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        copy_bytes_per_s=copied,
        matmul_flops_per_s=matmul,
        weight_bytes=count_weights(model.model)[1],
        cache_bytes_per_token=cache_bytes(config, 1, model.dtype),
        candidate_rows=candidate_rows,
        points=tuple(points),
        prefill=prefill,
        free_bytes=free_bytes(model.device),
        device_figures=read_nvml(model.device),
    )


def _list_rows(candidate_rows: int, *, is_first: bool) -> list[int]:
    curve = [1, 2, 4, 8, 16, 32, 64] if is_first else [1]
    return sorted({r for r in curve if r <= candidate_rows} | {1, candidate_rows})


def _name_device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


# ---------------------------------------------------------------- clock


def time_best(run: Callable[[], object], device: torch.device, repeats: int = REPEATS) -> float:
    """Return the shortest of several runs, seconds, the device's work included."""
    run()
    walls = []
    for _ in range(repeats):
        synchronise(device)
        began = time.perf_counter()
        run()
        synchronise(device)
        walls.append(time.perf_counter() - began)
    return min(walls)


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_ceilings(model: LoadedModel) -> tuple[float, float]:
    """Return bytes copied, and operations of a matrix product, per second."""
    return measure_copy(model.device), measure_matmul(model.device, model.dtype)


def measure_copy(device: torch.device) -> float:
    """Return bytes per second of a large copy, read and written bytes together."""
    n = COPY_BYTES.get(device.type, COPY_BYTES["cpu"])
    source = torch.zeros(n // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * n / time_best(lambda: target.copy_(source), device)


def measure_matmul(device: torch.device, dtype: torch.dtype) -> float:
    """Return operations per second of a large square matrix product in the model's dtype."""
    n = MATMUL_SIZE.get(device.type, MATMUL_SIZE["cpu"])
    left = torch.ones(n, n, dtype=dtype, device=device)
    right = torch.ones(n, n, dtype=dtype, device=device)
    return 2 * n**3 / time_best(lambda: left @ right, device)


# ---------------------------------------------------------------- steps


@torch.inference_mode()
def time_step(model: LoadedModel, batch: int, rows: int, context: int) -> float:
    """Return seconds of a step of ``rows`` rows behind ``context`` tokens, in a batch."""
    engine = Engine(model.model, batch, context + rows)
    engine.lengths[:] = context
    tokens = np.full((batch, rows), 1, dtype=np.int64)
    depths = np.broadcast_to(np.arange(rows), (batch, rows))
    read = list(range(rows))
    return time_best(lambda: engine.forward(tokens, depths, None, read), model.device)


@torch.inference_mode()
def time_prefill(model: LoadedModel, n_tokens: int) -> float:
    """Return seconds of one prompt's prefill."""

    def run() -> None:
        Engine(model.model, 1, n_tokens + 1).prefill([[1] * n_tokens])

    return time_best(run, model.device)


def _make_point(
    batch: int,
    rows: int,
    context: int,
    wall_s: float,
    n_bytes: int,
    n_flops: int,
    copied: float,
    matmul: float,
) -> StepPoint:
    return StepPoint(
        batch=batch,
        rows=rows,
        context=context,
        wall_s=wall_s,
        n_bytes=n_bytes,
        n_flops=n_flops,
        copied_share=n_bytes / wall_s / copied,
        matmul_share=n_flops / wall_s / matmul,
    )


def count_weights(model: Any) -> tuple[int, int]:
    """Return weights that a row multiplies, and bytes of all that a step reads.

    Every parameter once; an embedding that is not also the head is a look-up: no operation.
    """
    seen: dict[int, torch.Tensor] = {id(p): p for p in model.parameters()}
    lookup, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    skipped = {id(lookup)} if head is None or head.weight is not lookup else set()
    used = [p for key, p in seen.items() if key not in skipped]
    return sum(p.numel() for p in used), sum(p.numel() * p.element_size() for p in used)


def cache_bytes(config: Any, n_tokens: int, dtype: torch.dtype) -> int:
    """Return bytes of the keys and values of so many tokens of one request."""
    layers, _, heads, slots, size = cache_shape(config, 1, n_tokens)
    return 2 * layers * heads * slots * size * (torch.finfo(dtype).bits // 8)


def count_step(
    model: Any, config: Any, dtype: torch.dtype, batch: int, rows: int, context: int
) -> tuple[int, int]:
    """Return bytes moved and operations of a step.

    Bytes: weights once, the cache behind every request read, its new rows written. Operations: two
    per weight and row, and of attention four per layer, head size times heads, row and slot.
    """
    n_weights, weight_bytes = count_weights(model)
    seen = context + rows
    moved = weight_bytes + batch * (
        cache_bytes(config, seen, dtype) + cache_bytes(config, rows, dtype)
    )
    layers, _, _, _, size = cache_shape(config, 1, 1)
    attention = 4 * layers * config.num_attention_heads * size * rows * seen
    return moved, batch * (2 * n_weights * rows + attention)


# ---------------------------------------------------------------- NVML


def read_nvml(device: torch.device) -> dict[str, object]:
    """Return clocks, power, memory and activity of an NVIDIA device, or why they are missing."""
    if device.type != "cuda":
        return {"nvml": "not measured: no NVIDIA device"}
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(device.index or 0)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return {
            "sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "memory_used_bytes": int(memory.used),
            "memory_total_bytes": int(memory.total),
            "residency_percent": nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        }
    except Exception as error:  # noqa: BLE001 - another process' driver is no reason to stop
        return {"nvml": f"not measured: {type(error).__name__}: {error}"}

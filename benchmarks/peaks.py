"""Peak memory of decoding a batch, in a process of its own. Linux only."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.decoders import MODEL, decode
from gate.config import ModelConfig
from gate.models import load_model, resolve_model
from gate.records import Request

KIB_PER_MIB = 1024


def measure_peak(table: dict[str, object], requests: Sequence[Request]) -> float:
    """Return the most resident memory while a batch is decoded, MiB, above that before it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_run, table, requests).result()


def _run(table: dict[str, object], requests: Sequence[Request]) -> float:
    model = load_model(resolve_model(ModelConfig(id=MODEL), Path.cwd(), print))
    torch.set_num_threads(1)
    before = _read_status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    decode(model, table, requests, len(requests))
    return _read_status("VmHWM") - before


def _read_status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith(f"{key}:"))
    return int(found.split()[1]) / KIB_PER_MIB

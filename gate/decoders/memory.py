"""How many requests fit into a declared memory budget: decided at plan time, not by a crash."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch

from gate.decoders.alike import N_DIMENSIONS
from gate.decoders.engine import PREFILL_ROWS, PROMPT_ROWS, cache_shape
from gate.decoders.options import LookaheadOptions
from gate.decoders.routed import list_specs
from gate.decoders.sources import SHARED_BYTES
from gate.errors import RunError
from gate.records import DecoderSpec, Request

if TYPE_CHECKING:
    from gate.models import LoadedModel

GIB = 1024**3
SHARE = 0.7
"""Of the memory that is free now, where no budget is declared."""
ACTIVATIONS = 12
"""Hidden-size rows alive at once per row of a forward (projections, MLP, residuals)."""


def request_bytes(model: LoadedModel, request: Request, n_rows: int) -> int:
    """Bytes one request needs while its batch runs.

    Keys and values of all its slots; the logits of a step's rows, or of the prompt's that are
    read where there are more; the logits kept per emitted token for the divergence measure; the
    activations of its prefill.
    """
    config = model.model.config.get_text_config(decoder=True)
    n_slots = len(request.prompt) + request.max_tokens + n_rows
    layers, _, heads, slots, size = cache_shape(config, 1, n_slots)
    item = torch.finfo(model.dtype).bits // 8
    cache = 2 * layers * heads * slots * size * item
    n_read = max(n_rows, min(len(request.prompt), PROMPT_ROWS) if n_rows > 1 else 1)
    logits = (n_read + request.max_tokens) * model.vocab_size * 4
    rows = max(n_rows, min(len(request.prompt), PREFILL_ROWS))
    return int(cache + logits + rows * ACTIVATIONS * config.hidden_size * item)


def decoder_bytes(model: LoadedModel, specs: Iterable[DecoderSpec]) -> int:
    """Bytes that decoders hold once, whatever the batch: embeddings and rows that they share."""
    held = [_held_bytes(model, one) for spec in specs for one in list_specs(spec)]
    return sum(held)


def _held_bytes(model: LoadedModel, spec: DecoderSpec) -> int:
    if spec.kind != "lookahead":
        return 0
    options = msgspec.convert(spec.options, LookaheadOptions)
    if not options.recycles:
        return 0
    hidden = model.model.config.get_text_config(decoder=True).hidden_size
    table = model.vocab_size * min(N_DIMENSIONS, hidden) * 4
    return int(table + (SHARED_BYTES if options.shared_rows else 0))


def free_bytes(device: torch.device) -> int:
    """Memory that is free now, on the device the model runs on."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        found = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(found["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def check_room(model: LoadedModel) -> None:
    """Check that the weights fit a second time, in float32. Raises RunError with the figures."""
    needed = 4 * sum(p.numel() for p in model.model.parameters())
    free = int(SHARE * free_bytes(model.device))
    if needed > free:
        msg = (
            f"the weights in float32 need {needed / GIB:.2f} GiB and {free / GIB:.2f} GiB may be "
            "used; use a machine with more memory, or give a reason in run.skip_float32"
        )
        raise RunError(msg)


def fit_batch(
    model: LoadedModel,
    requests: Sequence[Request],
    n_rows: int,
    batch: int,
    budget_gib: float | None,
    held: int = 0,
) -> int:
    """Return the largest batch, at most ``batch``, whose neediest requests fit the budget.

    held: bytes that the decoders keep beside the batch. Raises RunError, naming the figures, where
    not even one request fits.
    """
    whole = int(budget_gib * GIB) if budget_gib else int(SHARE * free_bytes(model.device))
    budget = max(0, whole - held)
    needed = max(request_bytes(model, request, n_rows) for request in requests)
    fitting = min(batch, budget // needed)
    if fitting < 1:
        msg = (
            f"one request needs {needed / GIB:.2f} GiB, the decoders {held / GIB:.2f}, and the "
            f"memory budget is {whole / GIB:.2f} GiB; raise run.memory_gib, shorten the prompts, "
            "or use a smaller lookahead"
        )
        raise RunError(msg)
    return fitting

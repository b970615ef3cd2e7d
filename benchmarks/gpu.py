"""Lookahead and plain decoding on one GPU: step cost against rows, arms by batch, speed-up.

    python -m benchmarks.gpu --json FILE [--model FOLDER]           # one GPU, minutes
    python -m benchmarks.gpu --json FILE --device cpu --tiny        # seconds, what the tests run

Steps of both arms are alike: static shapes over the slot cache, a mask in both, captured as one
CUDA graph where there is a GPU, so that neither pays for launches. The projected speed-up of a
prompt kind is its tokens per forward times the time of a one-row step over that of a step.
The arms themselves run through the engine as it ships (no graphs), beside ``generate``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.engine import SlotCache, cache_shape
from gate.decoders.lookahead import LookaheadDecoder
from gate.decoders.options import AutoregressiveOptions, LookaheadOptions
from gate.models import LoadedModel, ResolvedModel, cache_argument, load_model, wrap_model
from gate.records import Request
from tests.conftest import build_byte_tokenizer

Row = dict[str, object]
SEVEN_B = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 320,
}
ROWS = (1, 2, 4, 8, 16, 32, 40, 64, 80, 120, 128)
CONTEXT = 512
REPEATS = 20
BATCHES = (1, 4, 16, 64)
BUDGET = 40
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def make_random_model(shape: dict[str, int], dtype: torch.dtype, device: torch.device) -> Any:
    """Return a Llama of a shape with normal weights, made on the device."""
    config = LlamaConfig(**shape, max_position_embeddings=4096)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval().requires_grad_(requires_grad=False)


class StaticStep:
    """One forward of fixed shape behind a context: all inputs are tensors that stay in place.

    Every slot of the cache is handed to attention and masked, as a graph demands.
    """

    def __init__(self, model: Any, batch: int, n_rows: int, context: int) -> None:
        device, dtype = model.device, model.dtype
        self._model = model
        n_slots = context + n_rows
        cache = SlotCache(cache_shape(model.config, batch, n_slots), dtype, device)
        cache.slots = torch.arange(context, n_slots, device=device).expand(batch, -1)
        cache.batch_index = torch.arange(batch, device=device)[:, None]
        cache.n_past, cache.n_used = context, n_slots
        self._inputs = {
            "input_ids": torch.full((batch, n_rows), 7, device=device),
            "position_ids": cache.slots.clone(),
            "attention_mask": _causal_mask(n_rows, n_slots, dtype, device).expand(
                batch, -1, -1, -1
            ),
            "use_cache": True,
            cache_argument(model): cache,
        }
        self.run = self.forward

    def forward(self) -> torch.Tensor:
        """Run it once; returns the best token of every row."""
        logits: torch.Tensor = self._model(**self._inputs).logits
        return logits.argmax(-1)

    def capture(self) -> None:
        """Record the step as a CUDA graph; ``run`` replays it from then on."""
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.forward()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            best = self.forward()

        def replay() -> torch.Tensor:
            graph.replay()
            return best

        self.run = replay


def _causal_mask(
    n_rows: int, n_slots: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """(1, 1, R, S), additive: row r sees the context and the rows up to itself."""
    mask = torch.full((n_rows, n_slots), torch.finfo(dtype).min, dtype=dtype, device=device)
    return mask.triu(n_slots - n_rows + 1)[None, None]


def time_calls(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Return the median seconds of a call, the device's work included."""
    call()
    seconds = []
    for _ in range(repeats):
        _wait(device)
        began = time.perf_counter()
        call()
        _wait(device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def name_kernels(call: Callable[[], object], device: torch.device, most: int = 5) -> list[str]:
    """Return the kernels (operators on a CPU) that take the most time, the slowest first."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        call()
        _wait(device)
    key = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    averages = sorted(profile.key_averages(), key=lambda event: -getattr(event, key))
    return [str(event.key)[:120] for event in averages[:most]]


@torch.inference_mode()
def measure_steps(
    model: Any, name: str, rows: Sequence[int], context: int, repeats: int
) -> Iterator[Row]:
    """Yield the time of a static step by rows, with the kernels of one row and of the most."""
    for n_rows in rows:
        step = StaticStep(model, 1, n_rows, context)
        shown = n_rows in (rows[0], rows[-1])
        kernels = name_kernels(step.forward, model.device) if shown else []
        if model.device.type == "cuda":
            step.capture()
        seconds = time_calls(step.run, repeats, model.device)
        yield {
            "model": name,
            "dtype": str(model.dtype).removeprefix("torch."),
            "rows": n_rows,
            "step_ms": round(1e3 * seconds, 4),
            "graph": model.device.type == "cuda",
            "kernels": kernels,
        }


def measure_arms(
    model: LoadedModel, name: str, batches: Sequence[int], n_tokens: int, budget: int
) -> Iterator[Row]:
    """Yield seconds of plain decoding, lookahead and ``generate`` by batch, same tokens each."""
    arms: dict[str, Any] = {
        "plain": AutoregressiveDecoder(model, AutoregressiveOptions()),
        f"B{budget}": LookaheadDecoder(model, LookaheadOptions(rows=budget)),
    }
    for batch in batches:
        requests = make_requests(model, batch, n_tokens)
        for arm, decoder in arms.items():
            run = _Counted(decoder, requests)
            seconds = time_calls(run, 1, model.device)
            yield {
                "model": name,
                "arm": arm,
                "batch": batch,
                "s": round(seconds, 4),
                "tokens_per_s": round(run.n_tokens / seconds, 1),
                "tokens_per_forward": round(run.n_tokens / run.n_forwards, 3),
            }
        if batch in (batches[0], batches[-1]):  # each one is compiled anew
            yield _measure_generate(model, name, batch, n_tokens)


class _Counted:
    """Calls a decoder and counts what came out."""

    def __init__(self, decoder: Any, requests: Sequence[Request]) -> None:
        self._decoder, self._requests = decoder, requests
        self.n_tokens = self.n_forwards = 0

    def __call__(self) -> None:
        found = list(self._decoder.generate(self._requests))
        failed = next((g.error for g in found if g.error), None)
        if failed:
            raise RuntimeError(failed)
        self.n_tokens = sum(len(g.token_ids or ()) for g in found)
        self.n_forwards = sum(len(g.trace.steps) for g in found if g.trace)


def _measure_generate(model: LoadedModel, name: str, batch: int, n_tokens: int) -> Row:
    """Time transformers' ``generate``: static cache and compilation on a GPU."""
    requests = make_requests(model, batch, n_tokens)
    ids = torch.tensor([list(r.prompt) for r in requests], device=model.device)
    more = {"cache_implementation": "static"} if model.device.type == "cuda" else {}

    def call() -> None:
        model.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=n_tokens,
            min_new_tokens=n_tokens,
            do_sample=False,
            pad_token_id=0,
            **more,
        )

    seconds = time_calls(call, 1, model.device)
    return {
        "model": name,
        "arm": "generate",
        "batch": batch,
        "s": round(seconds, 4),
        "tokens_per_s": round(batch * n_tokens / seconds, 1),
    }


def make_requests(model: LoadedModel, batch: int, n_tokens: int) -> list[Request]:
    """Return prompts of equal length that differ, and run to their budget."""
    n = min(1000, model.vocab_size)
    return [
        Request(
            id=f"{batch}-{b}",
            task="gpu",
            request_class="gpu",
            prompt=tuple((37 * b + 11 * i * i) % n for i in range(32)),
            max_tokens=n_tokens,
        )
        for b in range(batch)
    ]


def project(steps: Sequence[Row], figures: Path | None) -> Iterator[Row]:
    """Yield the speed-up by prompt kind: tokens per forward times (one-row step / step).

    figures: the file of ``benchmarks.lookahead``, whose budgets say the tokens per forward.
    """
    if figures is None or not figures.exists():
        return
    known = json.loads(figures.read_text()).get("budgets", [])
    times = {(s["model"], s["dtype"], s["rows"]): float(str(s["step_ms"])) for s in steps}
    for (model, dtype, n_rows), step_ms in times.items():
        for row in known:
            if row["setting"] == f"B{n_rows}":
                one = times[model, dtype, 1]
                yield {
                    "model": model,
                    "dtype": dtype,
                    "setting": row["setting"],
                    "kind": row["kind"],
                    "speed_up": round(row["tokens_per_forward"] * one / step_ms, 3),
                }


def find_crossover(arms: Sequence[Row], budget: int) -> Row:
    """Return the smallest batch at which plain decoding is faster; None: at none of those tried."""
    speed = {(row["batch"], row["arm"]): float(str(row["tokens_per_s"])) for row in arms}
    batches = sorted({int(str(row["batch"])) for row in arms})
    slower = (b for b in batches if speed[b, "plain"] > speed[b, f"B{budget}"])
    return {"crossover_batch": next(slower, None), "batches": batches}


def run_all(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure everything that the arguments ask for."""
    device = torch.device(arguments.device)
    tiny = arguments.tiny
    rows = (1, 2, 8) if tiny else ROWS
    dtypes = ("float32",) if device.type == "cpu" else ("bfloat16", "float16")
    shape, name = (TINY, "tiny") if tiny else (SEVEN_B, "7B shape, random weights")
    steps: list[Row] = []
    for dtype in dtypes:
        model = make_random_model(shape, DTYPES[dtype], device)
        context, repeats = (16, 2) if tiny else (CONTEXT, REPEATS)
        steps += show(measure_steps(model, name, rows, context, repeats))
    loaded = open_model(arguments, device, model)
    if not tiny:
        steps += show(measure_steps(loaded.model, loaded.name, rows, CONTEXT, REPEATS))
    budget, n_tokens = (8, 8) if tiny else (BUDGET, 64)
    batches = (1, 2) if tiny else BATCHES
    arms = show(measure_arms(loaded, loaded.name, batches, n_tokens, budget))
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "versions": {"torch": torch.__version__},
        "steps": steps,
        "arms": arms,
        "projected": show(project(steps, arguments.figures)),
        **find_crossover(arms, budget),
    }


def open_model(arguments: argparse.Namespace, device: torch.device, random: Any) -> LoadedModel:
    """Return the model of --model, in bfloat16 on a GPU; without one the random model."""
    if arguments.model is None:
        return wrap_model(random, build_byte_tokenizer(), "random weights")
    from gate.config import ModelConfig  # noqa: PLC0415
    from gate.models import resolve_model  # noqa: PLC0415

    dtype = "float32" if device.type == "cpu" else "bfloat16"
    config = ModelConfig(id=str(arguments.model), dtype=dtype, device=str(device))
    resolved: ResolvedModel = resolve_model(config, Path.cwd(), print)
    return load_model(resolved, dtype, str(device))


def show(rows: Iterator[Row]) -> list[Row]:
    """Print rows as they come; returns them."""
    found = []
    for row in rows:
        print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        found.append(row)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--json", type=Path, required=True, help="write the figures to this file")
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:1, cpu")
    parser.add_argument("--tiny", action="store_true", help="a size that a CPU runs in seconds")
    parser.add_argument("--model", help="embedded id or folder of the model whose arms are timed")
    parser.add_argument("--figures", type=Path, help="figures of benchmarks.lookahead to project")
    arguments = parser.parse_args(argv)
    arguments.json.write_text(json.dumps(run_all(arguments), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

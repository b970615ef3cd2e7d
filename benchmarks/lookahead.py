"""Lookahead with a budget of rows: tokens per forward, sampling, wall-clock, step cost, memory.

    python -m benchmarks.lookahead --part budgets --json FILE [--rows 40] [--per-kind 3]

Each part writes its own key of FILE and leaves the others. The prompts are those of
fresh_prompts.py, written after tuning; guesses start empty at each request; the prefill is a
forward.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from benchmarks.decoders import MODEL, Row, decode, encode, measure_steps, steps_of
from benchmarks.fresh_prompts import FRESH
from benchmarks.peaks import measure_peak
from gate.config import ModelConfig
from gate.decoders.budget import spread_costs
from gate.decoders.memory import request_bytes
from gate.models import LoadedModel, load_model, resolve_model
from gate.records import Generation, Request, Sampling, prompt_ids

Ids = dict[str, tuple[int, ...]]
ABLATIONS: dict[str, list[str]] = {
    "all": ["window", "recycled", "ngrams"],
    "without window": ["recycled", "ngrams"],
    "without recycled": ["window", "ngrams"],
    "without ngrams": ["window", "recycled"],
    "ngrams alone": ["ngrams"],
}
BATCH = 10
TEMPERATURES = (0.7, 1.0)
MEMORY_TOKENS = 8  # committed in the memory measurement: the peak comes early
LOOKUP_TOKENS = 10  # drafted at once by transformers' prompt lookup, its own usual figure


class Bench:
    """The model, the requests, and the plain outputs found so far, kept in a file."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        resolved = resolve_model(ModelConfig(id=MODEL), Path.cwd(), print)
        self.model: LoadedModel = load_model(resolved)
        self.requests = make_requests(self.model, arguments.per_kind, arguments.max_tokens)
        self._plain_file: Path | None = arguments.plain

    def plain(self, requests: Sequence[Request], label: str) -> Ids:
        """Plain decoding's outputs. label: what tells these requests from others."""
        file = self._plain_file
        known = json.loads(file.read_text()) if file and file.exists() else {}
        key = f"{label}/{self.arguments.max_tokens}"
        found = known.setdefault(key, {})
        missing = [r for r in requests if r.id not in found]
        new = decode(self.model, {"kind": "autoregressive"}, missing, BATCH)
        found |= {i: list(g.token_ids or ()) for i, g in new.items()}
        if file:
            file.write_text(json.dumps(known))
        return {r.id: tuple(found[r.id]) for r in requests}


def make_requests(model: LoadedModel, per_kind: int, max_tokens: int) -> list[Request]:
    """Return ``per_kind`` fresh chat prompts of every kind."""
    return [
        Request(
            id=f"{kind}/fresh-{n}",
            task=kind,
            request_class=kind,
            prompt=encode(model, text),
            max_tokens=max_tokens,
            eos_ids=model.eos_ids,
        )
        for kind, texts in FRESH.items()
        for n, text in enumerate(texts[:per_kind])
    ]


@torch.inference_mode()
def find_greedy(
    model: LoadedModel, requests: Sequence[Request], found: Mapping[str, Generation]
) -> tuple[Ids, dict[str, float]]:
    """Return the best tokens behind each output's own prefixes, and the worst regret of its tokens.

    An output all of whose tokens are the best behind their prefixes is the greedy one, by
    induction. One stock forward per output, without cache or guesses.
    """
    best: Ids = {}
    regrets: dict[str, float] = {}
    for request in requests:
        ids = list(found[request.id].token_ids or ())
        prompt = prompt_ids(request)
        whole = torch.tensor([[*prompt, *ids[:-1]]], device=model.device)
        logits = model.model(whole, use_cache=False).logits[0, len(prompt) - 1 :].float()
        best[request.id] = tuple(logits.argmax(-1).tolist())
        chosen = logits.gather(1, torch.tensor(ids, device=model.device)[:, None])[:, 0]
        regrets[request.id] = round(float((logits.amax(-1) - chosen).max()), 6)
    return best, regrets


def summarise(
    requests: Sequence[Request],
    found: Mapping[str, Generation],
    plain: Ids,
    regrets: Mapping[str, float] | None = None,
) -> Iterator[Row]:
    """Yield tokens and rows per forward by kind and pooled, and where outputs differ from plain."""
    for kind in (*FRESH, "all"):
        ids = [r.id for r in requests if kind in (r.task, "all")]
        steps = [step for i in ids for step in steps_of(found[i])]
        decoding = [step for i in ids for step in steps_of(found[i])[1:]]
        n_tokens = sum(len(found[i].token_ids or ()) for i in ids)
        yield {
            "kind": kind,
            "tokens_per_forward": round(n_tokens / max(1, len(steps)), 3),
            "rows_mean": round(sum(s.n_rows for s in decoding) / max(1, len(decoding)), 1),
            "rows_most": max((s.n_rows for s in decoding), default=1),
            "n_prompts": len(ids),
            "n_tokens": n_tokens,
            "n_different": sum((found[i].token_ids or ()) != plain[i] for i in ids),
            **({"regret_nat": max(regrets[i] for i in ids)} if regrets else {}),
        }


def measure_budgets(bench: Bench) -> Iterator[Row]:
    """Yield tokens per forward at each budget."""
    for rows in bench.arguments.rows:
        found = decode(bench.model, {"kind": "lookahead", "rows": rows}, bench.requests, BATCH)
        greedy = find_greedy(bench.model, bench.requests, found)
        for row in summarise(bench.requests, found, *greedy):
            yield {"setting": f"B{rows}", **row}


def measure_ablation(bench: Bench) -> Iterator[Row]:
    """Yield tokens per forward with some of the sources, at the first budget given."""
    for name in bench.arguments.sources:
        sources = ABLATIONS[name]
        table = {"kind": "lookahead", "rows": bench.arguments.rows[0], "sources": sources}
        found = decode(bench.model, table, bench.requests, BATCH)
        greedy = find_greedy(bench.model, bench.requests, found)
        for row in summarise(bench.requests, found, *greedy):
            yield {"setting": f"B{bench.arguments.rows[0]}", "sources": name, **row}


def measure_sampled(bench: Bench) -> Iterator[Row]:
    """Yield tokens per forward of sampled requests, with the noise in the guesses and without."""
    for temperature in TEMPERATURES:
        sampling = Sampling(temperature=temperature, seed=1)
        requests = [replace(r, sampling=sampling) for r in bench.requests]
        plain = bench.plain(requests, f"temperature {temperature}")
        for shared in (True, False):
            table = {
                "kind": "lookahead",
                "rows": bench.arguments.rows[0],
                "shared_noise": shared,
            }
            found = decode(bench.model, table, requests, BATCH)
            for row in summarise(requests, found, plain):
                if row["kind"] == "all":
                    setting = f"B{bench.arguments.rows[0]}"
                    yield {"setting": setting, "temperature": temperature, "shared": shared, **row}


def measure_curve(bench: Bench) -> Iterator[Row]:
    """Yield the time of a step by rows."""
    yield from measure_steps(bench.model)


def read_curve(path: Path) -> list[list[float]]:
    """Return the cost curve that the part ``steps`` wrote, as ``step_cost`` takes it."""
    rows = json.loads(path.read_text())["steps"]
    return [[row["rows"], row["step_s"]] for row in rows]


def measure_wall(bench: Bench) -> Iterator[Row]:
    """Yield seconds per prompt kind, one request at a time: plain, budget policy, transformers."""
    curve = read_curve(bench.arguments.json)
    table = {"kind": "lookahead", "rows": bench.arguments.rows[0], "step_cost": curve}
    arms: dict[str, Callable[[Request], int]] = {
        "plain": lambda r: _decode_one(bench.model, {"kind": "autoregressive"}, r),
        "policy": lambda r: _decode_one(bench.model, table, r),
        "generate": lambda r: _generate(bench.model, r, None),
        "prompt_lookup": lambda r: _generate(bench.model, r, LOOKUP_TOKENS),
    }
    for request in bench.requests:
        seconds = {}
        for name, run in arms.items():
            began = time.perf_counter()
            n_tokens = run(request)
            seconds[name] = (time.perf_counter() - began) / n_tokens
        [policy] = decode(bench.model, table, [request], 1).values()
        row = {name: round(1e3 * value, 1) for name, value in seconds.items()}
        ratio = seconds["plain"] / seconds["policy"]
        lookup = seconds["generate"] / seconds["prompt_lookup"]
        yield {
            "kind": request.task,
            "ms_per_token": row,
            "speed_up": round(ratio, 2),
            "speed_up_by_curve": round(_weigh(policy, curve, bench.arguments.rows[0]), 2),
            "share_of_steps_that_guess": round(_share_guessing(policy), 2),
            "speed_up_of_prompt_lookup": round(lookup, 2),
        }


def _weigh(found: Generation, curve: list[list[float]], rows: int) -> float:
    """Return tokens per time of a one-row step by the curve, the prefill left out: from counts."""
    costs = spread_costs([(int(n), cost) for n, cost in curve], rows)
    steps = steps_of(found)[1:]
    spent = sum(costs[step.n_rows - 1] for step in steps) / costs[0]
    return float(sum(step.n_emitted for step in steps) / max(spent, 1e-9))


def _share_guessing(found: Generation) -> float:
    steps = steps_of(found)[1:]
    return float(sum(step.n_rows > 1 for step in steps) / max(1, len(steps)))


def _decode_one(model: LoadedModel, table: dict[str, object], request: Request) -> int:
    [found] = decode(model, table, [request], 1).values()
    return max(1, len(found.token_ids or ()))


def _generate(model: LoadedModel, request: Request, lookup: int | None) -> int:
    ids = torch.tensor([list(request.prompt)])
    more: dict[str, Any] = {"prompt_lookup_num_tokens": lookup} if lookup else {}
    found = model.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=request.max_tokens,
        do_sample=False,
        eos_token_id=list(request.eos_ids),
        **more,
    )
    return max(1, int(found.shape[1] - ids.shape[1]))


def measure_host(bench: Bench) -> Iterator[Row]:
    """Yield the share of a step that is not the model, from a profiler."""
    request = bench.requests[0]
    for rows in bench.arguments.rows:
        profile = cProfile.Profile()
        table = {"kind": "lookahead", "rows": rows}
        profile.runcall(_decode_one, bench.model, table, request)
        stats: dict[tuple[str, int, str], Any] = vars(pstats.Stats(profile))["stats"]
        total = _cumulative(stats, "decoding.py", "_step")
        parts = {
            name: _cumulative(stats, file, name) / total
            for file, name in (
                ("tree_drafter.py", "propose"),
                ("tree_drafter.py", "learn"),
                ("decoding.py", "lay_out"),
                ("tops.py", "find_best"),
                ("tops.py", "find_tops"),
                ("engine.py", "commit"),
            )
        }
        host = sum(parts.values())
        rounded = {name: round(share, 4) for name, share in parts.items()}
        yield {"setting": f"B{rows}", "host_share": round(host, 4), **rounded}


def _cumulative(stats: Mapping[tuple[str, int, str], Any], file: str, name: str) -> float:
    return float(
        sum(s[3] for (path, _, called), s in stats.items() if called == name and file in path)
    )


def measure_memory(bench: Bench) -> Iterator[Row]:
    """Yield the memory that decoding took beside what plan time declares for it, by batch."""
    known = make_requests(bench.model, 3, MEMORY_TOKENS)
    for batch in (1, 8, 32):
        requests = [replace(known[n % len(known)], id=f"{n}", eos_ids=()) for n in range(batch)]
        plain = 0.0
        for rows in (1, *bench.arguments.rows):
            peak = measure_peak({"kind": "lookahead", "rows": rows}, requests)
            plain = peak if rows == 1 else plain
            declared = batch * max(request_bytes(bench.model, r, rows) for r in requests) / 2**20
            figures = {"peak_mib": peak, "above_plain_mib": peak - plain, "declared_mib": declared}
            rounded = {name: round(value, 1) for name, value in figures.items()}
            yield {"batch": batch, "rows": rows, **rounded}


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "budgets": measure_budgets,
    "ablation": measure_ablation,
    "sampled": measure_sampled,
    "steps": measure_curve,
    "wall": measure_wall,
    "host": measure_host,
    "memory": measure_memory,
}


def _identify(row: Row) -> tuple[object, object]:
    """What tells a row's measurement from others of its part, which stay in the file."""
    return row.get("setting"), row.get("sources")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one part, print its rows, and put them into the file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lookahead", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--part", choices=tuple(PARTS), required=True)
    parser.add_argument("--json", type=Path, required=True, help="the file of all parts' figures")
    parser.add_argument("--rows", type=int, nargs="+", default=[40, 80, 120], help="budgets")
    parser.add_argument(
        "--sources",
        choices=tuple(ABLATIONS),
        nargs="+",
        default=list(ABLATIONS),
        help="of the part ablation (default: every one)",
    )
    parser.add_argument("--per-kind", type=int, default=3, help="prompts of each kind (default 3)")
    parser.add_argument("--max-tokens", type=int, default=128, help="per output (default 128)")
    parser.add_argument("--plain", type=Path, help="keep plain outputs here between parts")
    arguments = parser.parse_args(argv)
    bench = Bench(arguments)
    rows = []
    for row in PARTS[arguments.part](bench):
        print("  ".join(f"{name}={value}" for name, value in row.items()), flush=True)
        rows.append(row)
    known: dict[str, Any] = {"model": MODEL}
    if arguments.json.exists():
        known = json.loads(arguments.json.read_text())
    before = known.get(arguments.part, []) if arguments.part in ("budgets", "ablation") else []
    new = {_identify(row) for row in rows}
    known[arguments.part] = [*(row for row in before if _identify(row) not in new), *rows]
    arguments.json.write_text(json.dumps(known, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Lookahead with a budget of rows: tokens per forward, sampling, wall-clock, step cost, memory.

    python -m benchmarks.lookahead --part budgets --json FILE [--rows 40] [--per-kind 3]

Each part writes its own key of FILE and leaves the others. The prompts are those of
fresh_prompts.py, written after tuning; guesses start empty at each request; the prefill is a
forward.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.decoders import ABLATION, MODEL, POOLS, Row, decode
from benchmarks.fresh import BATCH, Bench, find_greedy, summarise
from benchmarks.lookahead_costs import (
    measure_curve,
    measure_host,
    measure_memory,
    measure_wall,
)
from gate.records import Sampling

ABLATIONS: dict[str, list[str]] = {
    **{name.strip() or "all": sources for name, sources in ABLATION.items()},
    "ngrams alone": ["ngrams"],
}
TEMPERATURES = (0.7, 1.0)
PUBLISHED, PUBLISHED_ROWS = "W15N5G15", 120


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


def measure_published(bench: Bench) -> Iterator[Row]:
    """Yield tokens per forward of window and pool as published, and of a tree of as many rows."""
    window, ngram, guesses = POOLS[PUBLISHED]
    pool = {"window": window, "ngram": ngram, "guesses": guesses}
    tree: dict[str, int] = {"rows": PUBLISHED_ROWS}
    for setting, options in ((PUBLISHED, pool), (f"B{PUBLISHED_ROWS}", tree)):
        found = decode(bench.model, {"kind": "lookahead", **options}, bench.requests, BATCH)
        greedy = find_greedy(bench.model, bench.requests, found)
        for row in summarise(bench.requests, found, *greedy):
            yield {"setting": setting, **row}


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "budgets": measure_budgets,
    "ablation": measure_ablation,
    "sampled": measure_sampled,
    "published": measure_published,
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
    known |= bench.notes
    arguments.json.write_text(json.dumps(known, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

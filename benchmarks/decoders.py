"""Tokens per forward, step cost, and plain decoding against ``generate``, on the embedded model.

    python -m benchmarks.decoders --json FILE [--per-kind 1] [--max-tokens 128]

Tokens per forward counts the prefill as a forward; the pool is empty at each request; greedy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace

from benchmarks.prompts import PROMPTS
from gate.config import ModelConfig
from gate.decoders.base import create, read_spec
from gate.decoders.engine import Engine
from gate.models import LoadedModel, load_model, resolve_model
from gate.records import Generation, Request

MODEL = "embedded:smollm2-135m-instruct"
POOLS = {"W7N4G7": (7, 4, 7), "W10N5G10": (10, 5, 10), "W15N5G15": (15, 5, 15)}
BUDGETS = (40, 80, 120)
ABLATED = 80
ABLATION = {
    "": ["window", "recycled", "ngrams"],
    " without window": ["recycled", "ngrams"],
    " without recycled": ["window", "ngrams"],
    " without ngrams": ["window", "recycled"],
}
PUBLISHED = {
    ("W7N4G7", False): 1.58,
    ("W10N5G10", False): 1.66,
    ("W15N5G15", False): 1.73,
    ("W10N5G10", True): 1.85,
}
"""The published implementation (hao-ai-lab/LookaheadDecoding), same model, ten chat prompts."""
STEP_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
STEP_CONTEXT = 256
STEP_REPEATS = 9
BATCH = 8
Row = dict[str, object]


def make_requests(
    model: LoadedModel,
    per_kind: int,
    max_tokens: int,
    prompts: Mapping[str, Sequence[str]] = PROMPTS,
    mark: str = "",
) -> list[Request]:
    """Return ``per_kind`` chat prompts of every kind. mark: in their ids."""
    return [
        Request(
            id=f"{kind}/{mark}{n}",
            task=kind,
            request_class=kind,
            prompt=encode(model, text),
            max_tokens=max_tokens,
            eos_ids=model.eos_ids,
        )
        for kind, texts in prompts.items()
        for n, text in enumerate(texts[:per_kind])
    ]


def encode(model: LoadedModel, text: str) -> tuple[int, ...]:
    """Return a chat prompt's token ids."""
    encoded = model.tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
    )
    return tuple(encoded["input_ids"])


def decode(
    model: LoadedModel, table: dict[str, object], requests: Sequence[Request], batch: int
) -> dict[str, Generation]:
    """Decode in batches; by request id."""
    decoder = create(read_spec("candidate", table), model)
    parts = [requests[at : at + batch] for at in range(0, len(requests), batch)]
    return {g.request_id: g for part in parts for g in decoder.generate(part)}


def list_settings() -> Iterator[tuple[str, dict[str, object]]]:
    """Yield name and options: window and pool, budgets of rows, the ablation at one of them."""
    for name, (window, ngram, guesses) in POOLS.items():
        for prompt_ngrams in (False, True):
            pool = {"window": window, "ngram": ngram, "guesses": guesses}
            yield name, {**pool, "prompt_ngrams": prompt_ngrams}
    for rows in BUDGETS:
        for name, sources in ABLATION.items():
            if rows == ABLATED or not name:
                yield f"B{rows}{name}", {"rows": rows, "sources": sources}


def compare_settings(
    model: LoadedModel, requests: Sequence[Request], chosen: Sequence[str]
) -> Iterator[Row]:
    """Yield tokens and rows per forward of each chosen setting, by kind and pooled."""
    plain = decode(model, {"kind": "autoregressive"}, requests, BATCH)
    for setting, options in list_settings():
        if setting not in chosen:
            continue
        prompt_ngrams = bool(options.get("prompt_ngrams"))
        found = decode(model, {"kind": "lookahead", **options}, requests, BATCH)
        for kind in (*PROMPTS, "all"):
            ids = [r.id for r in requests if kind in (r.task, "all")]
            yield {
                "setting": setting,
                "prompt_ngrams": prompt_ngrams,
                "kind": kind,
                **summarise(ids, found, plain),
                "published": PUBLISHED.get((setting, prompt_ngrams)) if kind == "all" else None,
            }


def summarise(
    ids: Sequence[str], found: Mapping[str, Generation], plain: Mapping[str, Generation]
) -> Row:
    """Pool some outputs: tokens per forward, most rows of a step, identical to plain decoding."""
    steps = [step for i in ids for step in steps_of(found[i])]
    n_tokens = sum(len(found[i].token_ids or ()) for i in ids)
    decoding = [step for i in ids for step in steps_of(found[i])[1:]]
    return {
        "tokens_per_forward": round(n_tokens / len(steps), 3),
        "rows_per_forward": max((step.n_rows for step in decoding), default=1),
        "identical": all(found[i].token_ids == plain[i].token_ids for i in ids),
        "n_tokens": n_tokens,
    }


def steps_of(generation: Generation) -> Sequence[Any]:
    """Return an output's forwards."""
    return generation.trace.steps if generation.trace else ()


def measure_steps(model: LoadedModel) -> Iterator[Row]:
    """Yield the median time of one forward of 1 to 128 rows after a context of 256 tokens."""
    prompt = [i % 1000 + 100 for i in range(STEP_CONTEXT)]
    engine = Engine(model.model, 1, STEP_CONTEXT + max(STEP_ROWS) + 1)
    engine.prefill([prompt])
    for n_rows in STEP_ROWS:
        tokens = np.full((1, n_rows), 100)
        depths = np.arange(n_rows)[None]
        mask = np.tri(n_rows, dtype=bool)[None]
        times = []
        for _ in range(STEP_REPEATS):
            began = time.perf_counter()
            engine.forward(tokens, depths, mask, range(n_rows))
            times.append(time.perf_counter() - began)
        yield {"rows": n_rows, "step_s": round(statistics.median(times), 4)}


def compare_generate(
    model: LoadedModel, requests: Sequence[Request], n_tokens: int = 32
) -> Iterator[Row]:
    """Yield the time of plain decoding beside transformers' ``generate``, batch 1 and 16."""
    prompt = requests[0].prompt
    for batch in (1, 16):
        chosen = [
            replace(requests[0], id=f"{batch}-{n}", max_tokens=n_tokens, min_tokens=n_tokens)
            for n in range(batch)
        ]
        plain = [replace(r, min_tokens=0, eos_ids=()) for r in chosen]
        ids = torch.tensor([list(prompt)] * batch)

        def own(plain: Sequence[Request] = plain, batch: int = batch) -> None:
            decode(model, {"kind": "autoregressive"}, plain, batch)

        def theirs(ids: Any = ids) -> None:
            model.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=n_tokens,
                min_new_tokens=n_tokens,
                do_sample=False,
            )

        seconds: dict[str, list[float]] = {"own": [], "generate": []}
        for _ in range(3):  # alternating, so that drift of the machine hits both
            for name, call in (("own", own), ("generate", theirs)):
                began = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - began)
        ours, peer = (statistics.median(seconds[name]) for name in ("own", "generate"))
        yield {
            "batch": batch,
            "own_s": round(ours, 3),
            "generate_s": round(peer, 3),
            "ratio": round(ours / peer, 3),
        }


def write_result(path: Path, max_tokens: int, result: Mapping[str, Sequence[Row]]) -> None:
    """Put measurements into the file; what was not run stays, of outputs as long."""
    known = json.loads(path.read_text()) if path.exists() else {}
    if known.get("max_tokens") != max_tokens:
        known = {}  # other outputs
    new = {row["setting"] for row in result.get("rows", ())}
    kept = [row for row in known.get("rows", ()) if row["setting"] not in new]
    written: dict[str, object] = {"model": MODEL, "max_tokens": max_tokens, **known, **result}
    written["rows"] = [*kept, *result.get("rows", ())]
    path.write_text(json.dumps(written, indent=1) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run all three measurements and print them as a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.decoders", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--per-kind", type=int, default=1, help="prompts of each kind (default 1)")
    parser.add_argument(
        "--max-tokens", type=int, default=128, help="tokens per output (default 128)"
    )
    parser.add_argument(
        "--part", choices=("generate", "steps", "rows"), help="run one of the three only"
    )
    names = list(dict(list_settings()))
    parser.add_argument(
        "--settings", choices=names, nargs="+", default=names, help="of the part rows"
    )
    arguments = parser.parse_args(argv)
    model = load_model(resolve_model(ModelConfig(id=MODEL), Path.cwd(), print))
    requests = make_requests(model, arguments.per_kind, arguments.max_tokens)
    result: dict[str, list[Row]] = {}
    parts = (
        ("generate", compare_generate(model, requests)),
        ("steps", measure_steps(model)),
        ("rows", compare_settings(model, requests, arguments.settings)),
    )
    for name, rows in parts:
        for row in rows if arguments.part in (None, name) else ():
            print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
            result.setdefault(name, []).append(row)
    if arguments.json:
        write_result(arguments.json, arguments.max_tokens, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())

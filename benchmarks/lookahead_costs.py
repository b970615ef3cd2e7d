"""What lookahead costs: time of a step and of whole outputs, work of the host, memory."""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from benchmarks.decoders import Row, measure_steps, steps_of
from benchmarks.fresh import Bench, make_fresh
from benchmarks.fresh_prompts import FRESH
from benchmarks.peaks import measure_peak
from gate.decoders.base import Decoder, create, read_spec
from gate.decoders.budget import spread_costs
from gate.decoders.memory import decoder_bytes, request_bytes
from gate.models import LoadedModel
from gate.records import Request

MEMORY_TOKENS = 8  # committed in the memory measurement: the peak comes early
LOOKUP_TOKENS = 10  # drafted at once by transformers' prompt lookup, its own usual figure
PEERS_PER_KIND = 1  # prompts of each kind that transformers' own decoding runs as well


def measure_curve(bench: Bench) -> Iterator[Row]:
    """Yield the time of a step by rows."""
    yield from measure_steps(bench.model)


def read_curve(path: Path) -> list[list[float]]:
    """Return the cost curve that the part ``steps`` wrote, as ``step_cost`` takes it."""
    rows = json.loads(path.read_text())["steps"]
    return [[row["rows"], row["step_s"]] for row in rows]


class Arms:
    """The decoders of the wall-clock comparison, made once: what making one costs is no step's."""

    def __init__(self, bench: Bench, table: dict[str, object]) -> None:
        self._model = bench.model
        self._decoders: dict[str, Decoder] = {
            "plain": create(read_spec("baseline", {"kind": "autoregressive"}), bench.model),
            "policy": create(read_spec("candidate", table), bench.model),
        }
        self._per_kind = bench.arguments.per_kind
        self._lookups: dict[str, int | None] = {"generate": None, "prompt_lookup": LOOKUP_TOKENS}
        self.steps: Sequence[Any] = ()
        """What the policy did last, step by step, the prefill left out."""

    def order(self, at: int) -> list[str]:
        """Return the arms of the request at a place: each comes first in its turn."""
        peers = list(self._lookups) if at % self._per_kind < PEERS_PER_KIND else []
        names = [*self._decoders, *peers]
        turn = at % len(names)
        return [*names[turn:], *names[:turn]]

    def run(self, name: str, request: Request) -> tuple[int, float]:
        """Decode a request; returns its tokens and seconds."""
        began = time.perf_counter()
        if name in self._lookups:
            n_tokens = _generate(self._model, request, self._lookups[name])
        else:
            [found] = self._decoders[name].generate([request])
            n_tokens = len(found.token_ids or ())
            self.steps = steps_of(found)[1:] if name == "policy" else self.steps
        return max(1, n_tokens), time.perf_counter() - began


def measure_wall(bench: Bench) -> Iterator[Row]:
    """Yield time per token by kind, one request at a time: plain, budget policy, transformers.

    Of each kind the time of all its prompts over their tokens; the arms take turns.
    """
    curve = read_curve(bench.arguments.json)
    rows = bench.arguments.rows[0]
    arms = Arms(bench, {"kind": "lookahead", "rows": rows, "step_cost": curve})
    bench.notes["wall_machine"] = describe_threads()
    runs: list[dict[str, Any]] = []
    for at, request in enumerate(bench.requests):
        run: dict[str, Any] = {name: arms.run(name, request) for name in arms.order(at)}
        runs.append({"kind": request.task, "steps": arms.steps, **run})
    costs = spread_costs([(int(n), cost) for n, cost in curve], rows)
    for kind in (*FRESH, "all"):
        yield summarise_wall(kind, [run for run in runs if kind in (run["kind"], "all")], costs)
    bench.notes["wall_machine"]["load_after"] = describe_threads()["load"]


def summarise_wall(kind: str, runs: Sequence[Mapping[str, Any]], costs: Any) -> Row:
    """Pool the runs of a kind. By the curve: from counts, the prefill left out."""
    n_guessing = sum(step.n_rows > 1 for run in runs for step in run["steps"])
    steps = [step for run in runs for step in run["steps"]]
    spent = sum(costs[step.n_rows - 1] for step in steps) / costs[0]
    row: Row = {
        "kind": kind,
        "n_prompts": len(runs),
        "n_tokens": sum(run["plain"][0] for run in runs),
        "ms_per_token": {name: _per_token(runs, name) for name in ("plain", "policy")},
        "speed_up": _divide(runs, "plain", "policy"),
        "speed_up_by_curve": round(sum(s.n_emitted for s in steps) / max(spent, 1e-9), 3),
        "share_of_steps_that_guess": round(n_guessing / max(1, len(steps)), 3),
        "by_prompt": [_divide([run], "plain", "policy") for run in runs],
    }
    peers = [run for run in runs if "generate" in run]
    names = ("plain", "policy", "generate", "prompt_lookup")
    row["peers"] = {
        "n_prompts": len(peers),
        "ms_per_token": {name: _per_token(peers, name) for name in names},
        "speed_up_of_policy": _divide(peers, "plain", "policy"),
        "speed_up_of_prompt_lookup": _divide(peers, "generate", "prompt_lookup"),
    }
    return row


def _per_token(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(round(1e3 * _pool(runs, name), 1))


def _divide(runs: Sequence[Mapping[str, Any]], plain: str, other: str) -> float:
    return float(round(_pool(runs, plain) / max(1e-9, _pool(runs, other)), 3))


def _pool(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    """Seconds per token."""
    tokens, seconds = (sum(run[name][at] for run in runs) for at in (0, 1))
    return float(seconds / max(1, tokens))


def describe_threads() -> dict[str, Any]:
    """Return torch's threads, the cores, and how busy the machine is: load over one minute."""
    load = round(os.getloadavg()[0], 2)
    return {"threads": torch.get_num_threads(), "cores": os.cpu_count(), "load": load}


def _decode_one(model: LoadedModel, table: dict[str, object], request: Request) -> None:
    list(create(read_spec("candidate", table), model).generate([request]))


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
    known = make_fresh(bench.model, 3, MEMORY_TOKENS)
    for batch in (1, 8, 32):
        requests = [replace(known[n % len(known)], id=f"{n}", eos_ids=()) for n in range(batch)]
        plain = 0.0
        for rows in (1, *bench.arguments.rows):
            peak = measure_peak({"kind": "lookahead", "rows": rows}, requests)
            plain = peak if rows == 1 else plain
            spec = read_spec("candidate", {"kind": "lookahead", "rows": rows})
            each = max(request_bytes(bench.model, request, rows) for request in requests)
            declared = (batch * each + decoder_bytes(bench.model, [spec])) / 2**20
            figures = {"peak_mib": peak, "above_plain_mib": peak - plain, "declared_mib": declared}
            rounded = {name: round(value, 1) for name, value in figures.items()}
            yield {"batch": batch, "rows": rows, **rounded}

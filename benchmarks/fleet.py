"""A simulated fleet: one class that lookahead serves well, one that it does not, at several mixes.

    python -m benchmarks.fleet [--json FILE] [--requests 30]

Long answers of 400 tokens with predictable text, short ones of 30 with open text. A plain step
takes 25 ms (a 7B model in 16 bits on one device), a lookahead step 1.3 of it. The long class gets
2.9 tokens per step: a speed-up of 2.25, what the paper gives for HumanEval with CodeLlama-7B (Fu et
al. 2024). The short class gets 1.1, less than its step costs. Each request's time varies by 3%.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gate.criteria import Rules, decide, judge_all
from gate.defaults import default_criteria
from gate.gain_config import EconomicsConfig
from gate.measures.economics import ServedBlock, compare_economics
from gate.records import Comparison, Generation, Outcome, Request, Step, Trace, Verdict

STEP_S, COST, PREFILL_S, NOISE = 0.025, 1.3, 0.05, 0.03
ROWS = 31
MIXES = (0.02, 0.10, 0.50, 0.90)
ECONOMICS = EconomicsConfig(
    device_hour_usd=2.5, requests_per_month=10_000_000, revenue_usd={"default": 0.002}
)


class Kind(NamedTuple):
    """A request class: mean tokens per answer, and what a lookahead step brings."""

    name: str
    n_tokens: int
    tokens_per_step: float


KINDS = (Kind("long_predictable", 400, 2.9), Kind("short_open", 30, 1.1))


def simulate(
    n: int, rng: np.random.Generator, kinds: Sequence[Kind] = KINDS, cost: float = COST
) -> list[ServedBlock]:
    """Return two blocks of ``n // 2`` requests per class, with known step costs and acceptance."""
    return [_simulate_block(block, n // 2, rng, kinds, cost) for block in range(2)]


def _simulate_block(
    block: int, n: int, rng: np.random.Generator, kinds: Sequence[Kind], cost: float
) -> ServedBlock:
    requests, baseline, candidate = [], [], []
    for kind in kinds:
        for k in range(n):
            name = f"{kind.name}/{block}/{k}"
            requests.append(
                Request(id=name, task="fleet", request_class=kind.name, prompt="p", max_tokens=1000)
            )
            n_tokens = max(2, int(rng.normal(kind.n_tokens, kind.n_tokens / 10)))
            baseline.append(_generate(name, [1] * n_tokens, STEP_S, 1, rng))
            emitted = _draw_steps(n_tokens, kind.tokens_per_step, rng)
            candidate.append(_generate(name, emitted, STEP_S * cost, ROWS, rng))
    arms = {"baseline": baseline, "candidate": candidate}
    walls = {
        arm: sum(g.trace.total_s or 0.0 for g in found if g.trace) + 0.01
        for arm, found in arms.items()
    }
    return ServedBlock(requests, arms, walls)


def _draw_steps(n_tokens: int, mean: float, rng: np.random.Generator) -> list[int]:
    """Tokens per step, at least one each, with the given mean, adding up to ``n_tokens``."""
    found: list[int] = []
    left = n_tokens
    while left > 0:
        found.append(min(left, 1 + int(rng.poisson(mean - 1.0))))
        left -= found[-1]
    return found


def _generate(
    name: str, emitted: Sequence[int], step_s: float, rows: int, rng: np.random.Generator
) -> Generation:
    factor = float(rng.lognormal(0.0, NOISE))
    steps = [Step(n_rows=50, n_emitted=1, wall_s=PREFILL_S * factor)]
    steps += [
        Step(
            n_rows=rows,
            n_drafted=rows - 1,
            n_accepted=k - 1 if rows > 1 else 0,
            n_emitted=k,
            wall_s=step_s * factor,
        )
        for k in emitted
    ]
    total = sum(step.wall_s for step in steps)
    return Generation(
        request_id=name,
        finish="eos",
        token_ids=tuple(range(1 + sum(emitted))),
        trace=Trace(total_s=total, ttft_s=steps[0].wall_s, sent_s=0.0, steps=tuple(steps)),
    )


def judge_fleet(
    share_long: float, n: int, rng: np.random.Generator
) -> tuple[list[Comparison], list[Verdict], Outcome]:
    """Return comparisons, cost verdicts and the gain's outcome of a fleet at one mix."""
    shares = {KINDS[0].name: share_long, KINDS[1].name: 1.0 - share_long}
    found = compare_economics(simulate(n, rng), shares, ECONOMICS, "steps")
    criteria = [
        one
        for one in default_criteria("lossless", "release", "float32", 0.02, own_baseline=True)
        if one.measure == "device_seconds"
    ]
    rules = Rules(
        purpose="release", alpha=0.001, max_dropped=0.02, classes=tuple(kind.name for kind in KINDS)
    )
    verdicts = judge_all(criteria, found, rules)
    return found, verdicts, decide(verdicts, "release").gain


def describe_mix(share_long: float, n: int, rng: np.random.Generator) -> dict[str, object]:
    """Return what the gate says of one mix."""
    found, _, gain = judge_fleet(share_long, n, rng)
    by_name = {(one.measure, one.group): one for one in found}
    whole, routing = by_name["device_seconds", "all"], by_name["routing", "all"]
    ratios = {
        kind.name: by_name["device_seconds", kind.name].difference.statistic  # type: ignore[union-attr]
        for kind in KINDS
    }
    return {
        "share_long": share_long,
        "blend": whole.difference.statistic if whole.difference else None,
        "by_class": ratios,
        "hidden": whole.detail["hidden_by_blend"],
        "gain": str(gain),
        "routed": routing.detail["chosen"],
        "routed_ratio": routing.difference.statistic if routing.difference else None,
        "routed_interval": list(routing.difference.interval) if routing.difference else None,
        "break_even_share": whole.detail["break_even_mix"].get("share_to_break_even"),  # type: ignore[attr-defined]
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row per mix; write them as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--requests", type=int, default=30, help="per class")
    options = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    rows = [describe_mix(share, options.requests, rng) for share in MIXES]
    for row in rows:
        print(json.dumps(row))
    if options.json:
        options.json.write_text(json.dumps({"requests_per_class": options.requests, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

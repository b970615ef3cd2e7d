"""Noise of the gain: an arm timed against itself, and the requests that show a change of 10%.

    python -m benchmarks.timing_noise [--json FILE] [--runs 40] [--pairs 16]

Each run times plain decoding of a tiny model against itself through the gate's own blocks, and
reads the 95% interval of its time ratio. That 1 lies inside as often as a binomial rule allows is
checked; the median width is printed. The power is simulated, for pairs whose ratios vary by 2% to
20%.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gate.decoders.base import create, read_spec
from gate.decoders.load import Load, serve
from gate.measures.serving import compare_serving
from gate.measures.stats import binomial_limits
from gate.models import wrap_model
from gate.records import Estimate, Generation, Request
from gate.timing import cross_over
from tests.conftest import build_byte_tokenizer, build_toy_model

CHANGE, POWER, SIMULATIONS = 1.10, 0.9, 200
LEVEL = 0.95
SIZES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def make_block(n: int, run: int, half: int) -> list[Request]:
    """Return ``n`` prompts of random ids; none comes twice."""
    return [
        Request(
            id=f"{run}/{half}/{k}",
            task="timing",
            request_class="all",
            prompt=tuple(np.random.default_rng([run, half, k]).integers(0, 200, 20).tolist()),
            max_tokens=12,
        )
        for k in range(n)
    ]


def collect(decoder: Any, requests: Sequence[Request]) -> list[Generation]:
    """Decode one batch, in order."""
    found = {one.request_id: one for one in decoder.generate(requests)}
    return [found[request.id] for request in requests]


def time_itself(decoder: Any, n_pairs: int, run: int) -> Estimate:
    """Return the time ratio of a decoder against itself, 2.5% beyond each bound."""
    halves = [tuple(make_block(n_pairs // 2, run, half)) for half in range(2)]
    blocks = []
    for n, requests in enumerate(cross_over(halves, 1)):
        arms = ("baseline", "candidate") if n % 2 == 0 else ("candidate", "baseline")
        by_arm = {arm: serve(collect, decoder, requests, Load())[0] for arm in arms}
        blocks.append((by_arm, requests))
    whole = compare_serving(blocks, None, 1.0 - (1.0 - LEVEL) / 2.0)[0]
    if whole.difference is None:
        msg = f"run {run}: {whole.note}"
        raise ValueError(msg)
    return whole.difference


def is_inside(estimate: Estimate) -> bool:
    """Whether the interval contains 1."""
    low, high = estimate.interval
    return (low is None or low <= 1.0) and (high is None or high >= 1.0)


def width(estimate: Estimate) -> float:
    """Return the interval's width."""
    low, high = estimate.interval
    return math.inf if low is None or high is None else high - low


def least_inside(runs: int) -> int:
    """Return the fewest runs with 1 inside that a true 95% still explains at 1%."""
    return next(k for k in range(runs + 1) if binomial_limits(k, runs, 0.01)[1] >= LEVEL)


def find_pairs(sd: float, rng: np.random.Generator) -> int | None:
    """Return the fewest pairs that show a change of 10% in nine of ten simulated runs."""
    for n in SIZES:
        shown = 0
        for _ in range(SIMULATIONS):
            ratio = CHANGE * rng.lognormal(0.0, sd, n) * math.exp(-sd * sd / 2.0)
            x = rng.lognormal(0.0, 0.4, n)
            shown += _is_shown(x, x * ratio)
        if shown >= POWER * SIMULATIONS:
            return n
    return None


def _is_shown(x: np.ndarray, y: np.ndarray) -> bool:
    from gate.measures.means import ratio_of_means  # noqa: PLC0415

    low = ratio_of_means(x, y, LEVEL).interval[0]
    return low is not None and low > 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 where 1 lies inside as often as it must, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=16)
    options = parser.parse_args(argv)
    tokenizer = build_byte_tokenizer()
    model = wrap_model(build_toy_model(len(tokenizer)), tokenizer, "toy")
    decoder = create(read_spec("baseline", {"kind": "autoregressive"}), model)
    time_itself(decoder, 4, options.runs)  # warm-up
    found = [time_itself(decoder, options.pairs, run) for run in range(options.runs)]
    inside, least = sum(map(is_inside, found)), least_inside(options.runs)
    median = statistics.median(width(one) for one in found)
    rng = np.random.default_rng(0)
    pairs = {sd: find_pairs(sd, rng) for sd in (0.02, 0.05, 0.10, 0.20)}
    figures = {
        "runs": options.runs,
        "pairs": options.pairs,
        "inside": inside,
        "least_inside": least,
        "median_width": median,
        "pairs_for_10_percent": {str(sd): n for sd, n in pairs.items()},
    }
    print(f"1 lies in the 95% interval in {inside} of {options.runs} runs (at least {least})")
    print(f"median width of the interval, {options.pairs} pairs: {median:.3f}")
    for sd, n in pairs.items():
        print(f"a change of 10% shows with {n} pairs where a pair's ratio varies by {sd:.0%}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0 if inside >= least else 1


if __name__ == "__main__":
    sys.exit(main())

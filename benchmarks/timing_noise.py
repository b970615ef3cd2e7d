"""Noise of the gain: an arm timed against itself, and the requests that show a change of 10%.

    python -m benchmarks.timing_noise [--json FILE] [--model toy|embedded] [--runs 40] [--pairs 16]

Each run times plain decoding against itself through the gate's own blocks, and reads the 95%
interval of its time ratio. That 1 lies inside as often as a binomial rule allows is checked; the
median width is printed. How many pairs show a change of 10% is simulated twice: with the pairs that
were timed here, the candidate's times a tenth longer, and for pairs whose ratios vary by 2% to 20%.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gate.config import ModelConfig
from gate.decoders.base import create, read_spec
from gate.decoders.load import Load, serve
from gate.measures.means import ratio_of_means
from gate.measures.serving import compare_serving, read_time
from gate.measures.stats import FloatArray, binomial_limits
from gate.models import LoadedModel, load_model, resolve_model, wrap_model
from gate.records import Estimate, Generation, Request
from gate.timing import cross_over
from tests.conftest import build_byte_tokenizer, build_toy_model

CHANGE, POWER, SIMULATIONS = 1.10, 0.9, 200
EMBEDDED = "embedded:smollm2-135m-instruct"
LEVEL = 0.95
ARMS = ("baseline", "candidate")
SPREADS = (0.02, 0.05, 0.10, 0.20)
SIZES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class Run(NamedTuple):
    """One comparison of an arm with itself. seconds: (n_pairs, 2), baseline and candidate."""

    ratio: Estimate
    seconds: FloatArray


def make_model(name: str) -> LoadedModel:
    """Return the embedded model, or the tests' toy."""
    if name == "embedded":
        config = ModelConfig(id=EMBEDDED)
        return load_model(resolve_model(config, Path()))
    tokenizer = build_byte_tokenizer()
    return wrap_model(build_toy_model(len(tokenizer)), tokenizer, "toy")


def make_block(n: int, run: int, half: int, n_tokens: int) -> list[Request]:
    """Return ``n`` prompts of random ids; none comes twice."""
    return [
        Request(
            id=f"{run}/{half}/{k}",
            task="timing",
            request_class="all",
            prompt=tuple(np.random.default_rng([run, half, k]).integers(0, 200, 20).tolist()),
            max_tokens=n_tokens,
            min_tokens=n_tokens,
        )
        for k in range(n)
    ]


def collect(decoder: Any, requests: Sequence[Request]) -> list[Generation]:
    """Decode one batch, in order."""
    found = {one.request_id: one for one in decoder.generate(requests)}
    return [found[request.id] for request in requests]


def time_itself(decoder: Any, n_pairs: int, run: int, n_tokens: int) -> Run:
    """Return the time ratio of a decoder against itself, 2.5% beyond each bound."""
    halves = [tuple(make_block(n_pairs // 2, run, half, n_tokens)) for half in range(2)]
    blocks = []
    for n, requests in enumerate(cross_over(halves, 1)):
        arms = ARMS if n % 2 == 0 else ARMS[::-1]
        blocks.append(
            ({arm: serve(collect, decoder, requests, Load())[0] for arm in arms}, requests)
        )
    whole = compare_serving(blocks, None, 1.0 - (1.0 - LEVEL) / 2.0)[0]
    if whole.difference is None:
        msg = f"run {run}: {whole.note}"
        raise ValueError(msg)
    seconds = [[read_time(by_arm[arm][0]) for arm in ARMS] for by_arm, _ in blocks]
    return Run(whole.difference, np.array(seconds, dtype=np.float64))


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


def find_pairs(draw: Callable[[int], tuple[FloatArray, FloatArray]]) -> int | None:
    """Return the fewest pairs that show a change of 10% in nine of ten simulated runs.

    draw: n -> both arms' seconds of n pairs, the candidate's with the change.
    """
    for n in SIZES:
        shown = sum(_is_shown(*draw(n)) for _ in range(SIMULATIONS))
        if shown >= POWER * SIMULATIONS:
            return n
    return None


def _is_shown(x: FloatArray, y: FloatArray) -> bool:
    low = ratio_of_means(x, y, LEVEL).interval[0]
    return low is not None and low > 1.0


def draw_lognormal(sd: float, rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    """Return pairs whose ratios vary by ``sd`` around the change."""
    x = rng.lognormal(0.0, 0.4, n)
    return x, x * CHANGE * rng.lognormal(0.0, sd, n) * math.exp(-sd * sd / 2.0)


def draw_timed(
    seconds: FloatArray, rng: np.random.Generator, n: int
) -> tuple[FloatArray, FloatArray]:
    """Return pairs drawn from those that were timed, the candidate's a tenth longer."""
    chosen = seconds[rng.integers(0, len(seconds), n)]
    return chosen[:, 0], chosen[:, 1] * CHANGE


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 where 1 lies inside as often as it must, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--model", choices=("toy", "embedded"), default="toy")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=12, help="of each answer")
    options = parser.parse_args(argv)
    decoder = create(read_spec("baseline", {"kind": "autoregressive"}), make_model(options.model))
    time_itself(decoder, 4, options.runs, options.tokens)  # warm-up
    found = [
        time_itself(decoder, options.pairs, run, options.tokens) for run in range(options.runs)
    ]
    figures = describe(options, found)
    print(
        f"1 lies in the 95% interval in {figures['inside']} of {options.runs} runs "
        f"(at least {figures['least_inside']})"
    )
    print(f"median width, {options.pairs} pairs: {figures['median_width']:.3f}")
    print(f"a pair's ratio varies by {figures['pair_spread']:.1%} (standard deviation of its log)")
    print(f"pairs that show a change of 10% here: {figures['pairs_for_10_percent_here']}")
    for sd, n in figures["pairs_for_10_percent"].items():
        print(f"pairs that show it where a pair's ratio varies by {float(sd):.0%}: {n}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if figures["inside"] >= figures["least_inside"] else 1


def describe(options: argparse.Namespace, found: Sequence[Run]) -> dict[str, Any]:
    """Return the figures of all runs."""
    seconds = np.concatenate([run.seconds for run in found])
    rng = np.random.default_rng(0)
    return {
        "model": options.model,
        "runs": options.runs,
        "pairs": options.pairs,
        "tokens": options.tokens,
        "inside": sum(is_inside(run.ratio) for run in found),
        "least_inside": least_inside(options.runs),
        "median_width": statistics.median(width(run.ratio) for run in found),
        "pair_spread": float(np.std(np.log(seconds[:, 1] / seconds[:, 0]), ddof=1)),
        "pairs_for_10_percent_here": find_pairs(partial(draw_timed, seconds, rng)),
        "pairs_for_10_percent": {
            str(sd): find_pairs(partial(draw_lognormal, sd, rng)) for sd in SPREADS
        },
    }


if __name__ == "__main__":
    sys.exit(main())

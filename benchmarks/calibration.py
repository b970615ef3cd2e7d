"""Intervals, power and the false-alarm rate of the gate, by simulation.

    python -m benchmarks.calibration --json FILE [--simulations 5000]

No model: the functions under test are the gate's own measures and its judgement.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.coverage import (
    ABOUT,
    CoverageRow,
    list_scenarios,
    measure_coverage,
)
from benchmarks.family import FamilyRow, measure_families
from benchmarks.power import PowerRow, list_cases, measure_power

SIMULATIONS = 5000
NOISE = 3.0
"""Standard errors of a simulated share that a promise allows for."""


def holds_coverage(row: CoverageRow) -> bool:
    """Whether the 95% interval keeps its promise within simulation noise."""
    slack = NOISE * (0.05 * 0.95 / row.n_simulations) ** 0.5
    if row.promise != ABOUT:
        return bool(row.two_sided_95 >= 0.95 - slack)
    return bool(0.94 - slack <= row.two_sided_95 <= 0.97 + slack)


def holds_power(row: PowerRow) -> bool:
    """Whether a stated power is reached within simulation noise."""
    if row.stated is None:
        return True
    slack = NOISE * (row.stated * (1.0 - row.stated) / row.n_simulations) ** 0.5
    return bool(row.power >= row.stated - slack)


def run_all(n: int) -> tuple[list[CoverageRow], list[PowerRow], list[FamilyRow]]:
    """Simulate everything, printing as it goes."""
    coverage, power = [], []
    for seed, scenario in enumerate(list_scenarios()):
        coverage.append(measure_coverage(scenario, n, seed))
        print(describe_coverage(coverage[-1]), flush=True)
    for seed, case in enumerate(list_cases()):
        power.append(measure_power(case, n, seed))
        print(describe_power(power[-1]), flush=True)
    family = measure_families(n, seed=0)
    print(*(describe_family(row) for row in family), sep="\n", flush=True)
    return coverage, power, family


def describe_coverage(row: CoverageRow) -> str:
    """Return a row as a line for a terminal."""
    mark = "" if holds_coverage(row) else "  MISSES ITS PROMISE"
    sides = f"two-sided {row.two_sided_95:.2%} lower {row.lower_95:.2%} upper {row.upper_95:.2%}"
    return f"{row.interval:26} {row.data:60} {sides} ({row.promise}){mark}"


def describe_power(row: PowerRow) -> str:
    """Return a row as a line for a terminal."""
    mark = "" if holds_power(row) else "  BELOW WHAT IS STATED"
    stated = "-" if row.stated is None else f"{row.stated:.0%}"
    return (
        f"{row.criterion:20} {row.effect:60} {row.shows}: {row.power:.1%} (stated {stated}){mark}"
    )


def describe_family(row: FamilyRow) -> str:
    """Return a row as a line for a terminal."""
    floors = "with floors" if row.floors else "without floors"
    mark = "" if row.within_budget else "  ABOVE ITS BUDGET"
    return (
        f"{row.run:55} alpha {row.alpha} {floors:15} {row.n_false_alarms} of {row.n_runs} runs, "
        f"at most {row.upper_95:.3%}{mark}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 where a promise is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    arguments = parser.parse_args(argv)
    began = time.perf_counter()
    coverage, power, family = run_all(arguments.simulations)
    missed = [
        *(row for row in coverage if not holds_coverage(row)),
        *(row for row in power if not holds_power(row)),
        *(row for row in family if not row.within_budget),
    ]
    if arguments.json:
        written = {
            "simulations": arguments.simulations,
            "seconds": round(time.perf_counter() - began),
            "cpu_seconds": round(time.process_time()),
            "n_missed": len(missed),
            "coverage": msgspec.to_builtins(coverage),
            "power": msgspec.to_builtins(power),
            "run_level": msgspec.to_builtins(family),
        }
        arguments.json.write_text(json.dumps(written, indent=1) + "\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())

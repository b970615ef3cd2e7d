"""Which held-back prompts time what: class blocks, mixed blocks, and what is left for a sweep.

No prompt is sent twice: drafters and prefix caches remember.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gate.errors import UsageError
from gate.evalset import Evalset
from gate.evalset_files import TimingPrompt
from gate.records import Request, Sampling


def plan_timing(
    evalset: Evalset, n_per_class: int, seed: int, eos_ids: Sequence[int] = ()
) -> tuple[list[Request], list[Request]]:
    """Return two blocks of ``n_per_class`` held-back prompts per class with no prompt in common.

    Raises UsageError where the timing file has too few.
    """
    blocks: tuple[list[Request], list[Request]] = ([], [])
    for name in evalset.spec.classes:
        rows = [row for row in evalset.timing if row.request_class == name]
        if len(rows) < 2 * n_per_class:
            msg = (
                f"{evalset.folder / (evalset.spec.timing or 'evalset.toml')}: {len(rows)} timing "
                f"prompts of class {name!r}, and two blocks of timing_per_class = {n_per_class} "
                f"need {2 * n_per_class}; add prompts or lower timing_per_class"
            )
            raise UsageError(msg)
        for n, block in enumerate(blocks):
            taken = rows[n * n_per_class : (n + 1) * n_per_class]
            block += [_make_timing_request(row, seed, eos_ids) for row in taken]
    return blocks


def _make_timing_request(row: TimingPrompt, seed: int, eos_ids: Sequence[int]) -> Request:
    return Request(
        id=f"timing/{row.id}",
        task="timing",
        request_class=row.request_class,
        prompt=({"role": "user", "content": row.prompt},),
        max_tokens=row.max_tokens,
        stop=row.stop,
        eos_ids=tuple(eos_ids),
        sampling=Sampling(seed=seed),
    )


def plan_mixed(
    evalset: Evalset,
    n_requests: int,
    n_taken: int,
    seed: int,
    shares: Mapping[str, float] | None = None,
) -> tuple[list[Request], list[Request]]:
    """Return two blocks of ``n_requests`` at the traffic's shares, in an order drawn by ``seed``.

    n_taken: prompts of each class that other blocks have. Raises UsageError where a class has too
    few left.
    """
    traffic = shares or {name: one.traffic_share for name, one in evalset.spec.classes.items()}
    counts = apportion(traffic, n_requests)
    blocks: tuple[list[Request], list[Request]] = ([], [])
    for name, count in counts.items():
        rows = [row for row in evalset.timing if row.request_class == name][n_taken:]
        if len(rows) < 2 * count:
            msg = (
                f"serving.mixed_requests = {n_requests} needs {2 * count} more timing prompts of "
                f"class {name!r} and {len(rows)} are left; add prompts or lower it"
            )
            raise UsageError(msg)
        for n, block in enumerate(blocks):
            taken = rows[n * count : (n + 1) * count]
            block += [_make_timing_request(row, seed, ()) for row in taken]
    order = np.random.default_rng(seed)
    for block in blocks:
        block[:] = [block[at] for at in order.permutation(len(block))]
    return blocks


def apportion(shares: Mapping[str, float], n: int) -> dict[str, int]:
    """Return how many of ``n`` requests each class gets: largest remainders."""
    exact = {name: share * n for name, share in shares.items()}
    counts = {name: math.floor(value + 1e-9) for name, value in exact.items()}
    left = n - sum(counts.values())
    by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in by_remainder[:left]:
        counts[name] += 1
    return counts


def list_spare(evalset: Evalset, sent: Sequence[Request], seed: int) -> list[Request]:
    """Return the held-back prompts that no block sends."""
    known = {request.id for request in sent}
    planned = (_make_timing_request(row, seed, ()) for row in evalset.timing)
    return [request for request in planned if request.id not in known]

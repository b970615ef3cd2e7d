"""Every fault and control of the catalogue, run once: outputs to judge as often as one likes.

Uses the self-test's bench, and adds sampled requests with repeats to every arm, which is what
a two-sample test of texts lives on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.arms import QUIET, MemoryStore
from gate.collect import Collected, pair
from gate.config import Project
from gate.conformance import TASK as CONFORMANCE
from gate.decoders.session import Session
from gate.faults import CATALOGUE, CONTROLS, Control, Fault
from gate.measures.acceptance_drop import count_work
from gate.plan import make_plan
from gate.records import AcceptanceReference, Claim, DecoderSpec, Request, Sampling
from gate.selftest.bench import (
    SAMPLED,
    Batches,
    Bench,
    RememberingReferee,
    measure_bound,
    plan_batches,
    read_drafts,
    read_or_run,
)
from gate.selftest.examiner import REFERENCE, greedy_outputs, spec_of
from gate.selftest.sliding import open_sliding_bench

REPEATS = "repeats"
N_REPEATS, REPEATED_TOKENS, REPEATED_PROMPTS = 4, 16, 12
LEAST_TOKENS = 1000  # of the tasks, even where a fault shows in fewer
MANY_TOKENS = 3000  # from here on a fault gets all there is
PROBE_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class Case:
    """One arm's outputs beside the baseline's. kind: the fault's; empty: a control.

    seconds: what decoding and scoring them took.
    """

    id: str
    kind: str
    claim: Claim
    bench: Bench
    collected: Collected
    reference: AcceptanceReference | None
    seconds: float


def open_catalogue_bench(project: Project, folder: Path, *, has_sampled: bool = True) -> Bench:
    """Load the model, decode the baseline's side, and record the drafts.

    has_sampled: with the thousands of sampled tokens that some entries need.
    """
    plan = make_plan(project, QUIET)
    session: Any = Session(plan.resolved, project.config.model, project.folder)
    session.referee = RememberingReferee(session.referee)
    store = MemoryStore({}, folder)
    batches = plan_batches(plan, session)
    if not has_sampled:
        del batches[SAMPLED]
    bench = Bench(
        plan=plan,
        session=session,
        store=store,
        batches={**batches, REPEATS: (_make_repeats(batches["tasks"]),)},
        bound=measure_bound(plan, session, store),
    )
    decoder = session.open_arm(DecoderSpec(kind="autoregressive"))
    for group, parts in bench.batches.items():
        bench.baseline[group] = [
            read_or_run(bench, decoder, f"{group}-{n:03d}", part) for n, part in enumerate(parts)
        ]
    bench.drafts = read_drafts(bench)
    return bench


def _make_repeats(tasks: Batches) -> tuple[Request, ...]:
    """Return some task prompts sampled four times each."""
    prompts = [request for batch in tasks for request in batch][:REPEATED_PROMPTS]
    return tuple(
        msgspec.structs.replace(
            request,
            id=f"{REPEATS}/{n}",
            task=REPEATS,
            request_class=REPEATS,
            max_tokens=REPEATED_TOKENS,
            stop=(),
            sampling=Sampling(temperature=1.0, seed=n),
            repeat=repeat,
        )
        for n, request in enumerate(prompts)
        for repeat in range(N_REPEATS)
    )


def run_catalogue(bench: Bench, names: Sequence[str]) -> Iterator[Case]:
    """Yield the arms of these faults and controls; all where none is named."""
    sliding: Bench | None = None
    reference: AcceptanceReference | None = None
    for name in names or (*CONTROLS, *CATALOGUE):
        entry: Fault | Control = CATALOGUE.get(name) or CONTROLS[name]
        if entry.needs == "sliding":
            sliding = sliding or open_sliding_bench(bench)
        is_slower = "acceptance_drop" in getattr(entry, "expected", ())
        if name == REFERENCE or is_slower:
            reference = reference or _take_reference(bench)
        where = sliding if entry.needs == "sliding" and sliding else bench
        yield _run(where, entry, reference if name == REFERENCE or is_slower else None)


def _run(bench: Bench, entry: Fault | Control, reference: AcceptanceReference | None) -> Case:
    began, chosen = time.perf_counter(), _choose(bench, entry)
    if isinstance(entry, Control):
        collected = _collect(bench, entry.id, chosen, tap=True, size=entry.batch)
    else:
        collected = _collect(
            bench, entry.id, chosen, tap=entry.kind == "cache", is_baseline=entry.arm == "baseline"
        )
    return Case(
        id=entry.id,
        kind=entry.kind if isinstance(entry, Fault) else "",
        claim=entry.claim if isinstance(entry, Control) else "lossless",
        bench=bench,
        collected=collected,
        reference=reference,
        seconds=time.perf_counter() - began,
    )


def wants_sampled(name: str) -> bool:
    """Whether an entry takes thousands of sampled tokens, or all tokens there are."""
    entry: Fault | Control = CATALOGUE.get(name) or CONTROLS[name]
    return entry.needs == SAMPLED or (isinstance(entry, Fault) and entry.n_tokens > MANY_TOKENS)


def _choose(bench: Bench, entry: Fault | Control) -> dict[str, Batches]:
    if entry.needs == "sliding":
        return bench.choose(("tasks",), None)
    n_tokens = entry.n_tokens if isinstance(entry, Fault) else MANY_TOKENS
    chosen = bench.choose((CONFORMANCE, REPEATS), None)
    if wants_sampled(entry.id):
        chosen |= bench.choose((SAMPLED,), None)
    limit = max(LEAST_TOKENS, n_tokens) if n_tokens < MANY_TOKENS else None
    return chosen | bench.choose(("tasks",), limit)


def _collect(
    bench: Bench,
    name: str,
    chosen: Mapping[str, Batches],
    *,
    is_baseline: bool = False,
    **how: Any,
) -> Collected:
    baseline = bench.baseline_arm(chosen)
    arm, decoder = bench.run(_spec(name), chosen, **how)
    if is_baseline:
        return bench.collected(chosen, arm, baseline)
    outputs = greedy_outputs(chosen, baseline)
    band = bench.session.probe_band(decoder, outputs, bench.bound, PROBE_BATCH)
    return bench.collected(chosen, baseline, arm, band=band)


def _spec(name: str) -> DecoderSpec:
    """A control that draws with the project's noise is certified by it."""
    spec = spec_of(name)
    if name not in CONTROLS or CONTROLS[name].needs == SAMPLED:
        return spec
    return msgspec.structs.replace(spec, options={**spec.options, "noise": "position_keyed"})


def _take_reference(bench: Bench) -> AcceptanceReference:
    """Record what the unchanged candidate takes."""
    chosen = bench.choose(("tasks",), None)
    arm, _ = bench.run(spec_of(REFERENCE), chosen)
    collected = bench.collected(chosen, bench.baseline_arm(chosen), arm)
    return AcceptanceReference(
        evalset_sha256=bench.plan.evalset.sha256,
        model=bench.plan.resolved.name,
        dtype=bench.plan.project.config.model.dtype,
        work=count_work(pair(collected)),
    )

"""One loaded model, one baseline side, and every fault against it.

The baseline decodes and is scored once; outputs that a fault leaves as they are keep the
scores they have, and what was read before is not computed again. Both arms run under one
batch plan, whole batches at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gate.collect import Collected, step_rows
from gate.conformance import TASK as CONFORMANCE
from gate.decoders.base import load_object
from gate.measures.paired import Arm, Key, make_arm
from gate.plan import Plan
from gate.progress import Progress
from gate.records import DecoderSpec, Generation, NoiseBound, Request, Sampling, TokenScores
from gate.store import BatchResult, RunStore, key_text
from gate.timing import Timing

BATCH = 32
SAMPLED = "sampled"
"""Task and class of the sampled twins of the task prompts."""
SAMPLED_TOKENS = 5760
SAMPLED_LENGTH = 32
SAMPLED_PROMPTS = 40
LONG_PROMPT = 256
"""Tokens of a prompt that shares no batch with shorter ones: those would be padded to it."""
LAWS = (
    Sampling(temperature=1.0),
    Sampling(temperature=0.6),
    Sampling(temperature=1.0, top_k=20),
    Sampling(temperature=0.7, top_p=0.9),
    Sampling(temperature=1.0),
    Sampling(temperature=0.6),
    Sampling(temperature=1.0, top_k=20),
    Sampling(temperature=0.8, top_k=40),
)
"""Top-p once in eight: sorting the vocabulary costs more than all else that a token needs."""
MAKE = "gate.faults:make"
Batches = tuple[tuple[Request, ...], ...]
Keep = Callable[[Request], bool]


class RememberingReferee:
    """Scores an output once, however many arms gave it. Laws of a tap are always reduced."""

    def __init__(self, referee: Any) -> None:
        self._referee = referee
        self._known: dict[tuple[object, ...], TokenScores] = {}

    def score(
        self,
        requests: Sequence[Request],
        generations: Sequence[Generation],
        laws: Mapping[Key, Any] | None = None,
    ) -> Iterator[TokenScores]:
        """Yield the scores of every generation that has token ids."""
        if laws:
            yield from self._referee.score(requests, generations, laws)
            return
        for one in generations:
            key = (one.request_id, one.repeat, one.token_ids, one.tail_ids, one.finish)
            if key not in self._known:
                found = list(self._referee.score(requests, [one]))
                self._known |= dict.fromkeys([key], found[0]) if found else {}
            if key in self._known:
                yield self._known[key]

    def logits(self, *args: Any) -> Any:
        """Return the referee's logits."""
        return self._referee.logits(*args)


@dataclasses.dataclass(kw_only=True)
class Bench:
    """What every fault runs against. batches: by group (conformance, tasks, sampled)."""

    plan: Plan
    session: Any
    store: RunStore
    batches: dict[str, Batches]
    bound: NoiseBound
    drafts: Any = None
    baseline: dict[str, list[BatchResult]] = dataclasses.field(default_factory=dict)

    def choose(
        self, groups: Iterable[str], n_tokens: int | None, keep: Keep | None = None
    ) -> dict[str, Batches]:
        """Return batches of the groups; no more of each than ``n_tokens``, where given, needs.

        keep: which conformance requests are wanted; None: all.
        """
        chosen = {name: self._first(name, n_tokens) for name in groups}
        if keep and CONFORMANCE in chosen:
            kept = (tuple(filter(keep, batch)) for batch in chosen[CONFORMANCE])
            chosen[CONFORMANCE] = tuple(batch for batch in kept if batch)
        return chosen

    def _first(self, group: str, n_tokens: int | None) -> Batches:
        whole = self.batches[group]
        if n_tokens is None or group == CONFORMANCE:
            return whole
        chosen, total = [], 0
        for batch, result in zip(whole, self.baseline[group], strict=True):
            chosen.append(batch)
            total += sum(len(g.token_ids or ()) for g in result.generations)
            if total >= n_tokens:
                break
        return tuple(chosen)

    def run(self, spec: DecoderSpec, chosen: Mapping[str, Batches], **how: Any) -> tuple[Arm, Any]:
        """Decode the chosen batches with a decoder; returns its arm and itself.

        how: ``tap`` (default off): reduce the laws it used; ``size``: another batch width.
        """
        decoder = self.session.open_arm(spec)
        if getattr(decoder, "drafts", self) is None:
            decoder.drafts = self.drafts
        size = how.get("size")
        batches = [batch for group in chosen.values() for batch in group]
        if size:
            flat = [request for batch in batches for request in batch]
            batches = [tuple(flat[at : at + size]) for at in range(0, len(flat), size)]
        tap = bool(how.get("tap"))
        results = [self.session.run_batch(decoder, batch, tap=tap) for batch in batches]
        return make_arm(decoder.spec, results), decoder

    def baseline_arm(self, chosen: Mapping[str, Batches]) -> Arm:
        """Return the baseline's outputs of the chosen batches."""
        spec = DecoderSpec(kind="autoregressive")
        keys = {(r.id, r.repeat) for batches in chosen.values() for b in batches for r in b}
        results = [keep_only(result, keys) for name in chosen for result in self.baseline[name]]
        return make_arm(spec, results)

    def collected(
        self, chosen: Mapping[str, Batches], baseline: Arm, candidate: Arm, **more: Any
    ) -> Collected:
        """Return what the pipeline would have collected."""
        return Collected(
            requests=tuple(r for group in chosen.values() for batch in group for r in batch),
            arms={"baseline": baseline, "candidate": candidate},
            timing=Timing(),
            bound=self.bound,
            **more,
        )


def open_bench(plan: Plan, session: Any, store: RunStore, progress: Progress) -> Bench:
    """Run the baseline side, or read it back, and record the drafts."""
    remember_prefills(session)
    bench = Bench(
        plan=plan,
        session=session,
        store=store,
        batches=plan_batches(plan, session),
        bound=measure_bound(plan, session, store),
    )
    with progress.stage("self-test: the baseline side"):
        decoder = session.open_arm(DecoderSpec(kind="autoregressive"))
        for group, batches in bench.batches.items():
            bench.baseline[group] = [
                read_or_run(bench, decoder, f"{group}-{n:03d}", batch)
                for n, batch in enumerate(batches)
            ]
    with progress.stage("self-test: record drafts"):
        bench.drafts = read_drafts(bench)
    return bench


def remember_prefills(session: Any) -> None:
    """Let decoders and referee take from memory what they read before: bit for bit the same."""
    remembering = load_object("gate.faults.prefills:PrefillMemory")(session.model.model)
    session.model = dataclasses.replace(session.model, model=remembering)
    session.referee = RememberingReferee(load_object("gate.referee:Referee")(session.model))


def plan_batches(plan: Plan, session: Any) -> dict[str, Batches]:
    """Return the conformance set, the tasks dealt out over batches, and their sampled twins."""
    seed = plan.project.config.seed
    conformance = session.plan_conformance(load_object("gate.conformance:load_conformance")(), seed)
    tasks = [session.tokenise(request) for request in plan.requests]
    twins = [session.tokenise(request) for request in make_twins(tasks)]
    widest = max(step_rows(spec) for spec in plan.specs.values())
    memory = plan.project.config.run.memory_gib
    size = session.fit_batch([*conformance, *tasks, *twins], widest, BATCH, memory)
    n = -(-len(tasks) // size)
    return {
        CONFORMANCE: split(conformance, size),
        "tasks": tuple(tuple(tasks[start::n]) for start in range(n)),
        SAMPLED: split(twins, size),
    }


def split(requests: Sequence[Request], size: int) -> Batches:
    """Return batches of at most ``size``, long prompts in batches of their own."""
    long = [r for r in requests if len(r.prompt) > LONG_PROMPT]
    short = [r for r in requests if len(r.prompt) <= LONG_PROMPT]
    return tuple(
        tuple(some[at : at + size]) for some in (short, long) for at in range(0, len(some), size)
    )


def keep_only(result: BatchResult, keys: Collection[Key]) -> BatchResult:
    """Return a batch without the requests that are not among ``keys``."""
    return msgspec.structs.replace(
        result,
        generations=tuple(g for g in result.generations if (g.request_id, g.repeat) in keys),
        scores=tuple(s for s in result.scores if (s.request_id, s.repeat) in keys),
    )


def make_twins(tasks: Sequence[Request]) -> list[Request]:
    """Return sampled requests of the shortest prompts, at least SAMPLED_TOKENS tokens' worth."""
    shortest = sorted(tasks, key=lambda r: len(r.prompt))[:SAMPLED_PROMPTS]
    tasks = [request for request in tasks if request in shortest]
    n = max(2 * len(tasks), SAMPLED_TOKENS // SAMPLED_LENGTH + 1)
    return [
        msgspec.structs.replace(
            tasks[i % len(tasks)],
            id=f"{SAMPLED}/{i % len(tasks)}",
            task=SAMPLED,
            request_class=SAMPLED,
            max_tokens=SAMPLED_LENGTH,
            stop=(),
            sampling=msgspec.structs.replace(LAWS[i % len(tasks) % len(LAWS)], seed=i % len(tasks)),
            repeat=i // len(tasks),
        )
        for i in range(n)
    ]


def measure_bound(plan: Plan, session: Any, store: RunStore) -> NoiseBound:
    """Return the noise bound, measured once."""
    known = store.read("noise.json", NoiseBound)
    if known:
        return known
    chosen = [session.tokenise(r) for r in plan.requests[:: max(1, len(plan.requests) // 8)]]
    bound: NoiseBound = session.measure_noise(chosen, step_rows(plan.specs["candidate"]))
    store.write("noise.json", bound)
    return bound


def read_or_run(bench: Bench, decoder: Any, label: str, batch: Sequence[Request]) -> BatchResult:
    """Return a batch of the baseline: of an earlier start, or decoded now."""
    known = bench.store.read_batch("baseline", label)
    if known is None:
        known = bench.session.run_batch(decoder, batch, tap=False)
        bench.store.write_batch("baseline", label, known)
    return known


def read_drafts(bench: Bench) -> Any:
    """Return the recorded drafts; samplers with noise of their own make theirs."""
    module = "gate.faults.drafts"
    kind = load_object(f"{module}:Recorded")
    known = bench.store.read("drafts.json", dict[str, kind])  # type: ignore[valid-type]
    if known is None:
        groups = bench.batches.items()
        batches = [batch for name, group in groups if name != SAMPLED for batch in group]
        found = load_object(f"{module}:record_drafts")(bench.session.model, batches)
        known = {key_text(*key): value for key, value in found.items()}
        bench.store.write("drafts.json", known)
    keyed = {
        (name.rpartition("#")[0], int(name.rpartition("#")[2])): v for name, v in known.items()
    }
    return load_object(f"{module}:RecordedDrafts")(keyed)

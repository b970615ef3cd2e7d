"""``kind = "replay"``: outputs of a run that is over, as an arm.

Either an arm of a run of the gate's (its folder under reports/), with everything that was stored:
tokens, traces, the referee's scores, timings. Or the sample files that lm-eval writes: texts alone.
What was stored for another evalset, prompt or parameter is never compared: the run ends as an ERROR
that names the field. What was not stored at all is a failed request with that reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gate.config import find_root
from gate.conformance import TASK as CONFORMANCE
from gate.decoders.options import ReplayOptions
from gate.decoders.place import Place
from gate.decoders.replay_samples import SampleFiles
from gate.errors import RunError, UsageError
from gate.evalset import load_evalset
from gate.offers import find_own_eos
from gate.provenance import hash_files
from gate.records import DecoderSpec, Generation, NoiseBound, Request, TokenScores
from gate.store import BatchResult, Fault, RunStore, StoredPlan, key_text

Key = tuple[str, int]
PARTS = ("model", "versions", "platform", "python", "gate", "template_sha256")
"""Provenance of the stored arm that the comparison rests on."""
PARAMETERS = ("max_tokens", "min_tokens", "stop", "sampling", "n_logprobs", "response_format")


class Stored(Protocol):
    """Outputs of a run that is over."""

    def describe(self) -> dict[str, object]:
        """Where they came from."""
        ...

    def find(self, request: Request) -> Generation | None:
        """Return the output of a request. Raises RunError where it was another request's."""
        ...


def inspect_replay(spec: DecoderSpec, folder: Path, _: Any) -> dict[str, str]:
    """Return the hash of the stored files. Raises UsageError where they are not there."""
    options = msgspec.convert(spec.options, ReplayOptions)
    files = list_files(options, folder)
    return {"source_sha256": hash_files(files, find_root(folder))}


def list_files(options: ReplayOptions, folder: Path) -> list[Path]:
    """Return the stored files. Raises UsageError naming the key."""
    if options.run:
        run = _resolve("run", options.run, folder)
        files = [run / "plan.json", run / "decision.json", *(run / options.arm).glob("*.json")]
    else:
        files = [_resolve("samples", name, folder) for name in options.samples]
    missing = [path for path in files if not path.is_file()]
    if missing or (options.run and len(files) < len(("plan", "decision", "a batch"))):
        name = missing[0] if missing else files[0].parent / options.arm
        msg = f"{name} is not there or holds nothing; name the folder of a run, or sample files"
        raise UsageError(msg)
    return sorted(files)


def _resolve(key: str, value: str, folder: Path) -> Path:
    path, root = (folder / value).resolve(), find_root(folder.resolve())
    if not path.is_relative_to(root):
        msg = f"{key} = {value!r} leaves the project folder {root}; copy it inside"
        raise UsageError(msg)
    return path


class StoredRun:
    """One arm of a run of the gate's."""

    def __init__(self, folder: Path, arm: str) -> None:
        """Read all of it. Raises RunError where a file cannot be read."""
        store = RunStore(folder)
        plan = store.read("plan.json", StoredPlan)
        decision = store.read("decision.json", dict[str, Any]) or {}
        self.provenance: dict[str, Any] = decision.get("provenance", {}).get(arm, {})
        is_judged = decision.get("outcome") != "ERROR" or bool(decision.get("verdicts"))
        self.broken = "" if is_judged else str(decision.get("reason"))
        self.bound = store.read("noise.json", NoiseBound)
        batches = [*plan.batches, *plan.timing, *plan.mixed] if plan else []
        self.requests: dict[Key, Request] = {(r.id, r.repeat): r for b in batches for r in b}
        self.generations: dict[Key, Generation] = {}
        self.scores: dict[Key, TokenScores] = {}
        self.faults: dict[str, tuple[Fault, ...]] = {}
        for path in sorted((folder / arm).glob("*.json")):
            if path.name.startswith(("batch-", "timing-", "mixed-")):
                self._add(store.read(f"{arm}/{path.name}", BatchResult))

    def _add(self, result: BatchResult | None) -> None:
        if result is None:
            return
        self.generations |= {(g.request_id, g.repeat): g for g in result.generations}
        self.scores |= {(s.request_id, s.repeat): s for s in result.scores}
        self.faults |= result.faults
        for scores in result.scores:
            output = self.generations.get((scores.request_id, scores.repeat))
            if output is None or (*(output.token_ids or ()), *output.tail_ids) != scores.token_ids:
                msg = (
                    f"the stored scores of {scores.request_id!r} are of other tokens than its "
                    "stored output: the files were changed; run the gate again"
                )
                raise RunError(msg)

    def describe(self) -> dict[str, object]:
        """Return what the stored run says of its model and machine."""
        return {name: self.provenance[name] for name in PARTS if name in self.provenance}

    def check(self, evalset_sha256: str) -> None:
        """Raise RunError where the run broke before a verdict, or was on another evalset."""
        if self.broken:
            msg = f"the stored run was never judged, so nothing of it counts ({self.broken})"
            raise RunError(msg)
        stored = self.provenance.get("evalset", {}).get("sha256")
        if stored != evalset_sha256:
            msg = (
                f"evalset.sha256 of the stored run is {stored}, and this evalset's is "
                f"{evalset_sha256}; replay it on the evalset that it was made with"
            )
            raise RunError(msg)

    def find(self, request: Request) -> Generation | None:
        """Return the stored output of a request. Raises RunError where a parameter differs."""
        key = (request.id, request.repeat)
        stored = self.requests.get(key)
        if stored is None:
            return None
        for name in PARAMETERS:
            if getattr(stored, name) != getattr(request, name):
                msg = (
                    f"{name} of {request.id!r} was {getattr(stored, name)!r} in the stored run and "
                    f"is {getattr(request, name)!r} now; replay it under the settings of then"
                )
                raise RunError(msg)
        return self.generations.get(key)


class ReplayDecoder:
    """Answers requests with what was stored."""

    def __init__(self, spec: DecoderSpec, place: Place) -> None:
        """Read the stored outputs. Raises RunError where they are of another evalset."""
        options = msgspec.convert(spec.options, ReplayOptions)
        evalset = load_evalset(place.project, "evalset", place.project.config.evalset)
        self.stored: StoredRun | SampleFiles
        if options.run:
            self.stored = StoredRun(_resolve("run", options.run, place.folder), options.arm)
            self.stored.check(evalset.sha256)
            noise = self.stored.provenance.get("decoder", {}).get("noise", "own")
            spec = msgspec.structs.replace(spec, noise=noise)
        else:
            self.stored = SampleFiles(list_files(options, place.folder), evalset)
        self.spec = spec

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Yield the stored output of each request. Raises RunError for another request's."""
        for request in requests:
            yield self.stored.find(request) or _missing(request)

    def replay_batch(self, requests: Sequence[Request]) -> BatchResult | None:
        """Return stored outputs with what was found out about them then; None: texts alone."""
        if not isinstance(self.stored, StoredRun):
            return None
        keys = [(request.id, request.repeat) for request in requests]
        names = [key_text(*key) for key in keys]
        return BatchResult(
            generations=tuple(self.generate(requests)),
            scores=tuple(self.stored.scores[key] for key in keys if key in self.stored.scores),
            faults={n: self.stored.faults[n] for n in names if n in self.stored.faults},
        )

    def stored_conformance(self) -> list[Request]:
        """Return the conformance requests that were sent then."""
        if not isinstance(self.stored, StoredRun):
            return []
        return [r for r in self.stored.requests.values() if r.task == CONFORMANCE]

    @property
    def stored_bound(self) -> NoiseBound | None:
        """The noise bound that the stored scores were judged by."""
        has_scores = isinstance(self.stored, StoredRun) and bool(self.stored.scores)
        return self.stored.bound if has_scores and isinstance(self.stored, StoredRun) else None

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The tokens that end every stored output."""
        known = self.stored.requests.values() if isinstance(self.stored, StoredRun) else ()
        return tuple(sorted(find_own_eos(known)))

    def describe(self) -> dict[str, object]:
        """Provenance: what the stored run says of itself must be the same in both arms."""
        return {"replayed": self.stored.describe()}


def _missing(request: Request) -> Generation:
    message = "the stored run has no output of this request"
    return Generation(request_id=request.id, repeat=request.repeat, finish="error", error=message)

"""A run whose arms are all remote: no model in memory, no torch, no tokenizer.

What Session (decoders/session.py) does around a model, RemoteSession does around servers:
prompts go out as they are, outputs come back as the server says, and what nobody can score
stays unscored. Tokens are scored when both arms are done, by the first of three sources that is
there: the referee that gate.toml names, the baseline's prompt scoring, and the likeliest tokens
that the baseline reports with its own output.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gate.config import ModelConfig, Project
from gate.conformance import Row
from gate.decoders.base import REGISTRY, Decoder, load_object
from gate.decoders.evidence import Evidence, NoEvidence
from gate.decoders.late import LateScores
from gate.decoders.late_sources import LateSources
from gate.decoders.load import Load, make_warm_ups, serve
from gate.decoders.place import UNSEEN, Place
from gate.decoders.remote_conformance import (
    describe_limits,
    describe_unsent,
    plan_conformance,
    read_words,
)
from gate.decoders.remote_model import RemoteModel, check_models
from gate.decoders.repeats import send_twice
from gate.decoders.server import Servers
from gate.endings_plain import check_plain_output
from gate.errors import UsageError
from gate.records import (
    BandProbe,
    DecoderSpec,
    Generation,
    MemoryControl,
    NoiseBound,
    Request,
    TokenScores,
)
from gate.store import BatchResult, RunStore, key_text


def resolve(
    config: ModelConfig,  # noqa: ARG001 - the shape of session.resolve
    folder: Path,  # noqa: ARG001
    specs: Iterable[DecoderSpec],
    progress: Callable[[str], None],  # noqa: ARG001
) -> RemoteModel:
    """Name the model, and refuse an arm whose key is not at hand. Raises UsageError."""
    specs = tuple(specs)
    for spec in specs:
        name = str(spec.options.get("api_key_env") or "")
        if name and not os.environ.get(name):
            msg = f"api_key_env = {name!r}: that environment variable is not set; set it"
            raise UsageError(msg)
    names = dict.fromkeys(str(spec.options.get("model") or "") for spec in specs)
    return RemoteModel(" and ".join(name for name in names if name) or "as the server names it")


def describe_model(
    resolved: RemoteModel,
    config: ModelConfig,  # noqa: ARG001 - the shape of runtime.describe_model
) -> dict[str, dict[str, object]]:
    """Return the parts of the release surface that are known before a server was asked."""
    return {
        "weights": {"model": resolved.name, "sha256": resolved.weights_sha256},
        "tokenizer": {"sha256": resolved.tokenizer_sha256},
        "template": {"sha256": UNSEEN},
        "runtime": {"server": "named in the run's provenance, once it was asked"},
    }


def open_session(
    resolved: RemoteModel, project: Project, specs: Mapping[str, DecoderSpec], run_folder: Path
) -> RemoteSession:
    """Return the session of a run. Raises RunError where it could only end as an ERROR."""
    check_models(project, specs)
    return RemoteSession(resolved, project, specs, run_folder)


class RemoteSession:
    """Both arms on their servers, one after the other or side by side."""

    is_unchanged = True  # no weights are in reach that a decoder could change
    template_sha256 = UNSEEN

    def __init__(
        self,
        resolved: RemoteModel,
        project: Project,
        specs: Mapping[str, DecoderSpec],
        run_folder: Path,
        evidence: Evidence | None = None,
    ) -> None:
        """Start nothing yet: a server starts when its arm is first asked."""
        self.resolved = resolved
        self.evidence: Evidence = evidence or NoEvidence()
        self._late = LateSources(self, project)
        self._project = project
        self._run_folder = run_folder
        self._words = read_words(run_folder)
        self._servers = Servers(in_turn=project.config.run.servers == "in_turn")
        self.arms: dict[str, Any] = {arm: self._make_arm(arm, spec) for arm, spec in specs.items()}

    def _make_arm(self, arm: str, spec: DecoderSpec) -> Decoder:
        project, folder = self._project, self._run_folder
        place = Place(arm, project.folder, folder, self._servers, project, self._words)
        made: Decoder = load_object(REGISTRY[spec.kind].target)(spec, place)
        return made

    def open_arm(self, spec: DecoderSpec, arm: str) -> Decoder:
        """Return the decoder of an arm."""
        del spec  # known since the session was opened
        found: Decoder = self.arms[arm]
        return found

    def close(self) -> None:
        """Close connections and stop what was started."""
        try:
            for decoder in self.arms.values():
                close = getattr(decoder, "close", None)
                if close is not None:
                    close()
        finally:
            self._servers.close()

    # ------------------------------------------------------------------ planning

    def tokenise(self, request: Request) -> Request:
        """Return the request as it is: the server has the tokenizer."""
        return request

    def plan_conformance(self, rows: Sequence[Row], seed: int) -> list[Request]:
        """Return the conformance requests that both arms can be asked."""
        return plan_conformance(self.arms, rows, seed, self._run_folder, self._words)

    def fit_batch(
        self,
        requests: Sequence[Request],  # noqa: ARG002 - the shape of Session.fit_batch
        n_rows: int,  # noqa: ARG002
        batch: int,
        budget_gib: float | None,  # noqa: ARG002
    ) -> int:
        """Return ``batch``: memory is the server's concern."""
        return batch

    def split(self, requests: Sequence[Request], size: int) -> list[tuple[Request, ...]]:
        """Cut into batches of one request class, so that a server's counters tell them apart."""
        batches: list[list[Request]] = []
        for request in requests:
            last = batches[-1] if batches else []
            if not last or len(last) == size or last[0].request_class != request.request_class:
                batches.append([])
            batches[-1].append(request)
        return [tuple(batch) for batch in batches]

    # ------------------------------------------------------------------- running

    def begin_life(self, decoder: Any) -> bool:
        """Begin a server's life anew, so that it has seen no prompt; False where it is not ours."""
        restart = getattr(decoder, "restart", None)
        return bool(restart and restart())

    def run_batch(
        self,
        decoder: Any,
        requests: Sequence[Request],
        *,
        tap: bool = True,  # noqa: ARG002 - no server shows its laws
    ) -> BatchResult:
        """Decode one batch, check how outputs ended, and score what can be scored."""
        stored = _replay(decoder, requests)
        if stored is not None:
            return stored
        count = getattr(decoder, "count_drafts", None)
        before = count() if count else None
        generations = self.collect(decoder, requests)
        result = self._examine(requests, generations)
        if before is None or count is None:
            return result
        return msgspec.structs.replace(result, drafts=count().since(before, generations))

    def collect(self, decoder: Decoder, requests: Sequence[Request]) -> list[Generation]:
        """Return one generation per request, in the order of the requests."""
        found = {(g.request_id, g.repeat): g for g in decoder.generate(requests)}
        return [found.get((r.id, r.repeat)) or _missing(r) for r in requests]

    def _examine(
        self, requests: Sequence[Request], generations: Sequence[Generation]
    ) -> BatchResult:
        by_key = {(r.id, r.repeat): r for r in requests}
        faults = {
            key_text(g.request_id, g.repeat): check_plain_output(by_key[g.request_id, g.repeat], g)
            for g in generations
        }
        return BatchResult(
            generations=tuple(generations),
            scores=tuple(self.evidence.score(requests, generations)),
            faults={key: found for key, found in faults.items() if found},
        )

    def run_timing(
        self,
        decoder: Decoder,
        requests: Sequence[Request],
        load: Load | None = None,
        *,
        is_scored: bool = True,
    ) -> BatchResult:
        """Serve requests under a load (one by one), streamed, on the gate's own clock."""
        stored = _replay(decoder, requests)
        if stored is not None:
            return stored
        streamed = [msgspec.structs.replace(request, stream=True) for request in requests]
        generations, wall_s = serve(self.collect, decoder, streamed, load or Load())
        if not is_scored:
            return BatchResult(generations=tuple(generations), wall_s=wall_s)
        examined = self._examine(streamed, generations)
        return msgspec.structs.replace(examined, wall_s=wall_s)

    def warm_up(self, decoder: Decoder) -> None:
        """Send prompts from outside the evalset, so that no block pays for a first time."""
        if hasattr(decoder, "replay_batch"):
            return  # nothing runs
        for request in make_warm_ups():
            list(decoder.generate([request]))

    def control_memory(self, requests: Sequence[Request]) -> MemoryControl | None:
        """Send prompts twice to the candidate, new to it the first time; None: nothing is told."""
        return send_twice(self, self.arms["candidate"], requests, self._project.config.run.batch)

    # ------------------------------------------------------------------ evidence

    def score_late(self, store: RunStore, collected: Any) -> LateScores | None:
        """Score both arms' tokens with what there is for it; None: nothing can."""
        return self._late.score(store, collected)

    def measure_noise(self, requests: Sequence[Request], n_rows: int) -> NoiseBound:
        """Return the noise bound of this run's evidence."""
        del n_rows  # the server's own affair
        return self.evidence.measure_noise(requests)

    def probe_band(
        self,
        decoder: Decoder,
        outputs: Sequence[tuple[Request, TokenScores]],
        bound: NoiseBound,
        batch: int,
    ) -> BandProbe | None:
        """No server takes drafts from outside."""
        del decoder, outputs, bound, batch
        return None

    def decode(self, ids: Sequence[int]) -> str:
        """Name token ids: their text is the server's."""
        return "".join(f"⟨{token}⟩" for token in ids)

    # -------------------------------------------------------------- limitations

    @property
    def probed(self) -> dict[str, dict[str, str]]:
        """By arm: option -> what became of it when the server was probed."""
        found = {arm: getattr(one, "capabilities", None) for arm, one in self.arms.items()}
        return {arm: dict(one.honours) for arm, one in found.items() if one is not None}

    @property
    def remarks(self) -> list[str]:
        """What belongs on the first screen: what this run could not see, and why."""
        found = [self.evidence.remark] if self.evidence.remark and not self._late.are_there else []
        return [*found, *describe_unsent(self._run_folder), *describe_limits(self.probed)]

    # ---------------------------------------------------------------- provenance

    def describe(self) -> dict[str, object]:
        """Provenance of what both arms share."""
        late = self._late.found
        return {
            "model": {"id": self.resolved.name, "weights_sha256": UNSEEN},
            "evidence": late.name if late else self.evidence.name,
            **({"referee": late.described} if late else {}),
            "servers": self._project.config.run.servers,
        }

    def describe_arm(self, arm: str) -> dict[str, object]:
        """Provenance of an arm. Under ``decoder``: what may differ between the arms."""
        describe = getattr(self.arms[arm], "describe", None)
        found: dict[str, object] = describe() if describe else {}
        return found


def _replay(decoder: Any, requests: Sequence[Request]) -> BatchResult | None:
    """Return stored outputs with what was found out about them then; None: it decodes."""
    replay = getattr(decoder, "replay_batch", None)
    found: BatchResult | None = replay(requests) if replay else None
    return found


def _missing(request: Request) -> Generation:
    message = "the decoder returned nothing for this request"
    return Generation(request_id=request.id, repeat=request.repeat, finish="error", error=message)

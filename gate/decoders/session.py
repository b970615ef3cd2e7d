"""One model in memory, both arms on it, and the referee beside them.

The only part of the pipeline that touches torch; pipeline.py loads it by name.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from gate.config import ModelConfig, Project
from gate.conformance import Row, plan_conformance
from gate.decoders.base import OWN_ENGINE, Decoder, create
from gate.decoders.calibration import measure_noise
from gate.decoders.engine import check_architecture
from gate.decoders.load import Load, make_warm_ups, serve
from gate.decoders.memory import check_room, decoder_bytes, fit_batch
from gate.decoders.probing import probe_band
from gate.decoders.repeats import count_drafts, shorten
from gate.decoders.routed import list_specs
from gate.decoders.runtime import describe_device, describe_versions, hash_template
from gate.decoders.sampling import Law
from gate.decoders.stopping import covering_count, decode
from gate.endings import check_output, cut_at_stop
from gate.errors import RunError
from gate.models import (
    LoadedModel,
    ResolvedModel,
    check_device,
    load_model,
    read_model_config,
    resolve_model,
)
from gate.records import (
    BandProbe,
    DecoderSpec,
    Generation,
    MemoryControl,
    NoiseBound,
    Request,
    TokenScores,
)
from gate.referee import Laws, Referee
from gate.store import BatchResult, key_text


def resolve(
    config: ModelConfig, folder: Path, specs: Iterable[DecoderSpec], progress: Callable[[str], None]
) -> ResolvedModel:
    """Find the model and refuse what the arms' decoders cannot run. Raises UsageError."""
    check_device(config.device)
    resolved = resolve_model(config, folder, progress)
    if any(one.kind in OWN_ENGINE for spec in specs for one in list_specs(spec)):
        check_architecture(read_model_config(resolved), resolved.name)
    return resolved


def open_session(
    resolved: ResolvedModel,
    project: Project,
    specs: Mapping[str, DecoderSpec],
    run_folder: Path,
) -> Session:
    """Return the session of a run."""
    del run_folder  # what a session of servers needs (decoders/remote.py)
    return Session(resolved, project.config.model, project.folder, specs=tuple(specs.values()))


class Session:
    """A loaded model serving both arms, one after the other."""

    probed: Mapping[str, Mapping[str, str]] = {}  # nothing has to be found out from outside
    remarks: Sequence[str] = ()

    def __init__(
        self,
        resolved: ResolvedModel,
        config: ModelConfig,
        folder: Path,
        model: LoadedModel | None = None,
        specs: Sequence[DecoderSpec] = (),
    ) -> None:
        """Load the model, unless one is given. ``folder``: where python decoders are imported.

        specs: of the decoders that will be held at once; their memory counts in plans.
        """
        self.resolved = resolved
        self._config = config
        self._folder = folder
        self.model = model or load_model(resolved, config.dtype, config.device)
        self.referee = Referee(self.model)
        self._checksum = self.checksum()
        self._float32: Session | None = None
        self._specs = specs
        self._arms: dict[str, Decoder] = {}

    def in_float32(self) -> Session:
        """Return a session on the same model in float32. Raises RunError where it does not fit."""
        if self._float32 is None:
            check_room(self.model)
            config = msgspec.structs.replace(self._config, dtype="float32")
            self._float32 = Session(self.resolved, config, self._folder, specs=self._specs)
        return self._float32

    def close(self) -> None:
        """Nothing was started that would have to be stopped."""

    def open_arm(self, spec: DecoderSpec, arm: str = "") -> Decoder:
        """Make the decoder of an arm."""
        made = self._arms[arm] = create(spec, self.model, self._folder)
        return made

    def tokenise(self, request: Request) -> Request:
        """Return the request with its prompt as token ids, through the chat template."""
        tokenizer: Any = self.model.tokenizer
        prompt: Any = request.prompt
        if isinstance(prompt, str):
            ids = tokenizer(prompt)["input_ids"]
        elif prompt and isinstance(prompt[0], dict):
            ids = self._apply_template(prompt)
        else:
            ids = prompt
        eos_ids = request.eos_ids or self.model.eos_ids
        found = msgspec.structs.replace(request, prompt=as_integers(ids), eos_ids=eos_ids)
        return self._check_ids(found)

    def _check_ids(self, request: Request) -> Request:
        """Return the request. Raises RunError where the model has no such tokens."""
        size = self.model.vocab_size
        outside = [i for i in (*request.prompt, *request.eos_ids) if not 0 <= int(str(i)) < size]
        if outside:
            msg = (
                f"request {request.id!r} holds token {outside[0]}, and the model's vocabulary ends "
                f"at {size - 1}: tokenizer and model disagree; use the model's own tokenizer"
            )
            raise RunError(msg)
        return request

    def _apply_template(self, messages: Sequence[dict[str, str]]) -> Sequence[int]:
        tokenizer: Any = self.model.tokenizer
        if not getattr(tokenizer, "chat_template", None):
            ids: Sequence[int] = tokenizer("\n\n".join(m["content"] for m in messages))["input_ids"]
            return ids
        encoded = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, return_dict=True
        )
        found: Sequence[int] = encoded["input_ids"]
        return found

    def plan_conformance(self, rows: Sequence[Row], seed: int) -> list[Request]:
        """Return the conformance requests in this model's tokens."""
        tokenizer: Any = self.model.tokenizer

        def encode(prompt: Any) -> Sequence[int]:
            found: Sequence[int] = (
                tokenizer(prompt)["input_ids"]
                if isinstance(prompt, str)
                else self._apply_template(prompt)
            )
            return found

        def encode_plain(text: str) -> Sequence[int]:
            ids: Sequence[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
            return ids

        planned = plan_conformance(rows, encode, encode_plain, self.model.eos_ids, seed)
        return [self._fit(self._check_ids(request)) for request in planned]

    def _fit(self, request: Request) -> Request:
        """Shorten a long prompt, from its beginning, to what a small model can hold."""
        room = max(1, self.model.context - request.max_tokens)
        return msgspec.structs.replace(request, prompt=request.prompt[-room:])

    def fit_batch(
        self, requests: Sequence[Request], n_rows: int, batch: int, budget_gib: float | None
    ) -> int:
        """Return the largest batch that fits the memory budget. Raises RunError."""
        held = decoder_bytes(self.model, self._specs)
        return fit_batch(self.model, requests, n_rows, batch, budget_gib, held)

    def split(self, requests: Sequence[Request], size: int) -> list[tuple[Request, ...]]:
        """Cut into batches."""
        return [tuple(requests[at : at + size]) for at in range(0, len(requests), size)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids as users see it."""
        return decode(self.model.tokenizer, ids)

    def begin_life(self, decoder: Decoder) -> bool:
        """Let a decoder forget what it kept across requests; others remember no prompt anyway."""
        forget = getattr(decoder, "forget", None)
        if forget is not None:
            forget()
        return True

    def control_memory(self, requests: Sequence[Request]) -> MemoryControl | None:
        """Send prompts twice to the candidate; None where it keeps nothing across requests."""
        decoder = self._arms.get("candidate")
        if decoder is None or not getattr(decoder, "remembers", False) or not requests:
            return None
        self.begin_life(decoder)
        cut = [shorten(request) for request in requests]
        first, second = (
            count_drafts([found for request in cut for found in self.collect(decoder, [request])])
            for _ in range(2)
        )
        return MemoryControl(n_prompts=len(cut), first=first, second=second, is_fresh=True)

    def run_batch(
        self, decoder: Decoder, requests: Sequence[Request], *, tap: bool = True
    ) -> BatchResult:
        """Decode one batch, check how outputs ended, and let the referee score them.

        tap: take the laws that the decoder used, where it shows them.
        """
        laws: dict[tuple[str, int], list[torch.Tensor]] = {}

        def take(request: Request, position: int, law: Law) -> None:  # noqa: ARG001 - in order
            laws.setdefault((request.id, request.repeat), []).append(law.logits.clone())

        set_tap(decoder, take if tap else None)
        try:
            generations = self.collect(decoder, requests)
        finally:
            set_tap(decoder, None)
        return self._examine(requests, generations, laws)

    def _examine(
        self, requests: Sequence[Request], generations: Sequence[Generation], laws: Laws | None
    ) -> BatchResult:
        """Score outputs and check how they ended."""
        by_key = {(r.id, r.repeat): r for r in requests}
        faults = {
            key_text(g.request_id, g.repeat): check_output(
                by_key[g.request_id, g.repeat], g, self.decode
            )
            for g in generations
        }
        return BatchResult(
            generations=tuple(generations),
            scores=tuple(self.referee.score(requests, generations, laws)),
            faults={key: found for key, found in faults.items() if found},
        )

    def collect(self, decoder: Decoder, requests: Sequence[Request]) -> list[Generation]:
        """Return one sound generation per request, in the order of the requests."""
        by_key = {(r.id, r.repeat): r for r in requests}
        found: dict[tuple[str, int], Generation] = {}
        for generation in decoder.generate(requests):
            key = (generation.request_id, generation.repeat)
            if key in by_key:
                found[key] = self._normalise(by_key[key], generation)
        return [found.get(key) or _missing(request) for key, request in by_key.items()]

    def _normalise(self, request: Request, generation: Generation) -> Generation:
        """Check another's output at the border: ids in the vocabulary, text where it is empty."""
        ids = generation.token_ids
        if generation.finish == "error" or ids is None:
            return generation
        try:
            whole, tail = as_integers(ids), as_integers(generation.tail_ids)
        except TypeError:
            return _failure(request, "token_ids hold something that is not an integer")
        problem = self._find_problem(generation, whole, tail)
        if problem:
            return _failure(request, problem)
        sound = msgspec.structs.replace(generation, token_ids=whole, tail_ids=tail)
        if generation.text or not self.decode(whole):
            return sound
        return self._write_text(request, sound, whole)

    def _find_problem(
        self, generation: Generation, whole: tuple[int, ...], tail: tuple[int, ...]
    ) -> str:
        """Return what makes an output unusable; empty where nothing does."""
        if not all(0 <= i < self.model.vocab_size for i in (*whole, *tail)):
            return "a token id lies outside the vocabulary"
        if not all(map(math.isfinite, _list_logprobs(generation))):
            return "a reported log-probability is not a finite number"
        if not whole and not tail and generation.finish != "stop":
            return "the output is empty: not even a first token"
        return ""

    def _write_text(
        self, request: Request, generation: Generation, ids: tuple[int, ...]
    ) -> Generation:
        """Detokenise; a stop string that the last token completes is cut, with its tokens."""
        cut = cut_at_stop(request, ids, self.decode) if generation.finish == "stop" else None
        if cut is None or cut[0] != len(ids) or generation.tail_ids:
            return msgspec.structs.replace(generation, text=self.decode(ids))
        n = covering_count(self.model.tokenizer, ids, cut[1])
        usage = generation.usage
        if usage is not None and usage.n_output == len(ids):  # counted before the gate cut
            usage = msgspec.structs.replace(usage, n_output=n)
        return msgspec.structs.replace(
            generation, text=cut[1], token_ids=ids[:n], tail_ids=ids[n:], usage=usage
        )

    def score(
        self, requests: Sequence[Request], generations: Sequence[Generation]
    ) -> list[TokenScores]:
        """Let the referee score outputs that came from elsewhere."""
        return list(self.referee.score(requests, generations, {}))

    def run_timing(
        self,
        decoder: Decoder,
        requests: Sequence[Request],
        load: Load | None = None,
        *,
        is_scored: bool = True,
    ) -> BatchResult:
        """Serve requests under a load (one by one) on the gate's own clock; score them later."""
        generations, wall_s = serve(self.collect, decoder, requests, load or Load())
        if not is_scored:
            return BatchResult(generations=tuple(generations), wall_s=wall_s)
        examined = self._examine(requests, generations, None)
        return msgspec.structs.replace(examined, wall_s=wall_s)

    def score_late(self, store: Any, collected: Any) -> None:
        """Nothing is left to score: the referee saw every output as it came."""
        del store, collected

    def warm_up(self, decoder: Decoder) -> None:
        """Run prompts from outside the evalset, so that no block pays for a first time."""
        for request in make_warm_ups():
            list(decoder.generate([self.tokenise(request)]))

    def measure_noise(self, requests: Sequence[Request], n_rows: int) -> NoiseBound:
        """Measure how far honest arithmetic moves a logit gap here."""
        return measure_noise(self.model, self.referee, requests, n_rows)

    def probe_band(
        self,
        decoder: Decoder,
        outputs: Sequence[tuple[Request, TokenScores]],
        bound: NoiseBound,
        batch: int,
    ) -> BandProbe | None:
        """Offer a decoder second choices inside the noise band; None: it takes no drafts."""
        return probe_band(self.referee, decoder, outputs, bound, batch)

    @torch.inference_mode()
    def checksum(self) -> str:
        """Return a hash of the weights as they are in memory, from the sum of each tensor."""
        sums = [
            f"{name}={float(p.double().sum())!r}" for name, p in self.model.model.named_parameters()
        ]
        return hashlib.sha256("\n".join(sums).encode()).hexdigest()

    @property
    def is_unchanged(self) -> bool:
        """Whether the weights are still those that were loaded."""
        return self.checksum() == self._checksum

    def describe(self) -> dict[str, object]:
        """Provenance of what both arms share."""
        model = self.model.model
        return {
            "model": {
                "id": self.resolved.name,
                "weights_sha256": self.resolved.weights_sha256,
                "tokenizer_sha256": self.resolved.tokenizer_sha256,
                "dtype": str(self.model.dtype).removeprefix("torch."),
                "device": describe_device(self.model.device),
                "attention": str(getattr(model.config, "_attn_implementation", "unknown")),
                "context": self.model.context,
            },
            "versions": describe_versions(),
            "threads": torch.get_num_threads(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
        }

    def describe_arm(self, arm: str) -> dict[str, object]:
        """Provenance of an arm: nothing beyond what both share."""
        del arm
        return {}

    @property
    def template_sha256(self) -> str:
        """Hash of the chat template."""
        return hash_template(self.model.tokenizer)


def as_integers(ids: Iterable[Any]) -> tuple[int, ...]:
    """Return token ids of any integer type (numpy's, torch's) as plain ones. Raises TypeError."""
    return tuple(operator.index(i) for i in ids)


def _list_logprobs(generation: Generation) -> Iterator[float]:
    for entry in generation.logprobs or ():
        yield entry.logprob
        yield from (value for _, value in entry.top)


def set_tap(decoder: Any, tap: Any) -> None:
    """Set the tap of a decoder that has one."""
    if hasattr(decoder, "tap"):
        decoder.tap = tap


def _failure(request: Request, message: str) -> Generation:
    return Generation(request_id=request.id, repeat=request.repeat, finish="error", error=message)


def _missing(request: Request) -> Generation:
    return _failure(request, "the decoder returned nothing for this request")

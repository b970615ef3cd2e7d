"""Runs the conformance set on a toy: two arms, the referee, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gate.conformance import load_conformance, plan_conformance
from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.options import AutoregressiveOptions
from gate.decoders.stopping import decode
from gate.endings import check_output
from gate.measures.conformance import Failure, find_failures
from gate.measures.paired import Arm, Paired, make_arm
from gate.models import LoadedModel, wrap_model
from gate.records import DecoderSpec, Generation, NoiseBound, Request, Sampling, TokenScores
from gate.referee import Referee
from gate.store import BatchResult, key_text
from tests.conftest import build_byte_tokenizer, build_toy_model

BATCH = 8
DRAFTED, DRAFTED_STREAM = 7, 5  # tokens of a draft; a streamed run ends inside a stop string
LONG = 16  # times the long prompt's sentence is sent: 720 bytes
WRONG = 3  # a token that no output has where a draft puts it
BOUND = NoiseBound(
    bound=1e-3,
    dtype="float32",
    n_positions=1000,
    n_rows=12,
    q999_one_row=0.0,
    q999_wide=0.0,
    source="the dtype's floor",
)
SPEC = DecoderSpec(kind="autoregressive")


def build_toy() -> LoadedModel:
    """The toy of conftest with room for the long prompt: one token per byte."""
    tokenizer = build_byte_tokenizer()
    model = build_toy_model(len(tokenizer))
    model.config.max_position_embeddings = 8192
    return wrap_model(model, tokenizer, "toy")


def plan(model: LoadedModel, seed: int = 0) -> list[Request]:
    """Every conformance request, tokenised."""

    def encode(prompt: Any) -> Any:
        if isinstance(prompt, str):
            return model.tokenizer(prompt)["input_ids"]
        return model.tokenizer.apply_chat_template(
            list(prompt), add_generation_prompt=True, return_dict=True
        )["input_ids"]

    def encode_plain(text: str) -> Any:
        return model.tokenizer(text, add_special_tokens=False)["input_ids"]

    rows = [
        msgspec.structs.replace(row, repeat_text=min(row.repeat_text, LONG))
        for row in load_conformance()
    ]
    return plan_conformance(rows, encode, encode_plain, model.eos_ids, seed)


def make_split_characters(model: LoadedModel) -> Request:
    """A streamed request whose output is a snowman over and over, its three bytes three tokens."""
    first, second, third = "☃".encode()
    return Request(
        id="conformance/toy-bytes",
        task="conformance",
        request_class="conformance",
        prompt=(65,),
        max_tokens=12,
        eos_ids=model.eos_ids,
        sampling=Sampling(
            logit_bias={first: 100.0, second: 80.0, third: 60.0},
            bad_words=((first, first), (second, first), (second, second)),
        ),
        stream=True,
    )


class Bench:
    """A toy model, the planned requests, the baseline's arm, and scores already found."""

    def __init__(self) -> None:
        """Decode the baseline, plainly."""
        self.model = build_toy()
        self.requests = [*plan(self.model), make_split_characters(self.model)]
        self._referee = Referee(self.model)
        self._scored: dict[tuple[Any, ...], TokenScores] = {}
        self.baseline = self.run(AutoregressiveDecoder(self.model, AutoregressiveOptions()))

    def run(self, decoder: Any, spec: DecoderSpec = SPEC) -> Arm:
        """Decode every request in batches, as the pipeline does; check ends, score."""
        batches = [self.requests[at : at + BATCH] for at in range(0, len(self.requests), BATCH)]
        return make_arm(spec, [self._run_batch(decoder, batch) for batch in batches])

    def _run_batch(self, decoder: Any, requests: Sequence[Request]) -> BatchResult:
        by_key = {(r.id, r.repeat): r for r in requests}
        generations = [*decoder.generate(requests)]
        checked = {
            key_text(g.request_id, g.repeat): check_output(
                by_key[g.request_id, g.repeat], g, lambda ids: decode(self.model.tokenizer, ids)
            )
            for g in generations
        }
        scores = [self._score(by_key[g.request_id, g.repeat], g) for g in generations]
        return BatchResult(
            generations=tuple(generations),
            scores=tuple(one for one in scores if one is not None),
            faults={key: faults for key, faults in checked.items() if faults},
        )

    def _score(self, request: Request, generation: Generation) -> TokenScores | None:
        decoded = (generation.token_ids, generation.tail_ids, generation.finish)
        key = (request.id, request.repeat, *decoded)
        if key not in self._scored:
            found = next(self._referee.score([request], [generation]), None)
            if found is None:
                return None
            self._scored[key] = found
        return self._scored[key]

    def draft(self, request: Request, output: tuple[int, ...]) -> list[tuple[int, ...]]:
        """A wrong candidate, then the baseline's own continuation and a token behind its end."""
        known = self.baseline.generations[request.id, request.repeat]
        whole = (*(known.token_ids or ()), *known.tail_ids, WRONG, WRONG)
        n = DRAFTED_STREAM if request.stream else DRAFTED
        rest = whole[len(output) : len(output) + n]
        return [(WRONG, WRONG), rest] if output == whole[: len(output)] else [(WRONG,)]

    def drafted(self) -> AutoregressiveDecoder:
        """A decoder that has nearly every draft accepted: faults inside runs show."""
        decoder = AutoregressiveDecoder(self.model, AutoregressiveOptions())
        decoder.drafts = self.draft
        return decoder

    def pair(self, candidate: Arm) -> Paired:
        """Both arms' evidence."""
        requests = {(r.id, r.repeat): r for r in self.requests}
        return Paired(requests=requests, baseline=self.baseline, candidate=candidate, bound=BOUND)

    def failures(self, candidate: Arm) -> list[Failure]:
        """What fails in the candidate."""
        return find_failures(self.pair(candidate), "candidate")

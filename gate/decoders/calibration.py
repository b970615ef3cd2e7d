"""The noise bound: how far honest arithmetic moves the gap between the two best logits.

Measured in the run, for its dtype and kernels, between the referee's prefill and our own
decoding (i) one row at a time and (ii) at the candidate's number of rows with drafts that
carry no information.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch

from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.drafting import Drafts
from gate.decoders.options import AutoregressiveOptions
from gate.decoders.sampling import Law
from gate.errors import RunError
from gate.noise import mix_int
from gate.records import NoiseBound, Request, Sampling
from gate.referee import Referee

if TYPE_CHECKING:
    from gate.models import LoadedModel

FLOAT32_FLOOR = 1e-3  # nat
QUANTILE = 99.9
CALIBRATION_TOKENS = 12
LEAST_POSITIONS = 1000
"""Positions that a quantile of 99.9% rests on in 16 bits; float32 rests on its floor."""
DRAFT_LENGTH = 3


def measure_noise(
    model: LoadedModel, referee: Referee, requests: Sequence[Request], n_rows: int
) -> NoiseBound:
    """Return the bound from greedy decoding of ``requests`` (token-id prompts).

    Raises RunError where the model cannot decode them.

    Repeats of a request count once: decoded greedily they are one output. In 16 bits the outputs
    are as long as LEAST_POSITIONS asks for.
    """
    unique = {request.id: request for request in requests}.values()
    n_tokens = count_tokens(model, len(unique))
    plain = [
        msgspec.structs.replace(
            r,
            max_tokens=n_tokens,
            min_tokens=0,
            stop=(),
            sampling=Sampling(),
            n_logprobs=None,
            stream=False,
            response_format=None,
        )
        for r in unique
    ]
    narrow = _gap_changes(model, referee, plain, None)
    wide = _gap_changes(model, referee, plain, random_drafts(model.vocab_size, n_rows))
    changes = np.concatenate([narrow.change, wide.change])
    floor = rounding_floor(model, np.concatenate([narrow.top, wide.top]))
    quantile = float(np.percentile(changes, QUANTILE)) if len(changes) else 0.0
    return NoiseBound(
        bound=max(quantile, floor),
        dtype=str(model.dtype).removeprefix("torch."),
        n_positions=len(changes),
        n_rows=n_rows,
        q999_one_row=float(np.percentile(narrow.change, QUANTILE)),
        q999_wide=float(np.percentile(wide.change, QUANTILE)),
        source="measured in this run" if quantile > floor else "floor of the dtype",
        largest=float(changes.max()),
        flip_rate_one_row=float(narrow.flipped.mean()),
        flip_rate_wide=float(wide.flipped.mean()),
    )


def count_tokens(model: LoadedModel, n_requests: int) -> int:
    """Return the tokens of a calibration output; each position is measured at both widths."""
    if model.dtype == torch.float32:
        return CALIBRATION_TOKENS
    return max(CALIBRATION_TOKENS, math.ceil(LEAST_POSITIONS / (2 * max(1, n_requests))))


class _Changes:
    """Per position: change of the gap, whether a worse token came out, size of the top logit."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, bool, float]] = []

    def add(self, used: torch.Tensor, referee: torch.Tensor) -> None:
        best = referee.float().topk(2)
        first, second = best.indices.tolist()
        own = used.float()
        moved = abs(float(own[first] - own[second]) - float(best.values[0] - best.values[1]))
        is_flipped = bool(referee[int(own.argmax())].float() < best.values[0])  # a tie is none
        self._rows.append((moved, is_flipped, abs(float(best.values[0]))))

    @property
    def change(self) -> np.ndarray:
        return np.array([row[0] for row in self._rows])

    @property
    def flipped(self) -> np.ndarray:
        return np.array([row[1] for row in self._rows])

    @property
    def top(self) -> np.ndarray:
        return np.array([row[2] for row in self._rows])


def _gap_changes(
    model: LoadedModel, referee: Referee, requests: Sequence[Request], drafts: Drafts | None
) -> _Changes:
    decoder = AutoregressiveDecoder(model, AutoregressiveOptions())
    decoder.drafts = drafts
    laws: dict[str, list[torch.Tensor]] = {}

    def tap(request: Request, position: int, law: Law) -> None:  # noqa: ARG001 - in order
        laws.setdefault(request.id, []).append(law.logits.clone())

    decoder.tap = tap
    found = _Changes()
    prompts = {request.id: request.prompt for request in requests}
    for generation in decoder.generate(requests):
        if generation.error:
            msg = (
                f"the noise bound cannot be measured: plain decoding of {generation.request_id!r} "
                f"failed with: {generation.error}"
            )
            raise RunError(msg)
        ids = generation.token_ids or ()
        with torch.inference_mode():
            rows = referee.logits(prompts[generation.request_id], ids)  # type: ignore[arg-type]
            for used, row in zip(laws.get(generation.request_id, ()), rows, strict=False):
                found.add(used, row)
    return found


def random_drafts(vocab_size: int, n_rows: int) -> Drafts:
    """Return drafts without information that fill ``n_rows`` rows of a step."""
    n_candidates = max(1, (n_rows - 1) // DRAFT_LENGTH)

    def draft(request: Request, output: tuple[int, ...]) -> list[list[int]]:  # noqa: ARG001
        start = len(output) * n_candidates * DRAFT_LENGTH
        tokens = [mix_int(start + i) % vocab_size for i in range(n_candidates * DRAFT_LENGTH)]
        return [tokens[i::n_candidates] for i in range(n_candidates)]

    return draft


def rounding_floor(model: LoadedModel, top_logits: np.ndarray) -> float:
    """Return the least bound a dtype allows, nats.

    Where logits are rounded to a 16-bit type: its spacing at the largest top logit,
    2^(floor(log2 |x|) - mantissa bits); in float32 a fixed 1e-3.
    """
    bits = {torch.bfloat16: 7, torch.float16: 10}.get(model.dtype)
    if bits is None or len(top_logits) == 0:
        return FLOAT32_FLOOR
    return float(2.0 ** (np.floor(np.log2(max(top_logits.max(), 1e-6))) - bits))

"""Paired runs of toy requests, for measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gate.measures.paired import Arm, Paired
from gate.records import DecoderSpec, Generation, NoiseBound, Request

BOUND = NoiseBound(
    bound=1e-3,
    dtype="float32",
    n_positions=1000,
    n_rows=8,
    q999_one_row=1e-5,
    q999_wide=1e-5,
    source="toy",
)


def make_arm(kind: str, generations: Iterable[Generation]) -> Arm:
    return Arm(
        spec=DecoderSpec(kind=kind),
        generations={(one.request_id, one.repeat): one for one in generations},
        scores={},
    )


def make_paired(
    requests: Sequence[Request], baseline: Iterable[Generation], candidate: Iterable[Generation]
) -> Paired:
    return Paired(
        requests={(one.id, one.repeat): one for one in requests},
        baseline=make_arm("autoregressive", baseline),
        candidate=make_arm("lookahead", candidate),
        bound=BOUND,
    )

"""What measures get: both arms' outputs of the same requests, joined by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gate.records import (
    DecoderSpec,
    DraftCount,
    Generation,
    NoiseBound,
    Request,
    TokenScores,
)
from gate.store import BatchResult, Fault, key_text

Key = tuple[str, int]
"""(request id, repeat)."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm's outputs. ``faults``: what was wrong with ends and reports, per output.

    counted: what a server counted over a batch: its requests, and their drafts.
    """

    spec: DecoderSpec
    generations: Mapping[Key, Generation]
    scores: Mapping[Key, TokenScores]
    faults: Mapping[Key, tuple[Fault, ...]] = field(default_factory=dict)
    counted: tuple[tuple[tuple[Key, ...], DraftCount], ...] = ()

    def failed(self, key: Key) -> bool:
        """Whether the arm has no output for a request."""
        generation = self.generations.get(key)
        return generation is None or generation.finish == "error"


def make_arm(spec: DecoderSpec, results: Sequence[BatchResult]) -> Arm:
    """Join an arm's batches."""
    faults = {}
    for result in results:
        for generation in result.generations:
            key = (generation.request_id, generation.repeat)
            found = result.faults.get(key_text(*key))
            if found:
                faults[key] = found
    return Arm(
        spec=spec,
        generations={(g.request_id, g.repeat): g for result in results for g in result.generations},
        scores={(s.request_id, s.repeat): s for result in results for s in result.scores},
        faults=faults,
        counted=tuple(
            (tuple((g.request_id, g.repeat) for g in result.generations), result.drafts)
            for result in results
            if result.drafts is not None
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Paired:
    """A run's content evidence. ``requests`` holds every planned request, in plan order.

    untold: timed outputs that a server streamed without their token ids. No token of them is
    certified, and that is no gap in what the content outputs show.
    """

    requests: Mapping[Key, Request]
    baseline: Arm
    candidate: Arm
    bound: NoiseBound
    untold: frozenset[Key] = frozenset()

    @property
    def keys(self) -> list[Key]:
        """Requests that both arms answered."""
        return [
            k for k in self.requests if not (self.baseline.failed(k) or self.candidate.failed(k))
        ]

    def drops(self) -> dict[Key, str]:
        """Requests without a pair, and why."""
        reasons = {}
        for key in self.requests:
            baseline, candidate = self.baseline.failed(key), self.candidate.failed(key)
            if baseline or candidate:
                who = (
                    "both arms"
                    if baseline and candidate
                    else "baseline"
                    if baseline
                    else "candidate"
                )
                reasons[key] = f"{who} failed"
        return reasons


def text_of(generation: Generation) -> str:
    """Text of an output, for display and scoring."""
    return generation.text

"""What measures get: both arms' outputs of the same requests, joined by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gate.records import DecoderSpec, Generation, NoiseBound, Request, TokenScores
from gate.store import Fault

Key = tuple[str, int]
"""(request id, repeat)."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm's outputs. ``faults``: what was wrong with ends and reports, per output."""

    spec: DecoderSpec
    generations: Mapping[Key, Generation]
    scores: Mapping[Key, TokenScores]
    faults: Mapping[Key, tuple[Fault, ...]] = field(default_factory=dict)

    def failed(self, key: Key) -> bool:
        """Whether the arm has no output for a request."""
        generation = self.generations.get(key)
        return generation is None or generation.finish == "error"


@dataclass(frozen=True, kw_only=True)
class Paired:
    """A run's content evidence. ``requests`` holds every planned request, in plan order."""

    requests: Mapping[Key, Request]
    baseline: Arm
    candidate: Arm
    bound: NoiseBound

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

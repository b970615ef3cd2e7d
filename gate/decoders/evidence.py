"""Who scores tokens where no model is loaded here: the seam between servers and the certificate.

A run whose arms are all remote has no referee of its own accord. ``Evidence`` is what may stand
in for it; ``NoEvidence`` is what stands there otherwise, and with it the token certificate is
INCONCLUSIVE: what nobody scored is not certified.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from gate.records import Generation, NoiseBound, Request, TokenScores

UNMEASURED_NAT = 1.0
"""A regret above this is a defect where no noise could be measured."""


class Evidence(Protocol):
    """Scores outputs token by token, and says how far honest arithmetic moves its scores."""

    name: str
    remark: str  # for the first screen; empty: nothing to say

    def score(
        self, requests: Sequence[Request], generations: Sequence[Generation]
    ) -> Iterator[TokenScores]:
        """Yield the scores of the generations that can be scored."""
        ...

    def measure_noise(self, requests: Sequence[Request]) -> NoiseBound:
        """Return the noise bound under this evidence."""
        ...


class NoEvidence:
    """No token is scored: texts, tasks, guards and failures are all that is compared."""

    name = "none: no token is scored"
    remark = (
        "no token is scored in this run, so the token certificate is not earned: texts, tasks, "
        "guards, endings and failures are compared, which a relaxed acceptance may pass"
    )

    def score(
        self,
        requests: Sequence[Request],  # noqa: ARG002 - the protocol's
        generations: Sequence[Generation],  # noqa: ARG002
    ) -> Iterator[TokenScores]:
        """Yield nothing."""
        yield from ()

    def measure_noise(self, requests: Sequence[Request]) -> NoiseBound:  # noqa: ARG002
        """Return the bound for noise that nobody measured."""
        return NoiseBound(
            bound=UNMEASURED_NAT,
            dtype="unknown",
            n_positions=0,
            n_rows=0,
            q999_one_row=0.0,
            q999_wide=0.0,
            source="not measured: no token is scored in this run",
        )

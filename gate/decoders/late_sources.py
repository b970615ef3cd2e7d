"""Which of the sources of token evidence a run of servers has, and what it finds with it.

In this order: the referee that gate.toml names, the prompt scoring of the baseline's server, the
likeliest tokens that the baseline's server reports with its own output, scores of stored runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gate.decoders.base import load_object
from gate.decoders.evidence_forks import score_forks
from gate.decoders.evidence_server import ServerEvidence
from gate.decoders.late import LateScorer, LateScores, Outputs, gather, score_late
from gate.records import Generation, Request
from gate.store import RunStore

FILE = "evidence.json"
SCORING = ("prompt scoring", "token ids", "tokenizer")
"""What a server must return so that it can score tokens."""
TELLING = ("token ids", "likeliest tokens")
"""What both servers must return so that their outputs can be compared token by token."""
REFEREE = "gate.decoders.evidence_referee:RefereeEvidence"


class LateSources:
    """The sources of one run. session: remote.RemoteSession."""

    def __init__(self, session: Any, project: Any) -> None:
        """Ask nothing yet. project: config.Project."""
        self._session = session
        self._project = project
        self.found: LateScores | None = None

    def score(self, store: RunStore, collected: Any) -> LateScores | None:
        """Score both arms' tokens with the first source that is there; None: there is none."""
        self.found = store.read(FILE, LateScores)
        if self.found is None:
            self.found = self._score(collected)
            if self.found is not None:
                store.write(FILE, self.found)
        return self.found

    def _score(self, collected: Any) -> LateScores | None:
        scorer = self._open_scorer()
        if scorer is not None:
            return score_late(scorer, gather_outputs(collected))
        if self._do_both_tell:
            return score_forks(gather_outputs(collected), self._send_again)
        return self._use_stored()

    def _open_scorer(self) -> LateScorer | None:
        referee, baseline = self._project.config.referee, self._session.arms["baseline"]
        if referee.id:
            scorer: LateScorer = load_object(REFEREE)(referee, self._project.folder)
            return scorer
        if not self._can_baseline_score:
            return None
        self._session.begin_life(baseline)
        return ServerEvidence(baseline)

    def _send_again(self, requests: Sequence[Request]) -> list[Generation]:
        """Return what the baseline gives in a new life."""
        session, baseline = self._session, self._session.arms["baseline"]
        session.begin_life(baseline)
        batches = session.split(requests, self._project.config.run.batch)
        return [one for batch in batches for one in session.collect(baseline, batch)]

    def _use_stored(self) -> LateScores | None:
        """Judge stored scores by the wider of the stored bounds; None where an arm has none."""
        bounds = self._stored_bounds
        known = [bound for bound in bounds if bound is not None]
        if len(known) < len(bounds):
            return None
        return LateScores(
            name="the referees of the stored runs",
            bound=max(known, key=lambda bound: bound.bound),
            eos_ids=self._session.arms["baseline"].eos_ids,
            notes=("tokens were scored by the stored runs' own referees, when they were made",),
        )

    @property
    def are_there(self) -> bool:
        """Whether anything will score tokens when both arms are done."""
        can_score = bool(self._project.config.referee.id) or self._can_baseline_score
        return can_score or self._do_both_tell or None not in self._stored_bounds

    @property
    def _stored_bounds(self) -> list[Any]:
        return [getattr(arm, "stored_bound", None) for arm in self._session.arms.values()]

    @property
    def _can_baseline_score(self) -> bool:
        return self._returns("baseline", SCORING)

    @property
    def _do_both_tell(self) -> bool:
        return self._returns("baseline", TELLING) and self._returns("candidate", TELLING)

    def _returns(self, arm: str, names: Sequence[str]) -> bool:
        """Whether an arm's server returns all of it."""
        capabilities = getattr(self._session.arms[arm], "capabilities", None)
        returns = capabilities.returns if capabilities else {}
        return all(returns.get(name) for name in names)


def gather_outputs(collected: Any) -> dict[str, Outputs]:
    """Return every output of both arms, the timing blocks' included."""
    found: dict[str, Outputs] = {}
    for arm in collected.arms:
        outputs = list(gather(collected.requests, collected.arms[arm].generations))
        for block in collected.timing.certified:
            by_key = {(g.request_id, g.repeat): g for g in block.results[arm].generations}
            outputs += gather(block.requests, by_key)
        found[arm] = outputs
    return found

"""From defects to what kind of fault they look like, in a sentence for the reason.

A diagnosis is a pointer for the engineer, never evidence: the verdict rests on the count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from gate.records import Generation, Request, TokenScores, prompt_ids

FEWEST = 3
"""Defects below which no kind is named."""
MANY = 0.3
MOST = 0.8
"""Share of the defects that must show a trait for the diagnosis to name it."""
RELAXED_RANK = 10
RELAXED_REGRET = 3.0  # nats: a token with a twentieth of the top probability


@dataclass(frozen=True, kw_only=True)
class Defect:
    """One decision that noise cannot explain.

    offset: place of the token in the run its step committed (None: the decoder does not
    say), of which ``n_accepted`` were drafts. is_draft: it was one of them. avoids_repeat: the
    model's choice had occurred before and the emitted token had not.
    """

    request_id: str
    repeat: int
    request_class: str
    position: int
    regret: float
    rank: int
    token_id: int
    best_id: int
    passed_eos: bool
    ended_early: bool
    offset: int | None
    is_draft: bool | None
    avoids_repeat: bool
    n_accepted: int

    @classmethod
    def of(
        cls, request: Request, generation: Generation, scores: TokenScores, position: int
    ) -> Defect:
        """Collect what is known about the decision at an output position."""
        token, best = scores.token_ids[position], scores.best_id[position]
        offset, n_accepted = place_in_run(generation, position)
        history = {*prompt_ids(request), *scores.token_ids[:position]}
        return cls(
            request_id=request.id,
            repeat=request.repeat,
            request_class=request.request_class,
            position=position,
            regret=scores.regret[position],
            rank=scores.rank[position],
            token_id=token,
            best_id=best,
            passed_eos=best in request.eos_ids,
            ended_early=token in request.eos_ids,
            offset=offset,
            is_draft=None if offset is None else offset < n_accepted,
            n_accepted=n_accepted,
            avoids_repeat=best in history and token not in history,
        )

    def as_dict(self) -> dict[str, object]:
        """Return the fields, for JSON."""
        return asdict(self)


def place_in_run(generation: Generation, position: int) -> tuple[int | None, int]:
    """Return (place in its step's run, drafts accepted there); None: the decoder does not say."""
    steps = generation.trace.steps if generation.trace else ()
    start = 0
    for step in steps:
        if position < start + step.n_emitted:
            return position - start, step.n_accepted
        start += step.n_emitted
    return None, 0


TRAITS = (
    (
        "ended_early",
        "outputs are ended early, by an end-of-sequence token the model would not choose",
    ),
    (
        "avoids_repeat",
        "tokens that occurred before are avoided, as by a repetition penalty nobody asked for",
    ),
)
"""What most defects share, and the sentence for it."""


def describe(defects: Sequence[Defect]) -> str:
    """Return what the defects have in common, in words; empty without defects."""
    if len(defects) < FEWEST:
        return "too few to tell the kind" if defects else ""
    if _share(defects, "passed_eos") >= MOST:
        inside = " inside an accepted run" if _share(defects, "is_draft") > 0 else ""
        return f"an end-of-sequence token was passed over{inside}"
    drafts = [d for d in defects if d.is_draft]
    for trait, sentence in TRAITS:
        if _share(defects, trait) >= MOST:
            return sentence
    if len(drafts) >= MOST * len(defects):
        return _describe_drafts(drafts)
    return _describe_own_choices(defects)


def _describe_own_choices(defects: Sequence[Defect]) -> str:
    if _share(defects, "passed_eos") >= MANY:
        return (
            "end-of-sequence tokens were passed over, and other tokens are not the model's choice"
        )
    if all(d.offset is not None for d in defects):
        return (
            "tokens that the decoder itself chose are not the model's choice: "
            "a fault of cache, positions, batch or processors"
        )
    return "tokens are not the model's choice"


def _describe_drafts(drafts: Sequence[Defect]) -> str:
    if all(d.offset == 0 for d in drafts) and any(d.n_accepted > 1 for d in drafts):
        return "the first draft token of a run is committed unverified"
    likely = sum(d.rank <= RELAXED_RANK and d.regret <= RELAXED_REGRET for d in drafts)
    if likely >= MOST * len(drafts):
        return (
            "drafts the model finds likely but would not choose were accepted: "
            "a relaxed acceptance rule"
        )
    return "draft tokens the model would not choose were accepted: verification is faulty"


def _share(defects: Sequence[Defect], trait: str) -> float:
    return sum(bool(getattr(d, trait)) for d in defects) / len(defects)

"""What the template prints, as frozen view records: text and geometry, nothing to compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

    from gate.report.plots import Strip


@dataclass(frozen=True, kw_only=True)
class Badge:
    """An outcome with what shows it besides its colour."""

    outcome: str
    icon: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Half:
    """The content or the gain of the decision."""

    title: str
    question: str
    badge: Badge
    summary: str


@dataclass(frozen=True, kw_only=True)
class PairRow:
    """A fact about both arms. ``mark`` says what a difference means; empty: they agree."""

    name: str
    baseline: str
    candidate: str
    mark: str = ""
    alarming: bool = False


@dataclass(frozen=True, kw_only=True)
class VerdictRow:
    """A verdict with its figures, its drawing and the criterion behind it."""

    badge: Badge
    blocking: bool
    stops: bool
    half: str
    criterion: str
    group: str
    meaning: str
    reason: str
    rule: str
    rationale: str
    estimate: str
    interval: str
    arms: str
    method: str
    strip: Strip | None
    picture: str  # the drawing in words
    caption: str  # how to read it, where that is not obvious
    remarks: tuple[str, ...]
    loosened: tuple[str, ...]  # in what it asks for less than the approved baseline's
    waived: bool


@dataclass(frozen=True, kw_only=True)
class SpeedRow:
    """The speed of one request class, with what was accepted there."""

    name: str
    speedup: str
    interval: str
    times: str
    cost: str
    strip: Strip | None
    picture: str
    accepted: str
    share: str
    per_forward: str
    badge: Badge | None
    warning: str


@dataclass(frozen=True, kw_only=True)
class DeltaRow:
    """The score of one task in both arms."""

    name: str
    baseline: str
    candidate: str
    delta: str
    interval: str
    strip: Strip | None
    picture: str
    counts: str
    detectable: str
    badge: Badge | None


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A stretch of an output; ``differs``: the other arm has not got it here."""

    text: str
    differs: bool


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A drawing with its own text alternative, and the figures behind it where few read it."""

    title: str
    svg: Markup
    remark: str = ""
    table: Table | None = None


@dataclass(frozen=True, kw_only=True)
class HeatCell:
    """A share, shaded from 0 to 5; no text: there is none."""

    text: str = "–"
    shade: int = 0


@dataclass(frozen=True, kw_only=True)
class Heat:
    """A table of shares, shaded by size."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class ForkCard:
    """A fork, token by token. ``alternatives``: what the referee found likely, how far behind."""

    kind: str
    kind_meaning: str
    request_id: str
    task: str
    request_class: str
    position: str
    before: str
    token_baseline: str
    token_candidate: str
    after_baseline: tuple[Piece, ...]
    after_candidate: tuple[Piece, ...]
    prompt: str
    gap: str
    regret_baseline: str
    regret_candidate: str
    alternatives: tuple[tuple[str, str], ...]
    evidence: str
    score: str
    opened: bool


@dataclass(frozen=True, kw_only=True)
class Flip:
    """An answer whose behaviour label changed."""

    request_id: str
    baseline_label: str
    candidate_label: str
    baseline_text: str
    candidate_text: str


@dataclass(frozen=True, kw_only=True)
class GuardRow:
    """A behaviour guard, with the answers it flagged."""

    name: str
    baseline: str
    candidate: str
    difference: str
    badge: Badge | None
    flips: tuple[Flip, ...]
    flips_remark: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under a head; the first cell of a row names it."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class CriterionRow:
    """A criterion as it was written down before the run, and what it came to."""

    name: str
    measure: str
    groups: str
    rule: str
    floor: str
    level: str
    min_pairs: str
    blocking: str
    rationale: str
    came_to: str
    loosened: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole page."""

    title: str
    sections: tuple[tuple[str, str], ...]
    run_id: str
    created_at: str
    expires_at: str
    expired: str
    badge: Badge
    headline: str
    reason: str
    next_step: str
    halves: tuple[Half, ...]
    claim: str
    claim_meaning: str
    purpose: str
    purpose_meaning: str
    alerts: tuple[str, ...]
    notes: tuple[str, ...]
    arms: tuple[PairRow, ...]
    compared: str
    stopping: tuple[VerdictRow, ...]
    others: tuple[VerdictRow, ...]
    unjudged: tuple[VerdictRow, ...]
    no_verdicts: str
    speed: tuple[SpeedRow, ...]
    speed_remark: str
    forks: tuple[ForkCard, ...]
    forks_remark: str
    fork_kinds: tuple[str, ...]
    fork_classes: tuple[str, ...]
    defects: Table
    tasks: tuple[DeltaRow, ...]
    divergence: Table
    divergence_charts: tuple[Chart, ...]
    guards: tuple[GuardRow, ...]
    earnings: tuple[Table, ...]
    serving: Table
    percentiles: Table
    serving_charts: tuple[Chart, ...]
    acceptance: Heat
    servers: Table
    conformance: Table
    endings: Table
    failures: Table
    sensitivity: Table
    provenance: tuple[PairRow, ...]
    criteria: tuple[CriterionRow, ...]
    waivers: Table
    surface: Table
    comparisons: Table

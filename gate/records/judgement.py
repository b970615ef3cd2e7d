"""Comparisons, criteria, verdicts and the decision."""

from __future__ import annotations

from typing import Literal

from gate.records.base import SCHEMA, Claim, Direction, Outcome, Purpose, Record, Rule


class Estimate(Record, frozen=True, kw_only=True):
    """A statistic with its interval. ``method`` names how, and which side is bounded."""

    statistic: float
    interval: tuple[float | None, float | None]  # None: unbounded on that side
    confidence_level: float  # per side where ``method`` says one-sided
    n: int
    method: str
    pvalue: float | None = None


class Comparison(Record, frozen=True, kw_only=True):
    """A measure on one group, both arms side by side.

    ``difference`` is candidate minus baseline unless ``unit`` says ratio (candidate
    over baseline). None: nothing could be measured, and ``note`` says why.
    ``detectable``: the effect this n can show, in words. ``detail`` carries the
    measure's own figures for the report.
    """

    measure: str
    group: str = "all"
    unit: str = ""
    direction: Direction = "neutral"
    baseline: float | None = None
    candidate: float | None = None
    difference: Estimate | None = None
    n_dropped: int = 0
    drop_reasons: dict[str, int] = {}
    detectable: str | None = None
    note: str | None = None
    detail: dict[str, object] = {}


class Criterion(Record, frozen=True, kw_only=True):
    """A margin on a measure, written down before the run.

    groups: ``all`` (the pooled comparison), ``each_task``, ``each_class`` or a name.
    floor: smallest effect an alarm may fire on. confidence_level: per side.
    """

    name: str
    measure: str
    groups: str = "all"
    rule: Rule = "at_most"
    margin: float = 0.0
    floor: float = 0.0
    confidence_level: float = 0.95
    min_pairs: int = 1
    blocking: bool = True
    rationale: str = ""


class Waiver(Record, frozen=True, kw_only=True):
    """A criterion on one group that somebody signed away, until when (a date) and why."""

    criterion: str
    group: str = "all"
    reason: str
    who: str
    until: str


class Verdict(Record, frozen=True, kw_only=True):
    """A judged criterion on one group; ``reason`` is one sentence for a release manager.

    ``waiver``: who signed that this outcome does not stop the release. The outcome stands.
    """

    criterion: str
    group: str
    outcome: Outcome
    blocking: bool
    reason: str
    comparison: Comparison | None = None
    half: Literal["content", "gain"] = "content"
    waiver: Waiver | None = None


class Loosened(Record, frozen=True, kw_only=True):
    """A criterion that asks for less than when the baseline was approved: which key, and how."""

    criterion: str
    key: str
    approved: str
    now: str


class TokenView(Record, frozen=True, kw_only=True):
    """One token of a fork's context as the report shows it."""

    token_id: int
    text: str


class Alternative(Record, frozen=True, kw_only=True):
    """A token the referee found likely, ``behind_nat`` nats behind its best."""

    token: TokenView
    behind_nat: float


class Fork(Record, frozen=True, kw_only=True):
    """First difference between the arms of one request, with its evidence.

    position: output position. kind: exact | tie | unexplained | defect | unscored.
    regret_baseline, regret_candidate, gap: nats, at the fork under the referee.
    before: shared text ahead of it; after_*: the texts that follow, and tokens_*: what each arm
    emitted from the fork on, token by token. alternatives: the referee's likeliest tokens there,
    likeliest first (empty: not recorded).
    """

    request_id: str
    repeat: int = 0
    task: str
    request_class: str
    position: int
    kind: str
    regret_baseline: float | None = None
    regret_candidate: float | None = None
    gap: float | None = None
    token_baseline: TokenView | None = None
    token_candidate: TokenView | None = None
    prompt: str = ""
    before: str = ""
    after_baseline: str = ""
    after_candidate: str = ""
    tokens_baseline: tuple[str, ...] = ()
    tokens_candidate: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    score_changed: bool | None = None


class Decision(Record, frozen=True, kw_only=True):
    """All verdicts and the one outcome every surface renders.

    surface: hash of each part of what is released, and their common hash; surface_values:
    what each part's hash was made of. earlier_outcomes: of the earlier runs of this surface.
    digest: sha256 of everything else in the file, written last.
    """

    schema: int = SCHEMA
    run_id: str = ""
    outcome: Outcome
    content: Outcome
    gain: Outcome
    claim: Claim
    purpose: Purpose
    reason: str
    verdicts: tuple[Verdict, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    forks: tuple[Fork, ...] = ()
    notes: tuple[str, ...] = ()  # limitations that belong on the first screen
    provenance: dict[str, dict[str, object]] = {}
    surface: dict[str, str] = {}
    surface_values: dict[str, dict[str, object]] = {}
    sensitivity: tuple[dict[str, object], ...] = ()
    waivers: tuple[Waiver, ...] = ()
    loosened: tuple[Loosened, ...] = ()
    earlier_runs: int = 0
    earlier_outcomes: dict[str, int] = {}
    created_at: str
    expires_at: str
    digest: str = ""

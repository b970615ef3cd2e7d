"""A decision without prompts, outputs and messages, for wide sharing.

What a measure left in ``detail`` is kept by an allow-list: numbers, and the few words that are
our own. A text that nobody listed is taken out, so a new measure is safe until it is listed.
Names that the evalset's author chose (tasks, classes, request ids) stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gate.reasons import MOST_OFTEN
from gate.records import Alternative, Comparison, Decision, Fork, Outcome, TokenView, Verdict

HIDDEN = "(redacted)"
NOTE = "Redacted: prompts, outputs, tokens and error messages are not in this copy."
UNJUDGED = "The run could not be judged; the reason is in the full report."
OUR_WORDS = frozenset(
    {
        "request_id",
        "request_class",
        "task",
        "group",
        "kind",
        "kinds",
        "arm",
        "baseline_label",
        "candidate_label",
        "bound_source",
        "diagnosis",
        "method",
        "unit",
        "what",
        "both",
        "candidate_only",
        "baseline_only",
        "chosen",
        "kept",
        "losing_classes",
        "hidden_by_blend",
        "winners",
        "device",
        "dtype",
    }
)
"""Keys under which a text is one of a closed set of words of ours, or a name of the evalset's."""
KEYED_BY_TEXT = frozenset({"baseline_errors", "candidate_errors"})
"""Mappings whose keys are messages."""
TOKEN_KEYS = frozenset({"token_id", "best_id", "token_ids"})
"""Numbers that a tokenizer turns back into text."""
SHORTEST = 8  # characters; shorter texts would blank out ordinary words


def redact(decision: Decision) -> Decision:
    """Return the decision without any text out of prompts, outputs and messages.

    The outcome and every figure stay as they are. The digest is not renewed here.
    """
    texts = sorted(_collect(decision), key=len, reverse=True)
    reason = decision.reason
    if decision.outcome == Outcome.ERROR and not decision.verdicts:
        reason = UNJUDGED  # it may quote what broke
    return msgspec.structs.replace(
        decision,
        reason=_clean(reason, texts),
        notes=(NOTE, *(_clean(note, texts) for note in decision.notes)),
        verdicts=tuple(_redact_verdict(one, texts) for one in decision.verdicts),
        comparisons=tuple(_redact_comparison(one, texts) for one in decision.comparisons),
        forks=tuple(_redact_fork(one) for one in decision.forks),
    )


def _redact_verdict(verdict: Verdict, texts: Iterable[str]) -> Verdict:
    comparison = verdict.comparison
    return msgspec.structs.replace(
        verdict,
        reason=_clean(verdict.reason, texts),
        comparison=comparison and _redact_comparison(comparison, texts),
    )


def _redact_comparison(comparison: Comparison, texts: Iterable[str]) -> Comparison:
    return msgspec.structs.replace(
        comparison,
        note=None if comparison.note is None else _clean(comparison.note, texts),
        detail={key: _redact_value(key, value) for key, value in comparison.detail.items()},
    )


def _redact_value(key: str, value: object) -> object:
    """Return a value of a measure's detail without its texts."""
    if key in TOKEN_KEYS:
        return HIDDEN
    if isinstance(value, str):
        return value if key in OUR_WORDS else HIDDEN
    if isinstance(value, Mapping):
        if key in KEYED_BY_TEXT:
            return {HIDDEN: sum(n for n in value.values() if isinstance(n, int))} if value else {}
        ours = key if key in OUR_WORDS else None
        return {str(k): _redact_value(ours or str(k), item) for k, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_value(key, item) for item in value]
    return value


def _redact_fork(fork: Fork) -> Fork:
    hidden = TokenView(token_id=-1, text=HIDDEN)
    return msgspec.structs.replace(
        fork,
        token_baseline=fork.token_baseline and hidden,
        token_candidate=fork.token_candidate and hidden,
        prompt="",
        before="",
        after_baseline="",
        after_candidate="",
        tokens_baseline=(),
        tokens_candidate=(),
        alternatives=tuple(
            Alternative(token=hidden, behind_nat=one.behind_nat) for one in fork.alternatives
        ),
    )


# ---------------------------------------------------------------------- texts


def _clean(sentence: str, texts: Iterable[str]) -> str:
    """Return one of our sentences without what it quotes."""
    kept, marker, _ = sentence.partition(MOST_OFTEN)
    sentence = f"{kept}{marker}{HIDDEN}" if marker else sentence
    for text in texts:
        sentence = sentence.replace(text, HIDDEN)
    return sentence


def _collect(decision: Decision) -> set[str]:
    """Return the texts that are taken out elsewhere, long enough to be looked for in sentences."""
    found: set[str] = set()
    for fork in decision.forks:
        found |= {fork.prompt, fork.before, fork.after_baseline, fork.after_candidate}
    judged = (verdict.comparison for verdict in decision.verdicts)
    for comparison in (*decision.comparisons, *judged):
        if comparison:
            _collect_value("", comparison.detail, found)
    return {text for text in found - _collect_names(decision) if len(text) >= SHORTEST}


def _collect_names(decision: Decision) -> set[str]:
    """Return the names of groups, tasks and classes: they stay, whatever else they are."""
    judged = (verdict.group for verdict in decision.verdicts)
    measured = (one.group for one in decision.comparisons)
    forked = (name for fork in decision.forks for name in (fork.task, fork.request_class))
    return {*judged, *measured, *forked}


def _collect_value(key: str, value: object, found: set[str]) -> None:
    if isinstance(value, str) and key not in OUR_WORDS:
        found.add(value)
    elif isinstance(value, Mapping):
        if key in KEYED_BY_TEXT:
            found.update(str(name) for name in value)
        for name, item in value.items():
            _collect_value(str(name), item, found)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect_value(key, item, found)

"""Four common ways to compare two decoders, as rules on the outputs alone.

Each takes what the arms said and tells whether it would flag the candidate. None sees the
model, a trace or a reported number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gate.evalset import Evalset
from gate.measures.distributions import LEAST_REPEATS, mmd_permutation
from gate.measures.paired import Arm, Key, Paired
from gate.measures.task_deltas import TaskScore
from gate.measures.tasks import gather_texts, score_generations

EQUAL_SHARE = 0.66
RELATIVE_TOLERANCE = 0.08
ALPHA = 0.05
RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Both arms' texts by prompt, and their mean scores.

    texts: prompt -> (baseline, candidate) per repeat; a failed request said nothing. groups:
    prompt -> task.
    """

    texts: Mapping[str, Sequence[tuple[str, str]]]
    groups: Mapping[str, str]
    accuracy: tuple[float, float]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of texts."""
        return [pair for pairs in self.texts.values() for pair in pairs]


def gather_evidence(paired: Paired, evalset: Evalset) -> Evidence:
    """Return what the practices see of a run."""
    texts: dict[str, list[tuple[str, str]]] = {}
    for key in paired.requests:
        pair = (_text(paired.baseline, key), _text(paired.candidate, key))
        texts.setdefault(key[0], []).append(pair)
    return Evidence(
        texts=texts,
        groups={key[0]: request.task for key, request in paired.requests.items()},
        accuracy=(
            _score(paired, paired.baseline, evalset),
            _score(paired, paired.candidate, evalset),
        ),
    )


def _text(arm: Arm, key: Key) -> str:
    return "" if arm.failed(key) else arm.generations[key].text


def _score(paired: Paired, arm: Arm, evalset: Evalset) -> float:
    """Return the mean of each task's first metric; a failed request scores 0."""
    planned = {key[0] for key, request in paired.requests.items() if request.task in evalset.tasks}
    answered = (arm.generations[key] for key in paired.requests if not arm.failed(key))
    scores = _keep_first(score_generations(evalset, gather_texts(answered)))
    return sum(score.value for score in scores) / max(1, len(planned))


def _keep_first(scores: Iterable[TaskScore]) -> list[TaskScore]:
    first: dict[str, tuple[str, str]] = {}
    return [
        score
        for score in scores
        if first.setdefault(score.task, (score.filter, score.metric))
        == (score.filter, score.metric)
    ]


def flags_many_changed_texts(evidence: Evidence) -> bool:
    """At least 66% equal texts passes, as in vLLM's end-to-end test of speculative decoding."""
    n_equal = sum(before == after for before, after in evidence.pairs)
    return n_equal < EQUAL_SHARE * len(evidence.pairs)


def flags_any_changed_text(evidence: Evidence) -> bool:
    """Every text is the same, line by line."""
    return any(before != after for before, after in evidence.pairs)


def flags_accuracy(evidence: Evidence) -> bool:
    """The aggregate score lies within 8% of the baseline's, as in lm-eval regression tests."""
    before, after = evidence.accuracy
    return abs(after - before) > RELATIVE_TOLERANCE * before


def flags_mmd(evidence: Evidence) -> bool:
    """A two-sample test on the texts at 5%: MMD with the Hamming kernel on characters."""
    strata = _stratify(evidence)
    if not strata:
        return False
    before, after = ([[_encode(pair[arm]) for pair in pairs] for pairs in strata] for arm in (0, 1))
    test = mmd_permutation(before, after, np.random.default_rng(0), RESAMPLES)
    return (test.pvalue or 0.0) <= ALPHA


def _stratify(evidence: Evidence) -> list[Sequence[tuple[str, str]]]:
    """A prompt with repeats is a stratum; prompts sent once are pooled by task."""
    repeated = [pairs for pairs in evidence.texts.values() if len(pairs) >= LEAST_REPEATS]
    pooled: dict[str, list[tuple[str, str]]] = {}
    for name, pairs in evidence.texts.items():
        if len(pairs) < LEAST_REPEATS:
            pooled.setdefault(evidence.groups[name], []).extend(pairs)
    return [*repeated, *(pairs for pairs in pooled.values() if len(pairs) >= LEAST_REPEATS)]


def _encode(text: str) -> list[int]:
    return [ord(character) for character in text]


PRACTICES: Mapping[str, Callable[[Evidence], bool]] = {
    "at least 66% equal texts": flags_many_changed_texts,
    "line-by-line text equality": flags_any_changed_text,
    "accuracy within 8%": flags_accuracy,
    "MMD, Hamming kernel": flags_mmd,
}

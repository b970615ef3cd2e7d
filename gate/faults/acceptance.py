"""Faults that change no output: nothing is drafted, nothing accepted, or less than before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gate.decoders.drafting import Drafter, ExtraRows, NoDrafts, Tree
from gate.faults.base import Changes, fault, thread
from gate.records import Request

IDLE = ("exercised",)
SLOWER = ("acceptance_drop",)


class Meddling:
    """A drafter whose guesses are changed on the way to the verifier."""

    def __init__(self, inner: Drafter, change: Callable[[Tree, int, int], Tree]) -> None:
        """change: (tree, last token, tokens the last step committed) -> tree."""
        self._inner = inner
        self._change = change
        self.max_tree = inner.max_tree
        self.n_top, self.n_prompt = inner.n_top, inner.n_prompt
        self.n_emitted = 1

    def propose(self, last: int, output: Sequence[int], max_depth: int) -> Tree:
        """Return the changed guesses."""
        tree = self._inner.propose(last, output, max_depth)
        return self._change(tree, last, self.n_emitted) if tree.tokens else tree

    def extra_rows(self) -> ExtraRows | None:
        """Return the inner drafter's rows."""
        return self._inner.extra_rows()

    def observe(self, best: Sequence[int], n_emitted: int) -> None:
        """Pass on, and remember how long the run was."""
        self.n_emitted = n_emitted
        self._inner.observe(best, n_emitted)

    def learn(self, tree: Tree, values: np.ndarray, ids: np.ndarray, path: Sequence[int]) -> None:
        """Pass on."""
        self._inner.learn(tree, values, ids, path)

    def learn_prompt(self, values: np.ndarray, ids: np.ndarray) -> None:
        """Pass on."""
        self._inner.learn_prompt(values, ids)


def useless(tree: Tree, last: int) -> Tree:
    """Return as many guesses that are as good as never right."""
    spoilt = Tree()
    spoilt.add([last ^ 1] * max(tree.depths), len(tree.tokens))
    return spoilt


@fault("never-drafts", kind="not-exercised", expected=IDLE)
def never_drafts(_: float) -> Changes:
    """Speculation is configured and silently off: the candidate is the baseline in disguise."""
    return Changes(drafter=lambda inner, request: NoDrafts())  # noqa: ARG005


@fault("drafts-never-accepted", kind="not-exercised", expected=IDLE)
def drafts_never_accepted(_: float) -> Changes:
    """Every draft is wrong: the output is right, and all that comes is cost."""
    return Changes(
        drafter=lambda inner, _: Meddling(inner, lambda tree, last, __: useless(tree, last))
    )


@fault(
    "acceptance-collapse",
    kind="performance",
    source=thread("vllm-project/vllm/issues/47930"),
    strength=2.0,
    unit="of so many steps one has useful drafts",
    expected=SLOWER,
)
def acceptance_collapse(strength: float) -> Changes:
    """Acceptance falls while the output stays right."""

    def meddle(inner: Drafter, request: Request) -> Drafter:  # noqa: ARG001
        steps = iter(range(10**9))

        def change(tree: Tree, last: int, _: int) -> Tree:
            return tree if next(steps) % int(strength) == 0 else useless(tree, last)

        return Meddling(inner, change)

    return Changes(drafter=meddle)


@fault(
    "class-blend",
    kind="performance",
    strength="structured",
    unit="request class that loses its drafts",
    expected=SLOWER,
)
def class_blend(strength: str) -> Changes:
    """One request class loses its acceptance, and the average over all hides it."""

    def meddle(inner: Drafter, request: Request) -> Drafter:
        if request.request_class != strength:
            return inner
        return Meddling(inner, lambda tree, last, _: useless(tree, last))

    return Changes(drafter=meddle)


@fault(
    "history-repeat",
    kind="performance",
    source=thread("hao-ai-lab/LookaheadDecoding/issues/62"),
    expected=SLOWER,
)
def history_repeat(_: float) -> Changes:
    """The drafter's history holds the last token of a run once per accepted token."""

    class Repeating(Meddling):
        def propose(self, last: int, output: Sequence[int], max_depth: int) -> Tree:
            more = [last] * (self.n_emitted - 1)
            return self._inner.propose(last, [*output, *more], max_depth)

        def observe(self, best: Sequence[int], n_emitted: int) -> None:
            wrong = [*best[:1]] * len(best) if n_emitted > 1 else best
            super().observe(wrong, n_emitted)

    return Changes(drafter=lambda inner, _: Repeating(inner, lambda tree, *__: tree))


@fault(
    "bonus-missing",
    kind="performance",
    source=thread("vllm-project/vllm/pull/9730"),
    expected=SLOWER,
)
def bonus_missing(_: float) -> Changes:
    """The drafter never saw the bonus token: its next guesses follow another one."""

    def change(tree: Tree, last: int, n_emitted: int) -> Tree:
        return useless(tree, last) if n_emitted > 1 else tree

    return Changes(drafter=lambda inner, _: Meddling(inner, change))

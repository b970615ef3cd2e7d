"""Faults of verification: tokens are committed that the model would not have chosen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from gate.faults.base import Changes, RunOutput, RunSampler, fault, thread
from gate.records import Generation

KIND = "greedy-verification"
CAUGHT = ("token_defects", "flip_rate", "token_unexplained", "conformance", "band_acceptance")


def accept_likely(
    sampler: RunSampler, logits: torch.Tensor, output: Sequence[int], share: float, top_k: int
) -> int | None:
    """Return the first draft in the top k with at least ``share`` of the best probability."""
    z = sampler.scores(logits, output)
    floor = float(z.max()) + float(torch.tensor(share).log())
    best = set(z.topk(top_k).indices.tolist())
    return next((d for d in sampler.drafts if d in best and float(z[d]) >= floor), None)


class Relaxed(RunSampler):
    """Accepts what is likely enough, where ``is_on`` says so."""

    share = 0.5
    top_k = 10

    def is_on(self, output: Sequence[int]) -> bool:  # noqa: ARG002
        """Everywhere."""
        return True

    def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
        """Prefer a likely draft to the model's choice."""
        if self.request.sampling.temperature == 0 and self.drafts and self.is_on(output):
            found = accept_likely(self, logits, output, self.share, self.top_k)
            if found is not None:
                return found
        return super().choose(logits, output)


@fault(
    "relaxed-top-k",
    kind=KIND,
    source=thread("vllm-project/vllm/pull/43184"),
    strength=0.5,
    unit="share of the top probability that a draft needs",
    expected=CAUGHT,
)
def relaxed_top_k(strength: float) -> Changes:
    """A draft in the top 10 with a share of the best probability is accepted."""
    return Changes(sampler=type("Relaxed", (Relaxed,), {"share": strength}))


@fault(
    "relaxed-tight",
    kind=KIND,
    source=thread("vllm-project/vllm/pull/22238"),
    strength=0.9,
    unit="share of the top probability that a draft needs",
    expected=CAUGHT,
    n_tokens=1000,
)
def relaxed_tight(strength: float) -> Changes:
    """A draft almost as likely as the best token is accepted."""
    return Changes(sampler=type("Tight", (Relaxed,), {"share": strength, "top_k": 2}))


@fault(
    "relaxed-late",
    kind=KIND,
    source=thread("sgl-project/sglang/pull/7702"),
    strength=12.0,
    unit="output position from which acceptance is relaxed",
    expected=CAUGHT,
    n_tokens=1000,
)
def relaxed_late(strength: float) -> Changes:
    """Acceptance is relaxed, but only far into an output."""

    class Late(Relaxed):
        share = 0.3

        def is_on(self, output: Sequence[int]) -> bool:
            return len(output) >= strength

    return Changes(sampler=Late)


@fault(
    "relaxed-class",
    kind=KIND,
    strength="structured",
    unit="request class in which acceptance is relaxed",
    expected=CAUGHT,
    n_tokens=1000,
)
def relaxed_class(strength: str) -> Changes:
    """Acceptance is relaxed in one request class alone."""

    class InClass(Relaxed):
        share = 0.3

        def is_on(self, output: Sequence[int]) -> bool:  # noqa: ARG002
            return self.request.request_class == strength

    return Changes(sampler=InClass)


@fault(
    "unverified-head",
    kind=KIND,
    source=thread("ohdearquant/lattice/issues/243"),
    expected=CAUGHT,
)
def unverified_head(_: float) -> Changes:
    """The first draft token of a run is committed unchecked."""

    class Unverified(RunSampler):
        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            if self.drafts and self.depth(output) == 0:
                return self.drafts[0]
            return super().choose(logits, output)

    return Changes(sampler=Unverified)


@fault(
    "unverified-tail",
    kind=KIND,
    strength=2.0,
    unit="place in a run from which drafts are not checked",
    expected=CAUGHT,
)
def unverified_tail(strength: float) -> Changes:
    """The drafts at the end of a run are committed unchecked: an index off by one."""

    class Unverified(RunSampler):
        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            if self.drafts and self.depth(output) >= strength:
                return self.drafts[0]
            return super().choose(logits, output)

    return Changes(sampler=Unverified)


@fault("bonus-row", kind=KIND, expected=CAUGHT)
def bonus_row(_: float) -> Changes:
    """The bonus token behind an accepted run is read from the row before it."""

    class OneRowBack(RunSampler):
        before: torch.Tensor | None = None

        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            known, self.before = self.before, logits
            is_bonus = self.depth(output) > 0 and not self.drafts and known is not None
            return super().choose(known if is_bonus else logits, output)  # type: ignore[arg-type]

    return Changes(sampler=OneRowBack)


@fault(
    "draft-leak",
    kind=KIND,
    source=thread("sgl-project/sglang/pull/17260"),
    strength=2.0,
    unit="nats that a drafted token's logit gains",
    expected=CAUGHT,
)
def draft_leak(strength: float) -> Changes:
    """The drafter's content changes the result: drafted tokens gain probability."""

    class Leaking(RunSampler):
        def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
            leaked = logits.float().clone()
            leaked[list(self.drafts)] += strength
            return super().choose(leaked, output)

    return Changes(sampler=Leaking)


@fault(
    "lost-first",
    kind=KIND,
    source=thread("Lightning-AI/litgpt/issues/2307"),
    expected=(*CAUGHT, "termination"),
)
def lost_first(_: float) -> Changes:
    """The token of the prefill is not returned."""

    class Losing(RunOutput):
        def generation(self, peak_memory_bytes: int) -> Generation:
            found = super().generation(peak_memory_bytes)
            if found.token_ids is None or len(found.token_ids) < 2:  # noqa: PLR2004
                return found
            logprobs = found.logprobs and found.logprobs[1:]
            return msgspec.structs.replace(
                found, text="", token_ids=found.token_ids[1:], logprobs=logprobs
            )

    return Changes(output=Losing)


class Rare(RunSampler):
    """Now and then the second best token."""

    once_in = 500.0

    def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
        """Miss the best token once in so many."""
        is_open = self._grammar is None and self.request.sampling.temperature == 0
        if is_open and self.happens(output, self.once_in):
            return int(self.scores(logits, output).topk(2).indices[1])
        return super().choose(logits, output)


@fault(
    "rare-500",
    kind=KIND,
    strength=500.0,
    unit="tokens of which one is wrong",
    expected=CAUGHT,
    n_tokens=1500,
)
def rare_500(strength: float) -> Changes:
    """One token in 500 is the second best."""
    return Changes(sampler=type("Rare", (Rare,), {"once_in": strength}))


@fault(
    "rare-2000",
    kind=KIND,
    strength=2000.0,
    unit="tokens of which one is wrong",
    expected=CAUGHT,
    n_tokens=6000,
)
def rare_2000(strength: float) -> Changes:
    """One token in 2,000 is the second best."""
    return Changes(sampler=type("Rare", (Rare,), {"once_in": strength}))

"""Speculative sampling with noise of its own, and the rules that break it.

The rule (Leviathan et al., 2023, arXiv:2211.17192; Chen et al., 2023, arXiv:2302.01318): a
draft d ~ q is accepted with probability min(1, p(d) / q(d)); a rejected one is replaced by
a draw from the normalised max(p - q, 0). The draft law q is a flattened and perturbed copy of
the target's own logits, so that no second model is needed, and a draft is drawn where the row it is
verified in is at hand: the law of the output is that of drafting ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch

from gate.decoders.drafting import Drafter, NoDrafts
from gate.decoders.sampling import keep_mask
from gate.faults.base import Build, Changes, RunOutput, RunSampler, fault, thread
from gate.records import Request, Sampling, Step, Trace

KIND = "sampling"
CAUGHT = ("pit_distance", "sample_tokens", "conformance", "sample_lag", "sample_duplicates")
DRAFT_LENGTH = 4  # drafts of a run
FLATTENING = 0.5  # of the target's logits, as a weaker model's are
PERTURBATION = 0.5  # nats beside them


def processed_law(z: torch.Tensor, s: Sampling) -> torch.Tensor:
    """Return probabilities (vocab,), float64, of penalised logits after temperature and cuts."""
    kept = z.masked_fill(~keep_mask(z, s), -torch.inf)
    return (kept.double() / s.temperature).softmax(-1)


class SpeculativeSampler(RunSampler):
    """Drafts, accepts and recovers at every position. Lossless as it stands."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._rng = torch.Generator().manual_seed(self.key % 2**63)
        self.accepted: list[bool] = []

    def uniform(self) -> float:
        """Return fresh noise."""
        return float(torch.rand((), generator=self._rng, dtype=torch.float64))

    def draw(self, weights: torch.Tensor, u: float) -> int:
        """Return a token by inverting the distribution function. weights: (vocab,), any sum."""
        mass = weights.cumsum(-1)
        return int(torch.searchsorted(mass, u * mass[-1]).clamp(max=len(mass) - 1))

    def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
        """Return the next token, and remember whether it was the draft."""
        z = self.scores(logits, output)
        guess = self.guess(z, torch.arange(z.numel(), device=z.device), len(output))
        if self.request.sampling.temperature == 0:
            token, is_draft = int(z.argmax()), int(guess.argmax()) == int(z.argmax())
        else:
            token, is_draft = self.verify(z, guess)
        self.accepted.append(is_draft)
        return token

    def guess(self, z: torch.Tensor, ids: torch.Tensor, position: int) -> torch.Tensor:
        """Return the draft's logits. z, ids: (vocab,)."""
        return FLATTENING * z + PERTURBATION * torch.sin(ids * 1.7 + position)

    def verify(self, z: torch.Tensor, guess: torch.Tensor) -> tuple[int, bool]:
        """Draft, accept or recover. z, guess: (vocab,), penalised logits of target and draft."""
        s = self.request.sampling
        p, q = processed_law(z, s), processed_law(guess, s)
        draft = self.draft(q, guess)
        if self.accepts(draft, self.target_ratio(p, z), self.draft_ratio(q, guess)):
            return draft, True
        return self.recover(p, q, draft), False

    def draft(self, q: torch.Tensor, guess: torch.Tensor) -> int:  # noqa: ARG002
        """Return a draft drawn from q."""
        return self.draw(q, self.uniform())

    def target_ratio(self, p: torch.Tensor, z: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Return the target's law as the ratio uses it."""
        return p

    def draft_ratio(self, q: torch.Tensor, guess: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Return the draft's law as the ratio uses it."""
        return q

    def accepts(self, draft: int, p: torch.Tensor, q: torch.Tensor) -> bool:
        """Accept with probability min(1, p / q)."""
        return self.uniform() * float(q[draft]) < float(p[draft])

    def recover(self, p: torch.Tensor, q: torch.Tensor, draft: int) -> int:  # noqa: ARG002
        """Return a token of the normalised max(p - q, 0)."""
        rest = (p - q).clamp(min=0.0)
        return self.draw(rest if float(rest.sum()) > 0 else p, self.uniform())


class SpeculativeOutput(RunOutput):
    """Reports runs: drafts up to the first rejection, and the token behind them."""

    def _trace(self, peak_memory_bytes: int) -> Trace:
        accepted = cast("SpeculativeSampler", self.sampler).accepted
        steps, self._steps = self._steps, [*self._steps[:1], *join_runs(self._steps[1:], accepted)]
        trace = super()._trace(peak_memory_bytes)
        self._steps = steps
        return trace


def join_runs(steps: Sequence[Step], accepted: Sequence[bool]) -> Iterator[Step]:
    """Yield one step per run of at most DRAFT_LENGTH drafts. steps: one per token, no prefill."""
    at = 0
    flags = accepted[1:]
    while at < len(steps):
        n = 0
        while n < DRAFT_LENGTH and at + n < len(steps) and flags[at + n]:
            n += 1
        used = steps[at : at + n + 1]
        yield Step(
            n_rows=DRAFT_LENGTH + 1,
            n_drafted=DRAFT_LENGTH,
            n_accepted=min(n, len(used)),
            n_emitted=len(used),
            wall_s=sum(step.wall_s for step in used),
        )
        at += len(used)


def no_drafts(inner: Drafter, request: Request) -> Drafter:  # noqa: ARG001
    """Return a drafter without drafts: the sampler makes its own."""
    return NoDrafts()


def speculative(sampler: type[SpeculativeSampler]) -> Changes:
    """Return the parts of a speculative sampler."""
    return Changes(sampler=sampler, output=SpeculativeOutput, drafter=no_drafts, noise="own")


def own_fault(fault_id: str, **fields: Any) -> Callable[[Build], Build]:
    """Register a fault that only shows in some thousand sampled tokens."""
    return fault(
        fault_id,
        **{"kind": KIND, "expected": CAUGHT, "needs": "sampled", "n_tokens": 1500} | fields,
    )


@own_fault("softmax-residual", source=thread("huggingface/transformers/pull/28508"))
def softmax_residual(_: float) -> Changes:
    """The residual is softmax(max(p - q, 0)) instead of the normalised max(p - q, 0)."""

    class Softmax(SpeculativeSampler):
        def recover(self, p: torch.Tensor, q: torch.Tensor, draft: int) -> int:  # noqa: ARG002
            return self.draw((p - q).clamp(min=0.0).softmax(-1), self.uniform())

    return speculative(Softmax)


@own_fault(
    "greedy-draft-soft-q", source=thread("huggingface/transformers/issues/32867"), n_tokens=1500
)
def greedy_draft_soft_q(_: float) -> Changes:
    """The draft is the argmax, but the ratio takes the softmax of the draft's logits."""

    class Greedy(SpeculativeSampler):
        def draft(self, q: torch.Tensor, guess: torch.Tensor) -> int:  # noqa: ARG002
            return int(q.argmax())

    return speculative(Greedy)


@own_fault("raw-q", source=thread("huggingface/transformers/issues/47932"))
def raw_q(_: float) -> Changes:
    """The ratio takes q from raw logits while the draft comes from processed ones."""

    class Raw(SpeculativeSampler):
        def draft_ratio(self, q: torch.Tensor, guess: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
            return guess.double().softmax(-1)

    return speculative(Raw)


@own_fault("raw-target", source=thread("vllm-project/vllm/pull/10198"))
def raw_target(_: float) -> Changes:
    """The ratio takes p before temperature and cuts."""

    class Raw(SpeculativeSampler):
        def target_ratio(self, p: torch.Tensor, z: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
            return z.double().softmax(-1)

    return speculative(Raw)


class Unmodified(SpeculativeSampler):
    """Draws from the unmodified p after a rejection."""

    def recover(self, p: torch.Tensor, q: torch.Tensor, draft: int) -> int:  # noqa: ARG002
        """Return any token of p."""
        return self.draw(p, self.uniform())


@own_fault("no-zeroing")
def no_zeroing(_: float) -> Changes:
    """After a rejection the token is drawn from the unmodified p."""
    return speculative(Unmodified)


@own_fault("no-zeroing-biased", strength=2.0, unit="nats by which the draft law favours tokens")
def no_zeroing_biased(strength: float) -> Changes:
    """As no-zeroing, with a draft law that favours the same tokens everywhere, at any rank."""

    class Biased(Unmodified):
        def guess(self, z: torch.Tensor, ids: torch.Tensor, position: int) -> torch.Tensor:  # noqa: ARG002
            return z + strength * torch.sin(ids * 1.7)

    return speculative(Biased)


@own_fault(
    "no-zeroing-noise",
    strength=1.0,
    unit="nats by which the draft law is off",
    unseen="it favours other tokens at every position, whatever their rank: averaged over "
    "positions its draws follow the law",
)
def no_zeroing_noise(strength: float) -> Changes:
    """As no-zeroing; the draft law favours other tokens at every position, at any rank."""

    class Noisy(Unmodified):
        def guess(self, z: torch.Tensor, ids: torch.Tensor, position: int) -> torch.Tensor:
            return z + strength * torch.sin(ids * 1.7 + 2.3 * position)

    return speculative(Noisy)


@own_fault("zeroed-draft-only")
def zeroed_draft_only(_: float) -> Changes:
    """After a rejection the token is drawn from p without the draft, as if q were one-hot."""

    class OneHot(SpeculativeSampler):
        def recover(self, p: torch.Tensor, q: torch.Tensor, draft: int) -> int:  # noqa: ARG002
            rest = p.clone()
            rest[draft] = 0.0
            return self.draw(rest if float(rest.sum()) > 0 else p, self.uniform())

    return speculative(OneHot)


@own_fault("shared-noise", source=thread("vllm-project/vllm/pull/52522"))
def shared_noise(_: float) -> Changes:
    """The draft's noise is used again to accept and to recover."""

    class Shared(SpeculativeSampler):
        noise = torch.zeros(0)

        def draft(self, q: torch.Tensor, guess: torch.Tensor) -> int:  # noqa: ARG002
            u = torch.rand(len(q), generator=self._rng, dtype=torch.float64)
            self.noise = -(-u.log()).log()
            return int((q.log() + self.noise).argmax())

        def accepts(self, draft: int, p: torch.Tensor, q: torch.Tensor) -> bool:
            u = float(torch.exp(-torch.exp(-self.noise[draft])))
            return u * float(q[draft]) < float(p[draft])

        def recover(self, p: torch.Tensor, q: torch.Tensor, draft: int) -> int:  # noqa: ARG002
            return int(((p - q).clamp(min=0.0).log() + self.noise).argmax())

    return speculative(Shared)


@own_fault(
    "lenient-ratio",
    strength=1.5,
    unit="factor by which the acceptance probability is raised",
    n_tokens=4000,
)
def lenient_ratio(strength: float) -> Changes:
    """Drafts are accepted more often than p / q."""

    class Lenient(SpeculativeSampler):
        def accepts(self, draft: int, p: torch.Tensor, q: torch.Tensor) -> bool:
            return super().accepts(draft, p * strength, q)

    return speculative(Lenient)


@own_fault("typical-acceptance", strength=0.09, unit="probability a draft needs")
def typical_acceptance(strength: float) -> Changes:
    """Drafts are accepted wherever they are likely enough, with no draw at all."""

    class Typical(SpeculativeSampler):
        def accepts(self, draft: int, p: torch.Tensor, q: torch.Tensor) -> bool:  # noqa: ARG002
            entropy = float(-(p * p.clamp(min=1e-30).log()).sum())
            return float(p[draft]) > min(strength, 0.3 * float(torch.tensor(-entropy).exp()))

    return speculative(Typical)


@own_fault(
    "noise-per-run",
    strength=3.0,
    unit="tokens that share one uniform",
    expected=CAUGHT,
)
def noise_per_run(strength: float) -> Changes:
    """One uniform serves several tokens in a row: each is right, together they are not."""

    class Held(SpeculativeSampler):
        n_used = 0
        kept = 0.0

        def verify(self, z: torch.Tensor, guess: torch.Tensor) -> tuple[int, bool]:
            if self.n_used % strength == 0:
                self.kept = self.uniform()
            self.n_used += 1
            p = processed_law(z, self.request.sampling)
            order = p.argsort(descending=True)
            token = int(order[self.draw(p[order], self.kept)])
            return token, token == int(guess.argmax())

    return speculative(Held)

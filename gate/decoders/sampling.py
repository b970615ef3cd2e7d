"""From a row of logits to the next token: processors, cuts and the position-keyed sampler.

Processors apply in the order that records.Sampling states. Scores stay in nats of the
untempered logits: with penalised and masked logits z, temperature T and Gumbel noise g,
the token is argmax(z + T g) over the tokens that the cuts keep, which draws from
softmax(z / T) restricted to them (Gumbel-max: Maddison et al., 2014, arXiv:1411.0030).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gate.grammar import Matcher
from gate.noise import gumbel, stream_key
from gate.records import Request, Sampling, needs_processing


class NothingAllowedError(ValueError):
    """The request's own parameters leave no token to choose."""


def nothing_allowed(position: int) -> str:
    """Return the sentence for an output position at which every token is forbidden."""
    return f"the sampling parameters leave no token to choose at output position {position}"


@dataclass(frozen=True, kw_only=True)
class Law:
    """The law a token was drawn from.

    logits: (vocab,), float32, nats, as the model gave them. processed: (vocab,), float32,
    log-probabilities after all processors, -inf outside the cuts; at temperature 0 the
    log-softmax of the penalised and masked logits.
    """

    logits: torch.Tensor
    processed: torch.Tensor


def penalise(
    logits: torch.Tensor, prompt: Sequence[int], output: Sequence[int], s: Sampling
) -> torch.Tensor:
    """Apply the penalties and the bias; returns a new (vocab,) float32 tensor.

    Repetition (Keskar et al., 2019, arXiv:1909.05858): positive logits of seen tokens are
    divided by the penalty, negative ones multiplied. Presence and frequency: the OpenAI
    definition, over the output only.
    """
    z = logits.float().clone()
    if s.repetition_penalty != 1.0:
        seen = torch.tensor(sorted({*prompt, *output}), device=z.device)
        at = z[seen]
        z[seen] = torch.where(at > 0, at / s.repetition_penalty, at * s.repetition_penalty)
    if output and (s.presence_penalty or s.frequency_penalty):
        counts = Counter(output)
        ids = torch.tensor(list(counts), device=z.device)
        n = torch.tensor(list(counts.values()), dtype=z.dtype, device=z.device)
        z[ids] -= s.presence_penalty + s.frequency_penalty * n
    for token_id, bias in s.logit_bias.items():
        z[token_id] += bias
    return z


def mask_forbidden(
    z: torch.Tensor, prompt: Sequence[int], output: Sequence[int], request: Request
) -> torch.Tensor:
    """Set to -inf, in place, what bad words and minimum tokens forbid here."""
    history = (*prompt, *output) if request.sampling.bad_words else ()
    for word in request.sampling.bad_words:
        head = word[:-1]
        if not head or tuple(history[-len(head) :]) == head:
            z[word[-1]] = -torch.inf
    if len(output) < request.min_tokens and request.eos_ids:
        z[list(request.eos_ids)] = -torch.inf
    return z


def keep_mask(z: torch.Tensor, s: Sampling) -> torch.Tensor:
    """Which tokens top-k, top-p and min-p keep, in that order: (vocab,), bool.

    Top-p (Holtzman et al., 2020, arXiv:1904.09751) keeps the likeliest tokens until their
    mass reaches top_p, the one that crosses it included. Min-p (Nguyen et al., 2024,
    arXiv:2407.01082) keeps what has at least min_p times the top probability.
    """
    kept = z > -torch.inf
    if 0 < s.top_k < z.numel():
        kept &= z >= z.topk(s.top_k).values[-1]
    if s.top_p < 1.0:
        kept &= _top_p_mask(z.masked_fill(~kept, -torch.inf) / s.temperature, s.top_p)
    if s.min_p > 0.0:
        scaled = z / s.temperature
        kept &= scaled.softmax(-1) >= s.min_p * scaled.softmax(-1).max()
    return kept


def _top_p_mask(scaled: torch.Tensor, top_p: float) -> torch.Tensor:
    order = scaled.argsort(descending=True, stable=True)
    mass = scaled[order].softmax(-1).cumsum(-1)
    before = mass - scaled[order].softmax(-1)
    kept = torch.empty_like(scaled, dtype=torch.bool)
    kept[order] = before < top_p
    kept[order[0]] = True  # a top_p that underflows float32 still keeps one
    return kept


class Sampler:
    """Chooses each token of one output from the logits at its position and its history."""

    def __init__(
        self, request: Request, prompt: Sequence[int], seed: int, grammar: Matcher | None = None
    ) -> None:
        """``seed``: the run's, for requests without one of their own. ``grammar`` constrains."""
        s = request.sampling
        self.request = request
        self.prompt = tuple(prompt)
        self._grammar = grammar
        self.key = stream_key(seed if s.seed is None else s.seed, request.id, request.repeat)
        self.is_plain = not (needs_processing(request) or grammar)
        """Greedy on the raw logits: an argmax over the whole batch serves it."""

    def scores(self, logits: torch.Tensor, output: Sequence[int]) -> torch.Tensor:
        """Return penalised and masked logits z: (vocab,), float32, nats."""
        z = penalise(logits, self.prompt, output, self.request.sampling)
        z = mask_forbidden(z, self.prompt, output, self.request)
        if self._grammar is not None:
            allowed = torch.from_numpy(self._grammar.allowed(output, z.numel())).to(z.device)
            z.masked_fill_(~allowed, -torch.inf)
        return z

    def allows(self, logits: torch.Tensor, output: Sequence[int]) -> bool:
        """Whether bans and biases leave any token at position ``len(output)``."""
        return math.isfinite(float(self.scores(logits.float(), output).max()))

    def choose(self, logits: torch.Tensor, output: Sequence[int]) -> int:
        """Return the token at position ``len(output)`` given the logits row there.

        Raises NothingAllowedError where bans and biases leave no finite score.
        """
        z = self.scores(logits, output)
        s = self.request.sampling
        if not math.isfinite(float(z.max())):
            raise NothingAllowedError(nothing_allowed(len(output)))
        if s.temperature == 0.0:
            return int(z.argmax())
        kept = keep_mask(z, s).nonzero().squeeze(-1)
        noise = gumbel(self.key, len(output), kept)
        return int(kept[(z[kept].double() + s.temperature * noise).argmax()])

    def law(self, logits: torch.Tensor, output: Sequence[int]) -> Law:
        """Return the law at position ``len(output)``, raw and processed."""
        raw = logits.float()
        z = self.scores(raw, output)
        s = self.request.sampling
        if s.temperature > 0.0:
            z = z.masked_fill(~keep_mask(z, s), -torch.inf) / s.temperature
        return Law(logits=raw, processed=z.log_softmax(-1))

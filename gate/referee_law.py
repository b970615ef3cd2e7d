"""The law at a position as the referee sees it: transformers' own processors, our noise hash.

Independent of decoders/sampling.py on purpose: a mistake there must not hide here.
Presence and frequency penalties, which transformers lacks, are written out anew.

Cut edges: at the edge of a top-k, top-p or min-p set honest arithmetic moves tokens across
the cut. Every distance below is the change of a logit gap, in nats of the untempered
logits, that would move the token across:

- top-k: to the k-th (from outside) or (k+1)-th logit (from inside);
- min-p: to max + T log(min_p);
- top-p: T |logit(C) - logit(top_p)|, C the mass of the likelier tokens: raising them all
  by d against the rest moves logit(C) by d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from gate.grammar import compile_format, load_library, load_vocabulary
from gate.noise import gumbel, stream_key, uniforms
from gate.records import Request, Sampling

SAMPLED = ("pit", "likely")
"""Evidence on sampled tokens alone."""
FORBIDDEN = 1e4
"""Regret, nats, of a token that was not allowed at all (finite, so that JSON can carry it)."""
N_RANKED = 5
"""Likeliest tokens kept where a choice was close or wrong: what a fork could have been."""
Ranked = tuple[tuple[int, float], ...]
"""Token ids with the nats by which each is behind the best."""
PIT_STREAM = "pit"
"""Names the noise stream that randomises the probability integral transform."""
LIKELY = 0.01
"""Probability from which on a token's draws are counted against those expected."""
Likely = tuple[tuple[int, float], ...]
"""Token ids with their probability."""


@dataclass(frozen=True, kw_only=True)
class TokenEvidence:
    """What one emitted token amounts to; fields as in records.TokenScores."""

    regret: float
    gap: float
    entropy: float
    best_id: int
    rank: int
    logprob: float
    processed_logprob: float
    cut_distance: float
    pit: float
    top: Ranked
    likely: Likely


def penalised_scores(
    raw: torch.Tensor,
    request: Request,
    n_prompt: int,
    history: Sequence[int],
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return penalised and masked logits z: (vocab,), float32, nats.

    raw: (vocab,). history: prompt and output before this position, ``n_prompt`` of it prompt.
    mask: what a grammar allows here, (vocab,), bool; None: everything.
    """
    s = request.sampling
    ids = torch.tensor([list(history)], device=raw.device)
    row = raw.float()[None].clone()
    if s.repetition_penalty != 1.0:
        row = RepetitionPenaltyLogitsProcessor(s.repetition_penalty)(ids, row)
    row = _penalise_output(row, s, history[n_prompt:])
    z: torch.Tensor = _mask_processors(request, n_prompt, raw)(ids, row)[0]
    return z if mask is None else z.masked_fill(~mask, -torch.inf)


def grammar_masks(
    request: Request,
    tokenizer: Any,
    emitted: Sequence[int],
    n_vocab: int,
) -> list[torch.Tensor | None]:
    """What the grammar allows at each emitted position and after the last: (vocab,), bool each.

    None: everything, because there is no grammar or the output has left it (that position's
    own mask says so). A walk apart from the decoders' Matcher. Raises GrammarError.
    """
    masks: list[torch.Tensor | None] = [None] * (len(emitted) + 1)
    if request.response_format is None:
        return masks
    vocabulary = load_vocabulary(tokenizer)
    grammar = compile_format(request.response_format)
    walker = load_library().LLMatcher(vocabulary, grammar, log_level=0)
    for position, token in enumerate((*emitted, None)):
        masks[position] = _read_mask(walker, vocabulary, request.eos_ids, n_vocab)
        if token is None or not walker.consume_token(token):
            break
    return masks


def _read_mask(
    walker: Any,
    vocabulary: Any,
    eos_ids: Sequence[int],
    n_vocab: int,
) -> torch.Tensor | None:
    listed = torch.frombuffer(bytearray(walker.compute_logit_bias()), dtype=torch.uint8) > 0
    mask = torch.zeros(n_vocab, dtype=torch.bool)
    mask[: len(listed)] = listed[:n_vocab]
    for eos in vocabulary.eos_tokens:
        mask[eos] = False
    for eos in eos_ids:
        mask[eos] = walker.is_accepting()
    return mask if mask.any() else None


def _penalise_output(row: torch.Tensor, s: Sampling, output: Sequence[int]) -> torch.Tensor:
    if not output or not (s.presence_penalty or s.frequency_penalty):
        return row
    counts = torch.bincount(torch.tensor(list(output), device=row.device), minlength=row.shape[1])
    return row - s.frequency_penalty * counts - s.presence_penalty * (counts > 0)


def _mask_processors(request: Request, n_prompt: int, raw: torch.Tensor) -> LogitsProcessorList:
    s = request.sampling
    found = LogitsProcessorList()
    if s.logit_bias:
        found.append(SequenceBiasLogitsProcessor({(i,): float(b) for i, b in s.logit_bias.items()}))
    if s.bad_words:
        found.append(NoBadWordsLogitsProcessor([list(word) for word in s.bad_words]))
    if request.min_tokens and request.eos_ids:
        found.append(
            MinNewTokensLengthLogitsProcessor(
                n_prompt, request.min_tokens, list(request.eos_ids), device=str(raw.device)
            )
        )
    return found


def warp(z: torch.Tensor, s: Sampling) -> torch.Tensor:
    """Temper and cut with transformers' warpers: (vocab,) -> (vocab,), -inf outside."""
    row, ids = z[None], torch.zeros((1, 1), dtype=torch.long, device=z.device)
    if s.temperature not in (0.0, 1.0):
        row = TemperatureLogitsWarper(float(s.temperature))(ids, row)
    if s.temperature == 0.0:
        return row[0]
    if s.top_k:
        row = TopKLogitsWarper(s.top_k)(ids, row)
    if s.top_p < 1.0:
        row = TopPLogitsWarper(s.top_p)(ids, row)
    if s.min_p > 0.0:
        row = MinPLogitsWarper(s.min_p)(ids, row)
    return row[0]


def judge_token(
    raw: torch.Tensor,
    request: Request,
    n_prompt: int,
    history: Sequence[int],
    token: int,
    mask: torch.Tensor | None = None,
) -> TokenEvidence:
    """Return the evidence on ``token`` emitted after ``history``. raw: (vocab,) logits."""
    s = request.sampling
    z = penalised_scores(raw, request, n_prompt, history, mask)
    warped = warp(z, s)
    logp = warped.log_softmax(-1)
    position = len(history) - n_prompt
    allowed = warped > -torch.inf
    scores = _add_noise(z, request, position, allowed, token)
    distance = cut_distance(z, s)
    inside = scores.masked_fill(~allowed, -torch.inf)
    top = inside.topk(min(N_RANKED, inside.numel()))
    behind = (top.values[0] - top.values).clamp(max=FORBIDDEN).tolist()
    return TokenEvidence(
        regret=edge_regret(scores, allowed, distance, z, token),
        gap=behind[min(1, len(behind) - 1)],
        entropy=float(-(logp.exp() * logp.masked_fill(~allowed, 0.0)).sum()),
        best_id=int(top.indices[0]),
        rank=int((inside > scores[token]).sum()),
        logprob=max(float(raw.float().log_softmax(-1)[token]), -FORBIDDEN),
        processed_logprob=max(float(logp[token]), -FORBIDDEN),
        cut_distance=min(float(distance[token].abs()), FORBIDDEN),
        top=rank_tokens(top.indices.tolist(), behind),
        pit=_pit(logp, request, position, token),
        likely=_list_likely(logp, request),
    )


def rank_tokens(ids: Sequence[int], behind: Sequence[float]) -> Ranked:
    """Return the allowed ones of the likeliest tokens, likeliest first."""
    return tuple((i, nats) for i, nats in zip(ids, behind, strict=True) if nats < FORBIDDEN)


def _add_noise(
    z: torch.Tensor, request: Request, position: int, allowed: torch.Tensor, token: int
) -> torch.Tensor:
    """Scores of the tokens that count, the allowed ones and ``token``; the others' lack noise."""
    s, scores = request.sampling, z.double()
    if s.temperature == 0.0:
        return scores
    key = stream_key(s.seed or 0, request.id, request.repeat)
    if allowed.all():
        noise: torch.Tensor = gumbel(key, position, torch.arange(z.numel(), device=z.device))
        return scores + s.temperature * noise
    counts = allowed.clone()
    counts[token] = True
    ids = counts.nonzero()[:, 0]
    scores[ids] += s.temperature * gumbel(key, position, ids)
    return scores


def cut_distance(z: torch.Tensor, s: Sampling) -> torch.Tensor:
    """Signed distance of every token to the nearest cut: (vocab,); above 0 inside, inf: no cut."""
    distance = torch.full_like(z, torch.inf)
    if s.temperature == 0.0:
        return distance
    ranked = z
    if 0 < s.top_k < z.numel():
        edge = z.topk(s.top_k + 1).values
        kept = z >= edge[-2]
        distance = torch.where(kept, z - edge[-1], z - edge[-2])
        ranked = z.masked_fill(~kept, -torch.inf)
    if s.top_p < 1.0:
        distance = torch.minimum(
            distance, s.temperature * _mass_margin(ranked / s.temperature, s.top_p)
        )
    if s.min_p > 0.0:
        distance = torch.minimum(distance, z - (z.max() + s.temperature * math.log(s.min_p)))
    return distance


def _mass_margin(scaled: torch.Tensor, top_p: float) -> torch.Tensor:
    """logit(top_p) - logit(mass of the likelier tokens), per token: (vocab,)."""
    p = scaled.double().softmax(-1)
    order = p.argsort(descending=True, stable=True)
    before = torch.empty_like(p)
    before[order] = p[order].cumsum(-1) - p[order]
    before = before.clamp(0.0, 1.0)
    return (math.log(top_p / (1 - top_p)) - torch.logit(before)).to(scaled.dtype)


def edge_regret(
    scores: torch.Tensor, allowed: torch.Tensor, distance: torch.Tensor, z: torch.Tensor, token: int
) -> float:
    """Smallest change of a logit gap, nats, that would make ``token`` the choice.

    Each better token must either lose its lead or fall behind the cut, whichever is nearer;
    a token outside the cut must also come in. FORBIDDEN: masked, or not finite.
    """
    if not math.isfinite(float(z[token])):
        return FORBIDDEN
    outside = 0.0 if allowed[token] else max(0.0, -float(distance[token]))
    lead = scores - scores[token]
    better = allowed & (lead > 0)
    if not better.any():
        return min(outside, FORBIDDEN)
    needed = torch.minimum(lead[better], distance[better].double().clamp(min=0.0))
    return min(max(outside, float(needed.max())), FORBIDDEN)


def end_regret(
    raw: torch.Tensor,
    request: Request,
    n_prompt: int,
    history: Sequence[int],
    mask: torch.Tensor | None = None,
) -> float | None:
    """Regret of ending after ``history``, nats: of the best EOS token. None: there is no EOS."""
    if not request.eos_ids:
        return None
    return min(
        judge_token(raw, request, n_prompt, history, eos, mask).regret for eos in request.eos_ids
    )


def _pit(logp: torch.Tensor, request: Request, position: int, token: int) -> float:
    """Randomised probability integral transform, the likeliest first. 0 for a greedy token."""
    if not request.sampling.temperature:
        return 0.0
    p = logp.exp()
    key = stream_key(request.sampling.seed or 0, f"{PIT_STREAM}\x1f{request.id}", request.repeat)
    v = float(uniforms(key, position, torch.tensor([0]))[0])
    return min(1.0, float(p[logp > logp[token]].sum()) + v * float(p[token]))


def _list_likely(logp: torch.Tensor, request: Request) -> Likely:
    """Return the tokens of at least LIKELY with their probability; none for a greedy token."""
    if not request.sampling.temperature:
        return ()
    ids = (logp >= math.log(LIKELY)).nonzero()[:, 0]
    return tuple(zip(ids.tolist(), logp[ids].exp().tolist(), strict=True))

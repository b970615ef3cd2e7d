"""A request's parameters as a list of transformers' logits processors, in records' order.

transformers' own classes where it has them; presence and frequency penalties and the JSON
grammar, which it lacks, come from the sampler's parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from transformers import (
    LogitsProcessor,
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

from gate.decoders.sampling import penalise
from gate.grammar import GrammarError, Matcher, open_matcher
from gate.records import Request, Sampling


class OutputPenalties(LogitsProcessor):
    """Presence and frequency penalties over the tokens behind the prompt."""

    def __init__(self, s: Sampling, n_prompt: int) -> None:
        self._sampling = msgspec.structs.replace(s, repetition_penalty=1.0, logit_bias={})
        self._n_prompt = n_prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """input_ids: (1, n). scores: (1, vocab)."""
        output = input_ids[0, self._n_prompt :].tolist()
        return penalise(scores[0], (), output, self._sampling)[None]


class GrammarMask(LogitsProcessor):
    """Forbids what the grammar does not allow.

    Drafts that leave the grammar are laid out before they are judged: the rows behind them stay as
    they are, since none of them can be committed.
    """

    def __init__(self, matcher: Matcher, n_prompt: int) -> None:
        self._matcher = matcher
        self._n_prompt = n_prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """input_ids: (1, n). scores: (1, vocab)."""
        try:
            allowed = self._matcher.allowed(
                input_ids[0, self._n_prompt :].tolist(), scores.shape[1]
            )
        except GrammarError:
            return scores
        return scores.masked_fill(~torch.from_numpy(allowed).to(scores.device), -torch.inf)


def make_processors(
    request: Request, prompt: Sequence[int], tokenizer: Any, device: torch.device
) -> LogitsProcessorList:
    """Return the processors and cuts of a request. Raises GrammarError."""
    s, n_prompt = request.sampling, len(prompt)
    found = LogitsProcessorList()
    if s.repetition_penalty != 1.0:
        found.append(RepetitionPenaltyLogitsProcessor(float(s.repetition_penalty)))
    if s.presence_penalty or s.frequency_penalty:
        found.append(OutputPenalties(s, n_prompt))
    if s.logit_bias:
        found.append(SequenceBiasLogitsProcessor({(i,): float(b) for i, b in s.logit_bias.items()}))
    if s.bad_words:
        found.append(NoBadWordsLogitsProcessor([list(word) for word in s.bad_words]))
    if request.min_tokens and request.eos_ids:
        least = MinNewTokensLengthLogitsProcessor(
            n_prompt, request.min_tokens, list(request.eos_ids), device=str(device)
        )
        found.append(least)
    matcher = open_matcher(request, tokenizer)
    if matcher is not None:
        found.append(GrammarMask(matcher, n_prompt))
    found.extend(make_cuts(s))
    return found


def make_cuts(s: Sampling) -> LogitsProcessorList:
    """Return temperature and cuts; none where decoding is greedy."""
    found = LogitsProcessorList()
    if s.temperature == 0.0:
        return found
    found.append(TemperatureLogitsWarper(float(s.temperature)))
    if s.top_k:
        found.append(TopKLogitsWarper(s.top_k))
    if s.top_p < 1.0:
        found.append(TopPLogitsWarper(s.top_p))
    if s.min_p > 0.0:
        found.append(MinPLogitsWarper(s.min_p))
    return found

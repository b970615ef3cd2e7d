"""The independent referee: the stock transformers forward over prompt and output.

A plain causal mask, no cache, none of our engine and none of our sampler, in the arms' own
dtype. One prefill per output scores every position.

In 16 bits a rare position hangs on the shape of the forward, far beyond the noise bound of the
others. So a decision that looks wrong there gets a second look before it counts: out of other
forwards that are just as honest. It is wrong only if it is so in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache

from gate.grammar import GrammarError
from gate.models import cache_argument
from gate.records import Generation, Request, TokenScores, needs_processing, prompt_ids
from gate.referee_law import (
    N_RANKED,
    SAMPLED,
    Likely,
    Ranked,
    end_regret,
    grammar_masks,
    judge_token,
    rank_tokens,
)

if TYPE_CHECKING:
    from gate.models import LoadedModel

MANTISSA_BITS = {torch.bfloat16: 7, torch.float16: 10}
SUSPECT = 3.0
"""Regret that gets a second look, in spacings of the dtype at the best logit: the least DEFECT."""
CHANCE_IN_OUTPUT, CHANCE_IN_BATCH = (4, 0.02), (8, 0.01)
"""Suspects, at least and per token, up to which chance may be the reason. More are a fault."""
PADDING = 64
"""Tokens behind an output that its own rows never see, but whose kernels are others."""
COPIES, MOST_COPIED = 8, 8192
"""Rows of a batch of one output, and tokens that such a batch holds at most."""
REACH = 64
"""Tokens before the first suspect from which on an output is decoded again."""
PIECES = (4, 1)
"""Tokens of a cached step: as a verifier takes them, and as plain decoding does."""
Key = tuple[str, int]
"""(request id, repeat)."""
CLOSE_NAT = 0.25
"""Gap below which a choice counts as close, and the runners-up are kept."""
COUNTED = ("top", "likely")
"""Columns that are not kept position by position."""
Laws = Mapping[Key, Sequence[torch.Tensor]]
"""Per output, the raw logits row used at each emitted position: (vocab,) each."""


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Evidence on the tokens of one output, one list per field of TokenScores."""

    regret: list[float]
    gap: list[float]
    entropy: list[float]
    best_id: list[int]
    rank: list[int]
    logprob: list[float]
    processed_logprob: list[float]
    cut_distance: list[float]
    pit: list[float]
    top: list[Ranked]
    likely: list[Likely]


class Referee:
    """Scores outputs against the model's own law."""

    def __init__(self, model: LoadedModel) -> None:
        """``model``: the loaded model both arms share."""
        self._model = model
        self._n_left: dict[bool, int] = {}  # looks left in a batch, by whether tokens are drawn

    def score(
        self,
        requests: Sequence[Request],
        generations: Sequence[Generation],
        laws: Laws | None = None,
    ) -> Iterator[TokenScores]:
        """Yield the scores of every generation that has token ids.

        ``laws``: what a tap saw while decoding; where given, divergence is measured.
        """
        by_key = {(request.id, request.repeat): request for request in requests}
        n_tokens = sum(len(g.token_ids or ()) for g in generations)
        self._n_left = dict.fromkeys((True, False), most_by_chance(CHANCE_IN_BATCH, n_tokens))
        for generation in generations:
            key = (generation.request_id, generation.repeat)
            if generation.token_ids is not None and generation.finish != "error":
                with suppress(GrammarError):  # what cannot be judged stays unscored, and is counted
                    yield self._score_one(by_key[key], generation, (laws or {}).get(key, ()))

    @torch.inference_mode()
    def _score_one(
        self, request: Request, generation: Generation, laws: Sequence[torch.Tensor]
    ) -> TokenScores:
        prompt = prompt_ids(request)
        emitted = (*(generation.token_ids or ()), *generation.tail_ids)
        logits = self.logits(prompt, emitted)
        masks = grammar_masks(request, self._model.tokenizer, emitted, logits.shape[-1])
        if needs_processing(request):
            columns = self._judge_each(logits, request, prompt, emitted, masks)
        else:
            columns = judge_greedy(logits[: len(emitted)], emitted)
        self._look_again(columns, logits, request, emitted, masks)
        kl, tv, js, same_top = measure_divergence(laws, logits)
        return TokenScores(
            request_id=generation.request_id,
            repeat=generation.repeat,
            token_ids=emitted,
            eos_regret=self._end_regret(logits, request, generation, prompt, emitted, masks[-1]),
            kl=kl,
            tv=tv,
            js=js,
            same_top=same_top,
            top=keep_doubtful(columns),
            draws=count_draws(columns.likely, emitted),
            **{name: tuple(v) for name, v in vars(columns).items() if name not in COUNTED},
        )

    def logits(self, prompt: Sequence[int], emitted: Sequence[int]) -> torch.Tensor:
        """(n_emitted + 1, vocab) logits: row j decides emitted token j, the last what follows."""
        ids = torch.tensor([[*prompt, *emitted]], device=self._model.device)
        output = self._model.model(input_ids=ids, use_cache=False, logits_to_keep=len(emitted) + 1)
        logits: torch.Tensor = output.logits[0]
        return logits

    def _look_again(
        self,
        columns: _Columns,
        logits: torch.Tensor,
        request: Request,
        emitted: Sequence[int],
        masks: Sequence[torch.Tensor | None],
    ) -> None:
        """Lower the regret of suspects to the least that any honest forward gives them."""
        prompt, is_drawn = prompt_ids(request), request.sampling.temperature > 0
        suspects = find_suspects(columns.regret, logits)
        most = most_by_chance(CHANCE_IN_OUTPUT, len(emitted))
        if not 0 < len(suspects) <= min(most, self._n_left[is_drawn]):
            return
        self._n_left[is_drawn] -= len(suspects)
        start = max(0, suspects[0] - REACH)
        for rows in self._look(prompt, emitted[: suspects[-1] + 1], start):
            for j in suspects:
                history = (*prompt, *emitted[:j])
                again = judge_token(rows[j], request, len(prompt), history, emitted[j], masks[j])
                columns.regret[j] = min(columns.regret[j], again.regret)
            suspects = [j for j in suspects if j in find_suspects(columns.regret, logits)]
            if not suspects:
                return

    def _look(
        self, prompt: Sequence[int], emitted: Sequence[int], start: int
    ) -> Iterator[torch.Tensor]:
        """Yield the logits of :meth:`logits` out of other stock forwards, the cheapest first."""
        n, length = len(emitted) + 1, len(prompt) + len(emitted)
        room = max(0, min(PADDING, self._model.context - length))
        yield self.logits(prompt, (*emitted, *[emitted[-1]] * room))[:n]
        copies = max(1, min(COPIES, MOST_COPIED // length))
        ids = torch.tensor([[*prompt, *emitted]] * copies, device=self._model.device)
        yield self._model.model(input_ids=ids, use_cache=False, logits_to_keep=n).logits[0]
        for size in PIECES:
            yield self._decode(prompt, emitted, size, start)

    def _decode(
        self, prompt: Sequence[int], emitted: Sequence[int], size: int, start: int
    ) -> torch.Tensor:
        """(n_emitted + 1, vocab) logits of stock decoding, ``size`` tokens a step from start on."""
        model = self._model.model
        cache: dict[str, Any] = {cache_argument(model): DynamicCache(config=model.config)}
        pieces = [emitted[at : at + size] for at in range(start, len(emitted), size)]
        rows = []
        for n, piece in enumerate(((*prompt, *emitted[:start]), *pieces)):
            ids = torch.tensor([list(piece)], device=self._model.device)
            kept = {"logits_to_keep": start + 1} if n == 0 else {}
            rows.append(model(input_ids=ids, use_cache=True, **kept, **cache).logits[0])
        return torch.cat(rows)

    def _judge_each(
        self,
        logits: torch.Tensor,
        request: Request,
        prompt: Sequence[int],
        emitted: Sequence[int],
        masks: Sequence[torch.Tensor | None],
    ) -> _Columns:
        found = [
            judge_token(logits[j], request, len(prompt), (*prompt, *emitted[:j]), token, masks[j])
            for j, token in enumerate(emitted)
        ]
        columns = {name: [getattr(one, name) for one in found] for name in _Columns.__annotations__}
        if request.sampling.temperature == 0.0:
            columns |= {name: [] for name in SAMPLED}
        return _Columns(**columns)

    def _end_regret(
        self,
        logits: torch.Tensor,
        request: Request,
        generation: Generation,
        prompt: Sequence[int],
        emitted: Sequence[int],
        mask: torch.Tensor | None,
    ) -> float | None:
        if generation.finish == "stop" or emitted[-1] in request.eos_ids:
            return None
        return end_regret(logits[-1], request, len(prompt), (*prompt, *emitted), mask)


def most_by_chance(limits: tuple[int, float], n_tokens: int) -> int:
    """Return how many suspects among so many tokens chance may be the reason for."""
    least, share = limits
    return max(least, int(share * n_tokens))


def find_suspects(regret: Sequence[float], logits: torch.Tensor) -> list[int]:
    """Return the positions whose regret could be a DEFECT of this dtype; none in float32."""
    bits = MANTISSA_BITS.get(logits.dtype)
    if bits is None or max(regret, default=0.0) <= 0.0:
        return []
    best = logits[: len(regret)].float().amax(-1).abs().clamp(min=1e-6)
    least = SUSPECT * 2.0 ** (best.log2().floor() - bits)
    return [j for j, (r, edge) in enumerate(zip(regret, least.tolist(), strict=True)) if r > edge]


def judge_greedy(logits: torch.Tensor, emitted: Sequence[int]) -> _Columns:
    """Evidence on greedy tokens without processors. logits: (n, vocab)."""
    z = logits.float()
    own_ids = torch.tensor(list(emitted), device=z.device)
    own = z.gather(1, own_ids[:, None])
    top = z.topk(min(N_RANKED, z.shape[-1]), dim=-1)
    behind = top.values[:, :1] - top.values
    logp = z.log_softmax(-1)
    own_logp = logp.gather(1, own_ids[:, None])[:, 0].tolist()
    return _Columns(
        regret=(top.values[:, :1] - own)[:, 0].tolist(),
        gap=behind[:, min(1, behind.shape[1] - 1)].tolist(),
        entropy=(-(logp.exp() * logp).sum(-1)).tolist(),
        best_id=top.indices[:, 0].tolist(),
        rank=(z > own).sum(-1).tolist(),
        logprob=own_logp,
        processed_logprob=own_logp,
        cut_distance=[],
        pit=[],
        top=[
            rank_tokens(ids, nats)
            for ids, nats in zip(top.indices.tolist(), behind.tolist(), strict=True)
        ],
        likely=[],
    )


def keep_doubtful(columns: _Columns) -> dict[int, Ranked]:
    """Return the likeliest tokens where the emitted one is not the best, or the choice is close."""
    return {
        position: ranked
        for position, ranked in enumerate(columns.top)
        if columns.regret[position] > 0 or columns.gap[position] <= CLOSE_NAT
    }


def count_draws(likely: Sequence[Likely], emitted: Sequence[int]) -> dict[int, tuple[float, int]]:
    """Return how often each likely token was expected, and how often drawn where it was likely."""
    found: dict[int, tuple[float, int]] = {}
    for tokens, own in zip(likely, emitted, strict=False):  # greedy outputs have none
        for token, p in tokens:
            expected, n_drawn = found.get(token, (0.0, 0))
            found[token] = expected + p, n_drawn + (token == own)
    return found


Divergence = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], tuple[bool, ...]]


def measure_divergence(laws: Sequence[torch.Tensor], logits: torch.Tensor) -> Divergence:
    """KL(used || referee), total variation and Jensen-Shannon per position, nats; same top token.

    laws: the rows used, in order; logits: (n, vocab), the referee's. Empty without a tap.
    """
    if not laws:
        return (), (), (), ()
    used = (
        torch.stack([law.to(logits.device) for law in laws[: len(logits)]]).double().log_softmax(-1)
    )
    referee = logits[: len(used)].double().log_softmax(-1)
    middle = torch.logaddexp(used, referee) - torch.log(torch.tensor(2.0, dtype=torch.float64))
    js = (_kl(used, middle) + _kl(referee, middle)) / 2
    tv = (used.exp() - referee.exp()).abs().sum(-1) / 2
    same = used.argmax(-1) == referee.argmax(-1)
    return (
        tuple(_kl(used, referee).clamp(min=0).tolist()),
        tuple(tv.tolist()),
        tuple(js.clamp(min=0).tolist()),
        tuple(same.tolist()),
    )


def _kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """KL(p || q) of log-probabilities (n, vocab) -> (n,), nats; a token without mass adds 0."""
    terms = p.exp() * (p - q)
    return terms.masked_fill(p.exp() == 0, 0.0).sum(-1)

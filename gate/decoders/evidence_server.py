"""Scoring both arms' tokens with the prompt scoring of the baseline's server.

Never the candidate's own. It is not independent: a fault that both servers share stays hidden, and
the baseline is judged by itself. The server begins a new life first, so that nothing scored here
was in its memory, or reaches what is measured. Greedy requests without penalties, biases and masks
alone: what a server returns is the law before any of them.

Shapes as vLLM returns them: ``prompt_logprobs`` holds one table per token of the prompt, token id
-> log-probability and rank, the prompt's own token among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gate.decoders.endpoint_body import COMPLETIONS
from gate.records import Generation, Request, TokenScores, needs_processing

N_TOP = 2  # the best token and the next: regret and gap
ROUNDING = 1e-3  # nats by which a rounded log-probability may lie above 0
FARTHEST = 1e4  # regret of a token without a finite log-probability


class ServerEvidence:
    """The baseline's server as scorer."""

    eos_ids: tuple[int, ...] = ()  # a server does not name them
    name = "the prompt scoring of the baseline's own server, which is not independent of it"

    def __init__(self, server: Any) -> None:
        """``server``: the baseline's endpoint decoder."""
        self._server = server
        self.unscored: dict[str, int] = {}

    def describe(self) -> dict[str, object]:
        """Provenance of the scorer."""
        return {"kind": "prompt scoring of the baseline's server", "is_independent": False}

    def score(
        self, requests: Sequence[Request], generations: Sequence[Generation]
    ) -> Iterator[TokenScores]:
        """Yield the scores of the outputs that can be scored; the others are counted."""
        for request, generation in zip(requests, generations, strict=True):
            if generation.finish == "error" or needs_processing(request):
                continue
            try:
                yield self._score_one(request, generation)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                reason = str(error) if isinstance(error, ValueError) else "an answer of no sense"
                self.unscored[reason] = self.unscored.get(reason, 0) + 1

    def _score_one(self, request: Request, generation: Generation) -> TokenScores:
        """Return the scores of an output. Raises ValueError with the reason where it has none."""
        ids = (*(generation.token_ids or ()), *generation.tail_ids)
        if not ids:
            msg = "the server returns no token ids"
            raise ValueError(msg)
        prompt = self._tokenise(request)
        if generation.usage is None or generation.usage.n_prompt != len(prompt):
            msg = "the prompt has another number of tokens when it is scored"
            raise ValueError(msg)
        body = {
            "prompt": [*prompt, *ids],
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": N_TOP,
        }
        choice = self._ask(COMPLETIONS, body)["choices"][0]
        tables = choice["prompt_logprobs"][len(prompt) :]
        if len(tables) != len(ids):
            msg = "the server scores another number of tokens than it was sent"
            raise ValueError(msg)
        return make_scores(request, ids, [read_table(table) for table in tables])

    def _tokenise(self, request: Request) -> list[int]:
        asked: Any = request.prompt
        if isinstance(asked, str):
            body: dict[str, object] = {"prompt": asked}
        elif isinstance(asked[0], dict):
            body = {"messages": list(asked), "add_generation_prompt": True}
        else:
            return [int(token) for token in asked]
        tokens = self._ask(self._server.profile.tokenize_path, body)["tokens"]
        return [int(token) for token in tokens]

    def _ask(self, path: str, body: Mapping[str, object]) -> Any:
        outcome = self._server.ask(path, {"model": self._server.identity.model, **body})
        if outcome.value is None:
            msg = f"the server refuses to score ({outcome.error})"
            raise ValueError(msg)
        return outcome.value


def read_table(table: Mapping[str, Any]) -> dict[int, float]:
    """Return token id -> log-probability, nats. Raises ValueError for what is none."""
    found = {int(token): float(entry["logprob"]) for token, entry in table.items()}
    if any(math.isnan(value) or value > ROUNDING for value in found.values()):
        msg = "the server gives log-probabilities that are none"
        raise ValueError(msg)
    return found


def make_scores(
    request: Request, ids: Sequence[int], tables: Sequence[Mapping[int, float]]
) -> TokenScores:
    """Return scores from one table per token. Raises ValueError where a token is not in its own."""
    if any(token not in table for token, table in zip(ids, tables, strict=True)):
        msg = "the server leaves out a token that it was to score"
        raise ValueError(msg)
    best = [max(table, key=lambda token: table[token]) for table in tables]
    ranked = [sorted(table.values(), reverse=True) for table in tables]
    own = [max(table[token], -FARTHEST) for token, table in zip(ids, tables, strict=True)]
    return TokenScores(
        request_id=request.id,
        repeat=request.repeat,
        token_ids=tuple(ids),
        regret=tuple(max(0.0, row[0] - value) for row, value in zip(ranked, own, strict=True)),
        gap=tuple(row[0] - row[1] if len(row) > 1 else 0.0 for row in ranked),
        entropy=(),
        best_id=tuple(best),
        rank=tuple(
            sum(value > mine for value in row) for row, mine in zip(ranked, own, strict=True)
        ),
        logprob=tuple(own),
        processed_logprob=tuple(own),
    )

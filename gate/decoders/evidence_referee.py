"""Scoring a server's tokens with a model that the user names: the referee, beside the servers.

The weights are not those in the server's memory: it may have quantised them, or round otherwise.
So the noise bound comes from the baseline arm under the same referee: its regrets, and how far its
reported log-probabilities are from the referee's. The report says how wide that makes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gate.config import ModelConfig
from gate.errors import UsageError
from gate.models import LoadedModel, load_model, resolve_model
from gate.records import Generation, Request, TokenScores
from gate.referee import Referee


class RefereeEvidence:
    """A local model as referee of outputs that came with token ids."""

    def __init__(self, config: ModelConfig, folder: Path) -> None:
        """Load the model. Raises UsageError where it is not there."""
        self._resolved = resolve_model(config, folder)
        self._model: LoadedModel = load_model(self._resolved, config.dtype, config.device)
        self._referee = Referee(self._model)
        self.eos_ids = self._model.eos_ids
        self.unscored: dict[str, int] = {}
        self.name = (
            f"the local model {config.id} ({config.dtype}), which neither server has a hand in"
        )

    def describe(self) -> dict[str, object]:
        """Provenance of the referee."""
        return {
            "kind": "local model",
            "id": self._resolved.name,
            "weights_sha256": self._resolved.weights_sha256,
            "tokenizer_sha256": self._resolved.tokenizer_sha256,
            "dtype": str(self._model.dtype).removeprefix("torch."),
        }

    def score(
        self, requests: Sequence[Request], generations: Sequence[Generation]
    ) -> Iterator[TokenScores]:
        """Yield the scores of the outputs whose tokens are known; the others are counted."""
        for request, generation in zip(requests, generations, strict=True):
            if generation.finish == "error":
                continue
            try:
                own = self._tokenise(request)
            except (TypeError, ValueError, KeyError) as error:
                self._leave_out(f"the referee's tokenizer refuses the prompt ({error})")
                continue
            fault = self._find_fault(own, generation)
            if fault:
                self._leave_out(fault)
                continue
            yield from self._referee.score([own], [generation])

    def _leave_out(self, reason: str) -> None:
        self.unscored[reason] = self.unscored.get(reason, 0) + 1

    def _find_fault(self, request: Request, generation: Generation) -> str:
        """Return why an output cannot be scored; empty: it can."""
        ids, usage = generation.token_ids, generation.usage
        if not ids:
            return "the server returns no token ids"
        if not all(0 <= i < self._model.vocab_size for i in (*ids, *generation.tail_ids)):
            return "a token id lies outside the referee's vocabulary"
        if len(request.prompt) + len(ids) > self._model.context:
            return "the output is longer than the referee's context"
        if usage is None or usage.n_prompt != len(request.prompt):
            return "the server's prompt has another number of tokens than the referee's"
        return ""

    def _tokenise(self, request: Request) -> Request:
        """Return the request in the referee's tokens, as the model's own template writes it."""
        tokenizer: Any = self._model.tokenizer
        prompt: Any = request.prompt
        if isinstance(prompt, str):
            ids = tokenizer(prompt)["input_ids"]
        elif isinstance(prompt[0], dict):
            found = tokenizer.apply_chat_template(
                list(prompt), add_generation_prompt=True, return_dict=True
            )
            ids = found["input_ids"]
        else:
            ids = prompt
        eos_ids = tuple(dict.fromkeys((*request.eos_ids, *self._model.eos_ids)))
        return msgspec.structs.replace(request, prompt=tuple(map(int, ids)), eos_ids=eos_ids)


def check_referee(config: ModelConfig, folder: Path) -> str:
    """Return the hash of a referee's weights. Raises UsageError naming the key."""
    try:
        return resolve_model(config, folder).weights_sha256
    except UsageError as error:
        msg = f"[referee] {error}"
        raise UsageError(msg) from error

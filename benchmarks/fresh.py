"""The fresh prompts as requests, and what decoders did with them, for benchmarks.lookahead."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.decoders import MODEL, Row, decode, make_requests, steps_of
from benchmarks.fresh_prompts import FRESH
from gate.config import ModelConfig
from gate.models import LoadedModel, load_model, resolve_model
from gate.records import Generation, Request, prompt_ids

Ids = dict[str, tuple[int, ...]]
BATCH = 10


class Bench:
    """The model, the requests, and the plain outputs found so far, kept in a file."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        resolved = resolve_model(ModelConfig(id=MODEL), Path.cwd(), print)
        self.model: LoadedModel = load_model(resolved)
        self.requests = make_fresh(self.model, arguments.per_kind, arguments.max_tokens)
        self.notes: dict[str, dict[str, object]] = {}
        """What a part says of itself, by key of the file."""
        self._plain_file: Path | None = arguments.plain

    def plain(self, requests: Sequence[Request], label: str) -> Ids:
        """Plain decoding's outputs. label: what tells these requests from others."""
        file = self._plain_file
        known = json.loads(file.read_text()) if file and file.exists() else {}
        key = f"{label}/{self.arguments.max_tokens}"
        found = known.setdefault(key, {})
        missing = [r for r in requests if r.id not in found]
        new = decode(self.model, {"kind": "autoregressive"}, missing, BATCH)
        found |= {i: list(g.token_ids or ()) for i, g in new.items()}
        if file:
            file.write_text(json.dumps(known))
        return {r.id: tuple(found[r.id]) for r in requests}


def make_fresh(model: LoadedModel, per_kind: int, max_tokens: int) -> list[Request]:
    """Return ``per_kind`` fresh chat prompts of every kind."""
    return make_requests(model, per_kind, max_tokens, FRESH, "fresh-")


@torch.inference_mode()
def find_greedy(
    model: LoadedModel, requests: Sequence[Request], found: Mapping[str, Generation]
) -> tuple[Ids, dict[str, float]]:
    """Return the best tokens behind each output's own prefixes, and the worst regret of its tokens.

    An output all of whose tokens are the best behind their prefixes is the greedy one, by
    induction. One stock forward per output, without cache or guesses.
    """
    best: Ids = {}
    regrets: dict[str, float] = {}
    for request in requests:
        ids = list(found[request.id].token_ids or ())
        prompt = prompt_ids(request)
        whole = torch.tensor([[*prompt, *ids[:-1]]], device=model.device)
        logits = model.model(whole, use_cache=False).logits[0, len(prompt) - 1 :].float()
        best[request.id] = tuple(logits.argmax(-1).tolist())
        chosen = logits.gather(1, torch.tensor(ids, device=model.device)[:, None])[:, 0]
        regrets[request.id] = round(float((logits.amax(-1) - chosen).max()), 6)
    return best, regrets


def summarise(
    requests: Sequence[Request],
    found: Mapping[str, Generation],
    plain: Ids,
    regrets: Mapping[str, float] | None = None,
) -> Iterator[Row]:
    """Yield tokens and rows per forward by kind and pooled, and where outputs differ from plain."""
    for kind in (*FRESH, "all"):
        ids = [r.id for r in requests if kind in (r.task, "all")]
        steps = [step for i in ids for step in steps_of(found[i])]
        decoding = [step for i in ids for step in steps_of(found[i])[1:]]
        n_tokens = sum(len(found[i].token_ids or ()) for i in ids)
        yield {
            "kind": kind,
            "tokens_per_forward": round(n_tokens / max(1, len(steps)), 3),
            "rows_mean": round(sum(s.n_rows for s in decoding) / max(1, len(decoding)), 1),
            "rows_most": max((s.n_rows for s in decoding), default=1),
            "n_prompts": len(ids),
            "n_tokens": n_tokens,
            "n_different": sum((found[i].token_ids or ()) != plain[i] for i in ids),
            **({"regret_nat": max(regrets[i] for i in ids)} if regrets else {}),
        }

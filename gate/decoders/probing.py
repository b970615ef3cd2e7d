"""Offering the referee's second choices as drafts, where both are within the noise band.

A request is cut just before such a position and served again: its prefill gives the token
before, and the first step then verifies the second choice: the best token but the one that the
baseline took. Exact ties, common where logits are rounded to 16 bits, are left out: what breaks
them is a rule, not noise, so that a lossless verifier may take all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import torch

from gate.records import (
    BandProbe,
    Generation,
    NoiseBound,
    Request,
    TokenScores,
    needs_processing,
)
from gate.referee import Referee

BAND = 3.0
"""The band probed, in noise bounds."""
MOST = 64
"""Most positions that are probed."""
TOKENS = 3  # of a probe: the one before, the one verified, one more


class _Place(NamedTuple):
    gap: float
    request: Request
    emitted: tuple[int, ...]
    position: int


def probe_band(
    referee: Referee,
    decoder: Any,
    outputs: Iterable[tuple[Request, TokenScores]],
    bound: NoiseBound,
    batch: int,
) -> BandProbe | None:
    """Return what the decoder did with second choices; None where it takes no drafts.

    outputs: greedy ones are used. A probe whose first token differs is left out.
    """
    if not hasattr(decoder, "drafts"):
        return None
    band = BAND * bound.bound
    places = sorted(_find_places(outputs, band), key=lambda place: place.gap)
    chosen = places[:MOST]
    offers = {f"probe/{n}": _offer(referee, place) for n, place in enumerate(chosen)}
    requests = [_cut(f"probe/{n}", place) for n, place in enumerate(chosen)]
    before = (place.emitted[place.position - 1] for place in chosen)
    known = dict(zip(offers, before, strict=True))
    taken = _serve(decoder, requests, offers, known, batch)
    accepted = tuple(taken[name] for name in offers if name in taken)
    return BandProbe(band_nat=band, n_in_band=len(places), accepted=accepted)


def _find_places(outputs: Iterable[tuple[Request, TokenScores]], band: float) -> Iterator[_Place]:
    for request, scores in outputs:
        if needs_processing(request):
            continue
        for position in range(1, len(scores.gap)):
            if 0.0 < scores.gap[position] <= band:
                yield _Place(scores.gap[position], request, scores.token_ids, position)


@torch.inference_mode()
def _offer(referee: Referee, place: _Place) -> int:
    prompt: Any = place.request.prompt
    row = referee.logits(prompt, place.emitted[: place.position])[-1].float()
    row[place.emitted[place.position]] = -torch.inf
    return int(row.argmax())


def _cut(name: str, place: _Place) -> Request:
    prompt: Any = place.request.prompt
    return msgspec.structs.replace(
        place.request,
        id=name,
        prompt=(*prompt, *place.emitted[: place.position - 1]),
        max_tokens=TOKENS,
        min_tokens=0,
        stop=(),
        stream=False,
        n_logprobs=None,
    )


def _serve(
    decoder: Any,
    requests: Sequence[Request],
    offers: Mapping[str, int],
    known: Mapping[str, int],
    batch: int,
) -> dict[str, bool]:
    def drafts(request: Request, output: tuple[int, ...]) -> list[list[int]]:
        return [[offers[request.id]]] if len(output) == 1 else []

    before, decoder.drafts = decoder.drafts, drafts
    try:
        generations: list[Generation] = [
            one
            for at in range(0, len(requests), batch)
            for one in decoder.generate(requests[at : at + batch])
        ]
    finally:
        decoder.drafts = before
    found = {}
    for one in generations:
        ids = one.token_ids or ()
        if len(ids) > 1 and ids[0] == known[one.request_id]:
            found[one.request_id] = ids[1] == offers[one.request_id]
    return found

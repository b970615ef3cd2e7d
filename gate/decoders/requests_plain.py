"""Conformance requests for servers: prompts as text, and only options that a server can be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from gate.conformance import TASK, EncodePlain, Row
from gate.records import Request, Sampling

Takes = Callable[[Request], Sequence[str]]
"""Options of a request that a server cannot be sent, by name; empty: it can be sent."""
TOKENS_NAMED = "an option that names token ids"


def plan_plain_conformance(
    rows: Sequence[Row], seed: int, takers: Sequence[Takes], encode: EncodePlain | None
) -> tuple[list[Request], dict[str, int]]:
    """Return the requests that every taker can be sent, and which options kept how many back.

    encode: text to token ids, for rows that name tokens; None: nobody can say.
    """
    requests: list[Request] = []
    unsent: dict[str, int] = {}
    for row in rows:
        if encode is None and (row.extra_eos or row.bad_words or row.logit_bias):
            names = [TOKENS_NAMED]
        else:
            made = list(_make_requests(row, seed, encode))
            names = list(dict.fromkeys(name for take in takers for name in take(made[0])))
            requests += [] if names else made
        for name in names:
            unsent[name] = unsent.get(name, 0) + 1
    return requests, unsent


def _make_sampling(row: Row, seed: int, encode: EncodePlain | None) -> Sampling:
    known = msgspec.structs.asdict(row.sampling)
    own = known.pop("seed")
    chosen = None if own is None else seed + own
    if encode is None:
        return Sampling(**known, seed=chosen)
    return Sampling(
        **known,
        seed=chosen,
        bad_words=tuple(tuple(encode(word)) for word in row.bad_words),
        logit_bias={encode(text)[-1]: bias for text, bias in row.logit_bias.items()},
    )


def _make_requests(row: Row, seed: int, encode: EncodePlain | None) -> Iterator[Request]:
    eos_ids = tuple(encode(text)[-1] for text in row.extra_eos) if encode else ()
    for repeat in range(row.n_repeats):
        yield Request(
            id=f"{TASK}/{row.id}",
            task=TASK,
            request_class=TASK,
            prompt=row.messages or row.prompt * row.repeat_text,
            max_tokens=row.max_tokens,
            min_tokens=row.min_tokens,
            stop=row.stop,
            eos_ids=eos_ids,
            sampling=_make_sampling(row, seed, encode),
            n_logprobs=row.n_logprobs,
            logprobs_kind=row.logprobs_kind,
            stream=row.stream,
            response_format=row.response_format,
            repeat=repeat,
        )

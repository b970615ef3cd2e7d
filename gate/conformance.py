"""The conformance set: about 60 requests that exercise what chat prompts do not.

``builtin:conformance`` (gate/evalsets/conformance/requests.jsonl) holds texts only, so that it
means the same under every tokenizer; :func:`plan_conformance` turns it into requests. Where a
row names a token by its text, the last token of that text is meant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from gate.errors import UsageError
from gate.records import Record, Request, Sampling

FILE = Path(__file__).parent / "evalsets" / "conformance" / "requests.jsonl"
TASK = "conformance"
"""Task, request class and first part of the id of every conformance request."""

Messages = tuple[dict[str, str], ...]
Encode = Callable[[str | Messages], Sequence[int]]
"""Raw text, or messages through the chat template, to the token ids of a prompt."""
EncodePlain = Callable[[str], Sequence[int]]
"""Text to token ids, no special tokens added."""


class RowSampling(Record, frozen=True, kw_only=True):
    """The parameters of records.Sampling that name no token."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None


class Row(Record, frozen=True, kw_only=True):
    """One line of the set; fields as in records.Request, tokens named by their text.

    prompt: raw text, sent ``repeat_text`` times over; or messages for the chat template.
    extra_eos: tokens that end the output beside the model's own. n_repeats: the request is
    sent so many times, as repeats 0, 1, ... what: one sentence, what the row checks.
    """

    id: str
    what: str
    prompt: str = ""
    messages: Messages = ()
    repeat_text: int = 1
    max_tokens: int
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    extra_eos: tuple[str, ...] = ()
    sampling: RowSampling = RowSampling()
    bad_words: tuple[str, ...] = ()
    logit_bias: dict[str, float] = {}
    n_logprobs: int | None = None
    logprobs_kind: Literal["raw", "processed"] = "raw"
    stream: bool = False
    response_format: dict[str, object] | None = None
    n_repeats: int = 1

    def __post_init__(self) -> None:
        """A row has one kind of prompt."""
        if bool(self.prompt) == bool(self.messages):
            msg = "a row has either a prompt or messages"
            raise ValueError(msg)


def load_conformance(path: Path = FILE) -> tuple[Row, ...]:
    """Read the set. Raises UsageError naming the line."""
    rows = [_read_row(path, n, line) for n, line in enumerate(_read_lines(path), start=1)]
    names = [row.id for row in rows]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not rows:
        msg = f"{path}: {f'the id {twice[0]!r} is used twice' if twice else 'holds no request'}"
        raise UsageError(msg)
    return tuple(rows)


def _read_lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}); reinstall decoding-gate"
        raise UsageError(msg) from error


def _read_row(path: Path, n: int, line: bytes) -> Row:
    try:
        return msgspec.json.decode(line, type=Row)
    except msgspec.MsgspecError as error:
        msg = f"{path}:{n}: {error}; correct the line"
        raise UsageError(msg) from error


def hash_conformance(path: Path = FILE) -> str:
    """Return the sha256 of the set."""
    return hashlib.sha256(b"\n".join(_read_lines(path))).hexdigest()


def plan_conformance(
    rows: Sequence[Row],
    encode: Encode,
    encode_plain: EncodePlain,
    eos_ids: Sequence[int],
    seed: int,
) -> list[Request]:
    """Return the requests, in the order of the rows, with token-id prompts.

    ``seed``, the run's, shifts the seeds of the rows that bring one; the others send none.
    """
    return [
        _make_request(row, repeat, encode, encode_plain, eos_ids, seed)
        for row in rows
        for repeat in range(row.n_repeats)
    ]


def _make_request(
    row: Row,
    repeat: int,
    encode: Encode,
    encode_plain: EncodePlain,
    eos_ids: Sequence[int],
    seed: int,
) -> Request:
    prompt = row.messages or row.prompt * row.repeat_text
    extra = (encode_plain(text)[-1] for text in row.extra_eos)
    return Request(
        id=f"{TASK}/{row.id}",
        task=TASK,
        request_class=TASK,
        prompt=tuple(int(i) for i in encode(prompt)),
        max_tokens=row.max_tokens,
        min_tokens=row.min_tokens,
        stop=row.stop,
        eos_ids=tuple(dict.fromkeys(int(i) for i in (*eos_ids, *extra))),
        sampling=_make_sampling(row, encode_plain, seed),
        n_logprobs=row.n_logprobs,
        logprobs_kind=row.logprobs_kind,
        stream=row.stream,
        response_format=row.response_format,
        repeat=repeat,
    )


def _make_sampling(row: Row, encode_plain: EncodePlain, seed: int) -> Sampling:
    known = msgspec.structs.asdict(row.sampling)
    own = known.pop("seed")
    return Sampling(
        **known,
        seed=None if own is None else seed + own,
        bad_words=tuple(tuple(int(i) for i in encode_plain(word)) for word in row.bad_words),
        logit_bias={int(encode_plain(text)[-1]): bias for text, bias in row.logit_bias.items()},
    )

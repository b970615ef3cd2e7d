"""lm-eval's own sample files (``samples_TASK_DATE.jsonl``, written with --log_samples) as outputs.

A sample belongs to a document of the evalset where task and document id are the same. The hashes it
carries must be those of its own fields, and its document, prompt and generation parameters those of
the evalset: lm-eval hashes with sha256 (lm_eval/evaluator.py). Only texts are stored there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gate.errors import RunError
from gate.evalset import Evalset
from gate.records import Generation, Request

NAME = re.compile(r"samples_(?P<task>.+)_\d{4}-\d{2}-\d{2}T[\d.-]+\.jsonl")
MOST_BYTES = 1024**3
PARAMETERS = ("max_gen_toks", "until", "temperature", "do_sample", "top_k", "top_p", "min_p")


class Sample(msgspec.Struct, kw_only=True):
    """What is read of a line; other keys are left alone."""

    doc_id: int
    doc: dict[str, Any]
    arguments: Any
    resps: list[Any]
    doc_hash: str = ""
    prompt_hash: str = ""


class SampleFiles:
    """The samples of one model, by request id."""

    def __init__(self, files: Sequence[Path], evalset: Evalset) -> None:
        """Read and check them. Raises RunError naming file, line and field."""
        self._evalset = evalset
        self._texts: dict[str, tuple[str, ...]] = {}
        self._prompts: dict[str, str] = {}
        self._names = [path.name for path in files]
        for path in files:
            self._read(path)

    def _read(self, path: Path) -> None:
        found = NAME.fullmatch(path.name)
        task = found["task"] if found else path.stem.removeprefix("samples_")
        if task not in self._evalset.documents:
            msg = (
                f"{path.name}: task {task!r} is not of this evalset; its tasks are "
                f"{', '.join(self._evalset.documents)}"
            )
            raise RunError(msg)
        rows = {str(row["id"]): row for row in self._evalset.documents[task]}
        for n, line in enumerate(_read_lines(path), start=1):
            try:
                sample = msgspec.json.decode(line, type=Sample)
                self._add(task, sample, rows)
            except (msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError) as error:
                msg = f"{path.name}:{n}: {error}; replay files that lm-eval wrote for this evalset"
                raise RunError(msg) from error

    def _add(self, task: str, sample: Sample, rows: Mapping[str, Mapping[str, Any]]) -> None:
        name = str(sample.doc.get("id"))
        where = f"of task {task!r}, document {name!r}"
        if name not in rows:
            msg = f"doc.id {where} is not in the evalset"
            raise ValueError(msg)
        for field, value in rows[name].items():
            if sample.doc.get(field) != value:
                msg = f"doc.{field} {where} is another than the evalset's"
                raise ValueError(msg)
        prompt, parameters = read_arguments(sample.arguments)
        for field, text, stored in (
            ("doc_hash", json.dumps(sample.doc, indent=2, ensure_ascii=False), sample.doc_hash),
            ("prompt_hash", prompt, sample.prompt_hash),
        ):
            if stored and stored != hashlib.sha256(text.encode("utf-8")).hexdigest():
                msg = f"{field} {where} is not the hash of what the line holds"
                raise ValueError(msg)
        self._check_parameters(task, where, parameters)
        request_id = f"{task}/{name}"
        texts = tuple(str(text) for text in _flatten(sample.resps))
        if self._texts.setdefault(request_id, texts) != texts:  # one line per filter
            msg = f"resps {where} differ between two lines"
            raise ValueError(msg)
        self._prompts[request_id] = prompt

    def _check_parameters(self, task: str, where: str, parameters: Mapping[str, Any]) -> None:
        own = msgspec.to_builtins(self._evalset.tasks[task].generation_kwargs)
        for field in PARAMETERS:
            is_told = parameters.get(field) is not None and own.get(field) is not None
            if is_told and not _same(parameters[field], own[field]):
                msg = f"{field} {where} was {parameters[field]!r} and is {own[field]!r} here"
                raise ValueError(msg)

    def describe(self) -> dict[str, object]:
        """Return what is known of where the samples came from: that they are lm-eval's."""
        return {"model": "as lm-eval was told", "kind": "lm-eval samples"}

    def find(self, request: Request) -> Generation | None:
        """Return the text of a request. Raises RunError where the prompt was another."""
        texts = self._texts.get(request.id, ())
        if request.repeat >= len(texts):
            return None
        asked: Any = request.prompt
        wanted = asked if isinstance(asked, str) else asked[-1]["content"]
        if wanted not in self._prompts[request.id]:
            msg = (
                f"prompt_hash of {request.id!r} differs: the stored prompt does not hold this "
                "evalset's; replay files of the same prompts"
            )
            raise RunError(msg)
        return Generation(
            request_id=request.id,
            repeat=request.repeat,
            text=texts[request.repeat],
            finish="stop" if request.stop else "eos",  # not told; only texts are compared
        )


def read_arguments(arguments: Any) -> tuple[str, Mapping[str, Any]]:
    """Return prompt and generation parameters. Raises ValueError for any other shape."""
    first = arguments.get("gen_args_0") if isinstance(arguments, dict) else None
    if first is None and isinstance(arguments, list) and arguments:
        first = arguments[0]
    if isinstance(first, dict):
        first = [first.get("arg_0"), first.get("arg_1")]
    if not isinstance(first, list) or len(first) < len(("prompt", "parameters")):
        msg = "arguments hold no prompt with generation parameters"
        raise ValueError(msg)
    prompt, parameters = first[0], first[1]
    if isinstance(prompt, str) and isinstance(parameters, dict):
        return prompt, parameters
    msg = "arguments hold no prompt text with generation parameters"
    raise ValueError(msg)


def _same(one: Any, other: Any) -> bool:
    """Whether two parameters mean the same; a single stop string may stand alone."""
    listed = [list(v) if isinstance(v, list | tuple) else [v] for v in (one, other)]
    return listed[0] == listed[1]


def _flatten(resps: list[Any]) -> Iterator[Any]:
    for one in resps:
        if isinstance(one, list):
            yield from one
        else:
            yield one


def _read_lines(path: Path) -> Iterator[bytes]:
    try:
        if path.stat().st_size > MOST_BYTES:
            msg = f"{path.name} is larger than {MOST_BYTES // 1024**2} MiB; split it by task"
            raise RunError(msg)
        with path.open("rb") as stream:
            yield from (line for line in stream if line.strip())
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}); name a file that lm-eval wrote"
        raise RunError(msg) from error

"""The files of an evalset, read strictly: TOML, YAML without code, JSON lines.

Every refusal is a UsageError of one sentence with the file, the line or key path, and
what to do next. Each file is read once and kept, so that what is hashed is what is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

import msgspec
import yaml  # type: ignore[import-untyped]

from gate.errors import UsageError
from gate.records import Record

Files = dict[str, bytes]
"""Path inside the evalset folder -> contents, in the order they were read."""
Document = dict[str, object]
RecordType = TypeVar("RecordType", bound=msgspec.Struct)


class TimingPrompt(Record, frozen=True, kw_only=True):
    """A prompt of the held-back split, sent for timing only."""

    id: str
    request_class: str
    prompt: str
    max_tokens: int
    stop: tuple[str, ...]


class DatasetKwargs(Record, frozen=True, kw_only=True):
    """``data_files``: split -> file inside the evalset folder."""

    data_files: dict[str, str]


MOST_REPEATS = 1000


class GenerationKwargs(Record, frozen=True, kw_only=True):
    """lm-eval's generation parameters that the gate passes on; an explicit end is required."""

    until: str | tuple[str, ...]
    max_gen_toks: int
    do_sample: bool | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a budget of nothing and sampling without a temperature."""
        if self.max_gen_toks < 1:
            msg = f"max_gen_toks = {self.max_gen_toks}; it must be at least 1"
            raise ValueError(msg)
        ends = (self.until,) if isinstance(self.until, str) else self.until
        if not ends or not all(ends):
            msg = "until is empty or holds an empty string; name the text that ends an answer"
            raise ValueError(msg)
        if self.do_sample and self.temperature <= 0.0:
            msg = f"do_sample is true at temperature {self.temperature}; set one above 0"
            raise ValueError(msg)


def _check_pattern(what: str, pattern: object) -> None:
    """Refuse now what scoring would find only after everything was decoded."""
    try:
        re.compile(str(pattern))
    except re.error as error:
        msg = f"{what} {pattern!r} is no regular expression: {error}"
        raise ValueError(msg) from error


class Filter(Record, frozen=True, kw_only=True):
    """A named pipeline of lm-eval filters that ends in one answer per document."""

    name: str
    filter: tuple[dict[str, object], ...]

    def __post_init__(self) -> None:
        """Without take_first a document's score would be that of a list."""
        if not self.filter or self.filter[-1].get("function") != "take_first":
            msg = f"filter {self.name!r} must end in take_first"
            raise ValueError(msg)
        for step in self.filter:
            _check_pattern(f"regex_pattern of filter {self.name!r}", step.get("regex_pattern", ""))


class Metric(Record, frozen=True, kw_only=True):
    """exact_match is the lm-eval metric for generated text that scores a document by itself."""

    metric: Literal["exact_match"]
    aggregation: Literal["mean"] = "mean"
    higher_is_better: bool = True
    regexes_to_ignore: tuple[str, ...] = ()
    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False

    def __post_init__(self) -> None:
        """A task delta reads higher as better."""
        if not self.higher_is_better:
            msg = "higher_is_better must be true"
            raise ValueError(msg)
        for pattern in self.regexes_to_ignore:
            _check_pattern("regexes_to_ignore", pattern)


class TaskFile(Record, frozen=True, kw_only=True):
    """An lm-eval task; only keys that neither run code nor read beyond the folder."""

    task: str
    dataset_path: Literal["json"]
    dataset_kwargs: DatasetKwargs
    test_split: str
    output_type: Literal["generate_until"]
    doc_to_text: str
    doc_to_target: str
    generation_kwargs: GenerationKwargs
    metric_list: tuple[Metric, ...]
    filter_list: tuple[Filter, ...] | None = None
    num_fewshot: Literal[0] = 0
    repeats: int = 1
    description: str = ""
    target_delimiter: str = " "
    tag: str | tuple[str, ...] = ()
    metadata: dict[str, object] = {}

    def __post_init__(self) -> None:
        """Something must be scored, and the scored split needs a file."""
        checks = (
            (bool(self.metric_list), "metric_list is empty; name exact_match"),
            (self.filter_list != (), "filter_list is empty; leave it out or give a filter"),
            (
                1 <= self.repeats <= MOST_REPEATS,
                f"repeats = {self.repeats}; it must be at least 1 and at most {MOST_REPEATS}",
            ),
            (
                self.test_split in self.dataset_kwargs.data_files,
                f"data_files has no file for test_split {self.test_split!r}",
            ),
        )
        for holds, message in checks:
            if not holds:
                raise ValueError(message)


class _CodeFreeLoader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
    """YAML of plain data; any tag beyond it is refused."""


def _refuse_tag(_loader: object, suffix: str, node: yaml.Node) -> NoReturn:
    mark = node.start_mark
    msg = (
        f"{mark.name}:{mark.line + 1}: the tag on {suffix!r} would run code, and evalset text "
        "never runs code; write the value out with lm-eval's built-in filters and templates"
    )
    raise UsageError(msg)


_CodeFreeLoader.add_multi_constructor("!", _refuse_tag)
_CodeFreeLoader.add_multi_constructor("tag:yaml.org,2002:python/", _refuse_tag)


def read_bytes(folder: Path, name: str, files: Files) -> bytes:
    """Return a file of the evalset and keep it in ``files``. It may not leave the folder."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        msg = f"{folder}: the file {name!r} leaves the evalset folder; move it inside"
        raise UsageError(msg)
    try:
        files[name] = path.read_bytes()
    except OSError as error:
        msg = f"{folder / name}: cannot be read ({error.strerror}); add it or correct its name"
        raise UsageError(msg) from error
    return files[name]


def read_toml(folder: Path, files: Files, kind: type[RecordType]) -> RecordType:
    """Return evalset.toml as the record ``kind``; unknown keys are refused with their path."""
    path = folder / "evalset.toml"
    if not path.is_file():
        msg = f"{path}: no such file; an evalset folder describes itself there (see evalsets/smoke)"
        raise UsageError(msg)
    try:
        return msgspec.toml.decode(read_bytes(folder, path.name, files), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"{path}: {error}; correct it (evalsets/smoke/evalset.toml shows the keys)"
        raise UsageError(msg) from error


def read_task(folder: Path, name: str, files: Files) -> tuple[TaskFile, Document]:
    """Return a task YAML as checked record and as the plain data that lm-eval gets."""
    path = folder / name
    data = _parse_yaml(path, read_bytes(folder, name, files))
    _check_decoding(path, data)
    try:
        return msgspec.convert(data, TaskFile), data
    except msgspec.ValidationError as error:
        msg = f"{path}: {error}; correct it (evalsets/smoke has examples)"
        raise UsageError(msg) from error


def _parse_yaml(path: Path, text: bytes) -> Document:
    try:
        loader = _CodeFreeLoader(text)
        loader.name = str(path)
        data = loader.get_single_data()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        msg = f"{path}: is not valid YAML ({reason}); correct it"
        raise UsageError(msg) from error
    if not isinstance(data, dict):
        msg = f"{path}: holds no mapping; write an lm-eval task with its keys"
        raise UsageError(msg)
    return data


def _check_decoding(path: Path, data: Document) -> None:
    """Refuse what would not exercise decoding, or would end where lm-eval happens to end it."""
    kind = data.get("output_type")
    if kind != "generate_until":
        msg = (
            f"{path}: output_type {kind!r} does not exercise decoding, so its delta would be 0 "
            "whatever the decoder does; use generate_until or take the task out"
        )
        raise UsageError(msg)
    kwargs = data.get("generation_kwargs")
    if not isinstance(kwargs, dict) or kwargs.get("until") is None:
        msg = (
            f"{path}: generation_kwargs has no until, and lm-eval's default stops at the first "
            "blank line; name the stop strings"
        )
        raise UsageError(msg)


def read_documents(folder: Path, name: str, files: Files) -> tuple[Document, ...]:
    """Return the rows of a JSONL file; each has a text ``id`` of its own and a ``prompt``."""
    rows: dict[str, Document] = {}
    for place, line in _list_lines(folder, name, files):
        row = _decode_line(place, line, Document)
        for key in ("id", "prompt"):
            if not isinstance(row.get(key), str) or not row[key]:
                msg = f"{place}: the document has no text under {key!r}; add it"
                raise UsageError(msg)
        _add_once(rows, place, str(row["id"]), row)
    if not rows:
        msg = f"{folder / name}: has no documents; an empty task is no evidence, add some"
        raise UsageError(msg)
    return tuple(rows.values())


def read_timing(folder: Path, name: str, files: Files) -> tuple[TimingPrompt, ...]:
    """Return the held-back prompts for timing."""
    rows: dict[str, TimingPrompt] = {}
    for place, line in _list_lines(folder, name, files):
        row = _decode_line(place, line, TimingPrompt)
        if not row.prompt or row.max_tokens < 1:
            msg = f"{place}: a timing prompt needs text and max_tokens of at least 1; correct it"
            raise UsageError(msg)
        _add_once(rows, place, row.id, row)
    return tuple(rows.values())


def _list_lines(folder: Path, name: str, files: Files) -> Iterator[tuple[str, bytes]]:
    text = read_bytes(folder, name, files).rstrip()
    lines = text.split(b"\n") if text else []
    return ((f"{folder / name}:{number}", line) for number, line in enumerate(lines, 1))


Row = TypeVar("Row")


def _decode_line(place: str, line: bytes, kind: type[Row]) -> Row:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError as error:
        msg = f"{place}: {error}; correct the line"
        raise UsageError(msg) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        msg = f"{place}: is not JSON ({error}); write one object per line"
        raise UsageError(msg) from error


def _add_once(rows: dict[str, Row], place: str, key: str, row: Row) -> None:
    if key in rows:
        msg = f"{place}: the id {key!r} is taken by an earlier line; give each document its own"
        raise UsageError(msg)
    rows[key] = row

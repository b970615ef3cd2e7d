"""Baselines under version control: what an approved run's baseline arm gave, and its margins.

baselines/<name>/
    manifest.json      what it is of: hashes, specifications, versions, device, criteria
    generations.jsonl  one output of the baseline arm per line, in the order of their ids
    acceptance.json    forwards and tokens per request of the approved candidate

``gate approve`` is the only writer; what git does not show as a change did not change.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from gate.config import Project, resolve_inside
from gate.errors import UsageError
from gate.provenance import hash_json
from gate.records import (
    SCHEMA,
    AcceptanceReference,
    Criterion,
    DecoderSpec,
    Finish,
    Generation,
    Outcome,
    Record,
    Request,
)
from gate.store import encode, write_atomically

T = TypeVar("T")
FOLDER = "baselines"
MANIFEST, GENERATIONS, ACCEPTANCE = "manifest.json", "generations.jsonl", "acceptance.json"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
DECODING = (
    "prompt",
    "max_tokens",
    "min_tokens",
    "stop",
    "eos_ids",
    "sampling",
    "response_format",
)  # of a request: what decides its tokens, prompts as token ids
IDENTITY = ("kind", "target", "options", "noise")  # of a decoder's specification


class Manifest(Record, frozen=True, kw_only=True):
    """What a baseline is of. identity: must be the same; recorded: may differ and is shown.

    timing_s: seconds per held-back prompt of the baseline arm, comparable on ``machine`` only.
    by_class: forwards and tokens of the approved candidate. files: sha256 of the other files.
    """

    schema: int = SCHEMA
    name: str
    run_id: str
    run_created_at: str
    outcome: Outcome
    identity: dict[str, object]
    candidate: dict[str, object]
    recorded: dict[str, object]
    machine: dict[str, object]
    by_class: dict[str, tuple[int, int]]
    timing_s: dict[str, float]
    criteria: tuple[Criterion, ...]
    files: dict[str, str]


class ApprovedOutput(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One output of the approved baseline."""

    request_id: str
    repeat: int = 0
    finish: Finish
    text: str
    token_ids: tuple[int, ...]
    tail_ids: tuple[int, ...] = ()


class Approved(NamedTuple):
    """A baseline as read. outputs: by (request id, repeat)."""

    manifest: Manifest
    outputs: Mapping[tuple[str, int], ApprovedOutput]
    acceptance: AcceptanceReference


# ------------------------------------------------------------------------ files


def find_folder(project: Project, name: str) -> Path:
    """Return the folder of a baseline. Raises UsageError for a name that leads elsewhere."""
    if not NAME.fullmatch(name):
        msg = (
            f"baseline {name!r}: a name is small letters, digits, dots, dashes and underscores, "
            "64 at most; choose another"
        )
        raise UsageError(msg)
    return resolve_inside(project, "run.approved", f"{FOLDER}/{name}")


def write_baseline(
    folder: Path,
    manifest: Manifest,
    outputs: Iterable[ApprovedOutput],
    acceptance: AcceptanceReference,
) -> Manifest:
    """Write a baseline; the manifest comes last, with the hashes of the others."""
    ordered = sorted(outputs, key=lambda one: (one.request_id, one.repeat))
    lines = b"".join(encode(one) + b"\n" for one in ordered)
    texts = {GENERATIONS: lines, ACCEPTANCE: _write_acceptance(acceptance)}
    files = {name: hash_bytes(data) for name, data in texts.items()}
    whole = msgspec.structs.replace(manifest, files=files)
    for name, data in texts.items():
        write_atomically(folder / name, data)
    encoded = msgspec.json.Encoder(order="sorted").encode(whole)
    write_atomically(folder / MANIFEST, msgspec.json.format(encoded, indent=1) + b"\n")
    return whole


def _write_acceptance(reference: AcceptanceReference) -> bytes:
    """Return acceptance as JSON with a line per request: a change is a line of the diff."""
    fields = {k: v for k, v in msgspec.to_builtins(reference).items() if k != "work"}
    head = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in fields.items())
    work = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(list(counts))}"
        for key, counts in sorted(reference.work.items())
    )
    return f'{{\n{head}"work": {{\n{work}\n}}\n}}\n'.encode()


def read_baseline(folder: Path) -> Approved:
    """Read a baseline and hold its files to their hashes. Raises UsageError."""
    manifest = _decode(folder / MANIFEST, _read(folder / MANIFEST), Manifest)
    if manifest.schema != SCHEMA:
        msg = f"{folder}: schema {manifest.schema}, and this version reads {SCHEMA}; approve again"
        raise UsageError(msg)
    data = {name: _read(folder / name) for name in (GENERATIONS, ACCEPTANCE)}
    for name, found in data.items():
        if hash_bytes(found) != manifest.files.get(name):
            msg = (
                f"{folder / name}: it is not what 'gate approve' wrote; restore it from version "
                "control, or approve a run again"
            )
            raise UsageError(msg)
    lines = data[GENERATIONS].split(b"\n")[:-1]
    outputs = [_decode(folder / GENERATIONS, line, ApprovedOutput) for line in lines]
    return Approved(
        manifest=manifest,
        outputs={(one.request_id, one.repeat): one for one in outputs},
        acceptance=_decode(folder / ACCEPTANCE, data[ACCEPTANCE], AcceptanceReference),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = (
            f"{path}: cannot be read ({error.strerror}); name a baseline that 'gate approve' wrote "
            "('gate baseline show' lists them)"
        )
        raise UsageError(msg) from error


def _decode(path: Path, data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        msg = f"{path}: {error}; restore it from version control, or approve a run again"
        raise UsageError(msg) from error


def hash_bytes(data: bytes) -> str:
    """Sha256 of bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def list_names(project: Project) -> list[str]:
    """Return the names of all baselines beside gate.toml."""
    return sorted(path.parent.name for path in (project.folder / FOLDER).glob(f"*/{MANIFEST}"))


def list_unused(project: Project) -> list[str]:
    """Return the baselines that no configuration beside gate.toml names."""
    used = {project.config.run.approved}
    for path in project.folder.glob("*.toml"):
        try:
            run = msgspec.toml.decode(path.read_bytes(), type=dict[str, object]).get("run")
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        used |= {str(run.get("approved"))} if isinstance(run, dict) else set()
    return [name for name in list_names(project) if name not in used]


def remove_baseline(project: Project, name: str) -> None:
    """Remove a baseline's folder."""
    shutil.rmtree(find_folder(project, name))


# --------------------------------------------------------------------- identity


def identify_spec(spec: DecoderSpec) -> dict[str, object]:
    """Return what makes two specifications the same decoder."""
    fields = msgspec.json.decode(msgspec.json.encode(spec), type=dict[str, object])  # as stored
    return {key: fields[key] for key in IDENTITY}


def identify_machine(provenance: Mapping[str, object]) -> dict[str, object]:
    """Return what must be the same for times to be compared."""
    model = provenance.get("model")
    device = model.get("device") if isinstance(model, Mapping) else None
    return {
        "device": device,
        "processor": provenance.get("processor"),
        "threads": provenance.get("threads"),
    }


def identify_requests(requests: Sequence[Request]) -> dict[str, str]:
    """Return a hash per decoding field over all requests, in the order of their ids."""
    stored = msgspec.json.encode(requests)  # as a run's folder has them: 1 where 1.0 is meant
    read = msgspec.json.decode(stored, type=list[Request])
    ordered = sorted(read, key=lambda one: (one.id, one.repeat))
    named = [f"{one.id}#{one.repeat}" for one in ordered]
    fields: list[dict[str, object]] = [msgspec.to_builtins(one, str_keys=True) for one in ordered]
    return {
        "requests": hash_json(named),
        **{key: hash_json([one[key] for one in fields]) for key in DECODING},
    }


def check_identity(name: str, approved: Mapping[str, object], here: Mapping[str, object]) -> None:
    """Refuse a baseline that is of something else, by the field. Raises UsageError.

    Only fields that both sides know are compared: a new option at its default is no change.
    """
    found = list(_list_changes(approved, here))
    if found:
        path, then, now = found[0]
        msg = (
            f"run.approved = {name!r} does not fit: its {path} is {_show(then)}, and this run's is "
            f"{_show(now)}; run without the key, approve that run, and name it again"
        )
        raise UsageError(msg)


def find_changes(approved: Mapping[str, object], spec: DecoderSpec) -> list[str]:
    """Return in words what of an approved specification is another one today."""
    return [
        f"{path} was {_show(then)} and is {_show(now)}"
        for path, then, now in _list_changes(approved, identify_spec(spec))
    ]


def _list_changes(
    approved: Mapping[str, object], here: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, object, object]]:
    for key, then in approved.items():
        now, path = here.get(key, "not there"), f"{prefix}{key}"
        if isinstance(then, Mapping) and isinstance(now, Mapping):
            yield from _list_changes(then, now, f"{path}.")
        elif then != now and (key in here or prefix):
            yield path, then, now


def _show(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}..."  # noqa: PLR2004 - of a sentence


def to_generation(output: ApprovedOutput) -> Generation:
    """Return an approved output as a decoder would have given it."""
    return Generation(
        request_id=output.request_id,
        repeat=output.repeat,
        finish=output.finish,
        text=output.text,
        token_ids=output.token_ids,
        tail_ids=output.tail_ids,
    )

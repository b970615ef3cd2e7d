"""A run's folder: what is written when, so that a killed run loses at most its open batch.

reports/<run-id>/
    plan.json            fingerprint and batch plan; the run resumes only where it is equal
    noise.json           noise bound
    baseline/ candidate/ one file per finished batch, written whole or not at all
    decision.json        outcome ERROR, "not finished", until the run has ended
reports/latest           relative link to the newest run; removed by a refused one
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from gate.errors import RunError, UsageError
from gate.records import (
    Decision,
    DraftCount,
    Generation,
    Outcome,
    Record,
    Request,
    TokenScores,
)

T = TypeVar("T")
ENCODER = msgspec.json.Encoder(enc_hook=str)
SORTED = msgspec.json.Encoder(enc_hook=str, order="sorted")
LOCK_WAIT_S = 1.0


class Fault(Record, frozen=True, kw_only=True):
    """Something wrong with how an output ended or was reported, found without the model."""

    kind: str
    message: str


class BatchResult(Record, frozen=True, kw_only=True):
    """Everything one batch gave in one arm.

    faults: by "request id#repeat". drafts: counted by the server over the whole batch. wall_s: how
    long it took, of timing blocks.
    """

    generations: tuple[Generation, ...]
    scores: tuple[TokenScores, ...] = ()
    faults: dict[str, tuple[Fault, ...]] = {}
    drafts: DraftCount | None = None
    wall_s: float | None = None


class StoredPlan(Record, frozen=True, kw_only=True):
    """What makes two runs the same run, and the requests in batches.

    timing, mixed: blocks; sweep: waves, each of as many requests as are served together.
    """

    fingerprint: str
    created_at: str
    batches: tuple[tuple[Request, ...], ...]
    timing: tuple[tuple[Request, ...], ...] = ()
    mixed: tuple[tuple[Request, ...], ...] = ()
    sweep: tuple[tuple[Request, ...], ...] = ()
    sweep_limits: dict[str, str] = {}  # batch size -> why it has no wave


class Earlier(msgspec.Struct, frozen=True):
    """What counting earlier runs reads of their decisions, of whatever version."""

    outcome: Outcome
    surface: dict[str, str] = {}


def key_text(request_id: str, repeat: int) -> str:
    """Name an output in a JSON object."""
    return f"{request_id}#{repeat}"


class RunStore:
    """Reads and writes one run's folder."""

    def __init__(self, folder: Path) -> None:
        """``folder`` need not exist yet."""
        self.folder = folder

    @property
    def run_id(self) -> str:
        """Name of the run: its folder's."""
        return self.folder.name

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process. Raises UsageError where another one holds it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as stream:
            if not _try_lock(stream):
                msg = f"{self.folder}: another process is at this run; wait for it, or stop it"
                raise UsageError(msg)
            yield

    def write(self, name: str, value: object) -> None:
        """Write a JSON file of the run, atomically."""
        write_atomically(self.folder / name, encode_record(value))

    def read(self, name: str, kind: type[T]) -> T | None:
        """Read a JSON file of the run; None where it does not exist. Raises RunError."""
        path = self.folder / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            msg = f"{path}: {error}; delete the run's folder and run again"
            raise RunError(msg) from error

    def write_batch(self, arm: str, name: str, result: BatchResult) -> None:
        """Write a finished batch."""
        write_atomically(self.folder / arm / f"{name}.json", encode(result))

    def read_batch(self, arm: str, name: str) -> BatchResult | None:
        """Read a finished batch; None where it has not finished."""
        return self.read(f"{arm}/{name}.json", BatchResult)


def _try_lock(stream: IO[str]) -> bool:
    """Lock a file, or give up after a while: a process that was just killed lets go late."""
    end = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        else:
            return True


def encode(value: object) -> bytes:
    """Return ``value`` as JSON. A lone surrogate, which UTF-8 has no bytes for, is spelled out.

    A decoder of one's own may return any text; it must not take the run's evidence with it.
    """
    try:
        return ENCODER.encode(value)
    except UnicodeEncodeError:
        return ENCODER.encode(_spell_surrogates(msgspec.to_builtins(value, enc_hook=str)))


def _spell_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_spell_surrogates(key): _spell_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spell_surrogates(item) for item in value]
    return value


def encode_record(value: object) -> bytes:
    """Return a record as the JSON text of its file."""
    return msgspec.json.format(encode(value), indent=1)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file whole or not at all, also when the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def point_latest(reports: Path, run_id: str) -> None:
    """Let ``reports/latest`` point at a run, atomically."""
    link = reports / f".latest.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(run_id)
    link.replace(reports / "latest")


def remove_latest(reports: Path) -> None:
    """Remove ``reports/latest``: a refused run leaves no older verdict behind."""
    (reports / "latest").unlink(missing_ok=True)


def find_unfinished(reports: Path, fingerprint: str) -> RunStore | None:
    """Return the newest run of the same fingerprint that has not ended, or None."""
    folders = sorted((path.parent for path in reports.glob("*/plan.json")), reverse=True)
    for folder in folders:
        if folder.is_symlink():
            continue
        store = RunStore(folder)
        try:
            plan = store.read("plan.json", StoredPlan)
        except RunError:
            continue
        if plan and plan.fingerprint == fingerprint and not (folder / "finished").exists():
            return store
    return None


def read_decision(path: Path) -> Decision:
    """Read a decision.json, or the one in a run's folder.

    Raises UsageError, also for one that was edited or has lost its digest.
    """
    file = path / "decision.json" if path.is_dir() else path
    try:
        data = file.read_bytes()
        decision = msgspec.json.decode(data, type=Decision)
    except (OSError, msgspec.MsgspecError) as error:
        msg = f"{file}: no readable decision ({error}); name a run's folder or its decision.json"
        raise UsageError(msg) from error
    if not decision.digest:
        msg = f"{file}: it has no digest, so nobody can say that it was not edited; run again"
        raise UsageError(msg)
    if decision.digest != _digest(data):
        msg = f"{file}: edited since the gate wrote it (its digest does not fit); run again"
        raise UsageError(msg)
    return decision


def seal(decision: Decision) -> Decision:
    """Return the decision with the digest of all its other fields, so that an edit shows."""
    return msgspec.structs.replace(decision, digest=_digest(encode(decision)))


def _digest(data: bytes) -> str:
    """Sha256 of a decision.json's values but its digest, in one order."""
    fields = msgspec.json.decode(data, type=dict[str, Any])
    fields.pop("digest", None)
    return "sha256:" + hashlib.sha256(SORTED.encode(fields)).hexdigest()


def count_surface_runs(folders: Iterable[Path], surface_hash: str, but: str) -> dict[str, int]:
    """Count earlier runs of the same surface by outcome, so that re-running until green shows."""
    found: dict[str, int] = {}
    for path in sorted({p.resolve() for folder in folders for p in folder.glob("*/decision.json")}):
        if path.parent.name == but:
            continue
        try:
            known = msgspec.json.decode(path.read_bytes(), type=Earlier)
        except (OSError, msgspec.MsgspecError):
            continue
        if known.surface.get("hash") == surface_hash:
            found[known.outcome] = found.get(known.outcome, 0) + 1
    return found


def unfinished_decision(template: Decision) -> Decision:
    """Return the decision that stands while a run is not finished."""
    unfinished = msgspec.structs.replace(
        template,
        outcome=Outcome.ERROR,
        content=Outcome.ERROR,
        gain=Outcome.ERROR,
        reason="not finished: the run goes on or was stopped; run the same command to resume it",
    )
    return seal(unfinished)

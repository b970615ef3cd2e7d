"""The release surface: everything that must be the same where a decision is used.

One function makes it, for a run and for ``gate surface`` alike, from what is known before
anything decodes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from gate.decoders.base import load_object
from gate.errors import UsageError
from gate.plan import SESSION, Plan
from gate.provenance import hash_engine, make_surface
from gate.records import SCHEMA, Record
from gate.store import encode, write_atomically

RUNTIME = "gate.decoders.runtime"
Values = dict[str, dict[str, object]]


class Surface(Record, frozen=True, kw_only=True):
    """hash: common to all parts. parts: a hash each. values: what each hash was made of."""

    schema: int = SCHEMA
    hash: str
    parts: dict[str, str]
    values: Values


def describe_surface(plan: Plan) -> Surface:
    """Return the release surface of a plan's candidate."""
    spec = plan.specs["candidate"]
    parts = plan.parts.get("candidate", {})
    decoder = {**msgspec.to_builtins(spec), "source_sha256": hash_engine(), **parts}
    source = RUNTIME if plan.session == SESSION else plan.session
    model: Values = load_object(f"{source}:describe_model")(
        plan.resolved, plan.project.config.model
    )
    values = {**model, "decoder": decoder}
    hashes = make_surface(values)
    return Surface(hash=hashes.pop("hash"), parts=hashes, values=values)


def write_surface(path: Path, surface: Surface) -> None:
    """Write a surface file, whole or not at all. Raises UsageError where it cannot be written."""
    if path.is_dir():
        msg = (
            f"--out {path}: a folder; name the file to write, for instance {path / 'surface.json'}"
        )
        raise UsageError(msg)
    write_atomically(path, msgspec.json.format(encode(surface), indent=1) + b"\n")


def read_surface(path: Path) -> Surface:
    """Read a surface file, and hold its hashes to its values. Raises UsageError."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Surface)
    except (OSError, msgspec.MsgspecError) as error:
        msg = f"{path}: no readable surface ({error}); write one with: gate surface --out {path}"
        raise UsageError(msg) from error
    if found.schema != SCHEMA:
        msg = f"{path}: schema {found.schema}, and this version reads {SCHEMA}; write it again"
        raise UsageError(msg)
    if make_surface(found.values) != {"hash": found.hash, **found.parts}:
        msg = f"{path}: its hashes are not those of its values: it was edited; write it again"
        raise UsageError(msg)
    return found

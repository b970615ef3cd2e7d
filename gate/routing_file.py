"""routed.toml: the same gate with only the classes routed that pay, ready to be gated next."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gate.config import Project
from gate.records import Comparison
from gate.store import write_atomically

NAME = "routed.toml"
HEAD = (
    "# Written by the gate: classes whose interval says that the candidate saves go to it, all\n"
    "# others stay with the baseline. Gate it: gate run --config THIS_FILE --out reports\n"
)
ELSEWHERE = frozenset({"endpoint", "replay", "routed"})
"""Kinds that no route can lead to: servers are routed in front of them."""


def write_routing(project: Project, comparisons: Sequence[Comparison], folder: Path) -> Path | None:
    """Write routed.toml into a run's folder; None where there is nothing to route.

    That is so where no class pays or all do, where an arm runs elsewhere, and where the run lies
    outside the project, since no configured path may leave it.
    """
    routing = next((one for one in comparisons if one.measure == "routing"), None)
    chosen, kept = (routing.detail.get(key) if routing else None for key in ("chosen", "kept"))
    if not isinstance(chosen, list) or not chosen or not kept:
        return None
    kinds = {project.config.baseline.get("kind"), project.config.candidate.get("kind")}
    if kinds & ELSEWHERE or not folder.resolve().is_relative_to(project.root):
        return None
    data = tomllib.loads(project.path.read_text(encoding="utf-8"))
    data["folder"] = os.path.relpath(project.folder, folder.resolve())
    routes = {str(name): dict(data["candidate"]) for name in chosen}
    data["candidate"] = {
        "kind": "routed",
        "routes": {**routes, "default": dict(data["baseline"])},
    }
    write_atomically(folder / NAME, HEAD + msgspec.toml.encode(data).decode())
    return folder / NAME

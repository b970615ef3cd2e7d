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
UNROUTABLE = {
    "endpoint": "an arm is a server, and requests are routed in front of servers; set these routes "
    "up there, and gate that address as the candidate",
    "replay": "an arm is a stored run, and nothing can be sent to it",
    "routed": "an arm is routed already; change its routes",
}
"""Kinds that no route can lead to, and what to do instead."""


def write_routing(project: Project, comparisons: Sequence[Comparison], folder: Path) -> str:
    """Write routed.toml into a run's folder; returns in a sentence how to go on.

    Empty where there is nothing to route: no class pays, or all do.
    """
    routing = next((one for one in comparisons if one.measure == "routing"), None)
    chosen, kept = (routing.detail.get(key) if routing else None for key in ("chosen", "kept"))
    if not isinstance(chosen, list) or not chosen or not kept:
        return ""
    reason = _find_reason(project, folder)
    if reason:
        return f"no {NAME} was written: {reason}"
    data = tomllib.loads(project.path.read_text(encoding="utf-8"))
    data["folder"] = os.path.relpath(project.folder, folder.resolve())
    routes = {str(name): dict(data["candidate"]) for name in chosen}
    data["candidate"] = {
        "kind": "routed",
        "routes": {**routes, "default": dict(data["baseline"])},
    }
    write_atomically(folder / NAME, HEAD + msgspec.toml.encode(data).decode())
    return f"the routing can be gated next: gate run --config THIS_RUN/{NAME} --out reports"


def _find_reason(project: Project, folder: Path) -> str:
    """Return why no routed.toml can be written; empty where it can."""
    for arm in (project.config.baseline, project.config.candidate):
        if arm.get("kind") in UNROUTABLE:
            return UNROUTABLE[str(arm["kind"])]
    if not folder.resolve().is_relative_to(project.root):
        return "the run lies outside the project, and no configured path may leave it"
    return ""

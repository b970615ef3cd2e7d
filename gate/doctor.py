"""What would stop a run, found before it starts."""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from gate.config import load_project
from gate.errors import GateError
from gate.plan import make_plan
from gate.progress import Progress
from gate.records import DecoderSpec

CONNECT_S = 3.0
FREE_BYTES = 2 * 1024**3
PACKAGES = ("torch", "transformers", "safetensors", "accelerate", "lm_eval", "datasets")


class Finding(NamedTuple):
    """One thing examined. ``message`` holds the next step where it is not fine."""

    what: str
    is_fine: bool
    message: str


def examine(config: Path) -> list[Finding]:
    """Examine interpreter, packages, disk, the configuration's whole plan, and its servers."""
    plan, specs = _plan(config)
    return [_python(), *_packages(), _disk(config), _cores(), plan, *_servers(specs)]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), f"{version} (3.11 or newer is needed)")


def _packages() -> list[Finding]:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return [
            Finding(
                "packages",
                is_fine=False,
                message=f"missing {', '.join(missing)}; pip install 'decoding-gate[local]'",
            )
        ]
    return [
        Finding("packages", is_fine=True, message="everything a local model needs is installed")
    ]


def _disk(config: Path) -> Finding:
    free = shutil.disk_usage(config.resolve().parent).free
    message = f"{free / 1024**3:.1f} GiB free (a run and a converted model want 2 GiB)"
    return Finding("disk", free >= FREE_BYTES, message)


def _cores() -> Finding:
    return Finding(
        "cores", is_fine=True, message=f"{os.cpu_count()}; run nothing else beside a timing block"
    )


def _plan(config: Path) -> tuple[Finding, Mapping[str, DecoderSpec]]:
    try:
        plan = make_plan(load_project(config), Progress(), dt.datetime.now(dt.UTC).date())
    except GateError as error:
        return Finding("plan", is_fine=False, message=str(error)), {}
    n_timing = sum(len(block) for block in plan.timing)
    message = (
        f"{len(plan.requests)} requests and {n_timing} timing prompts, model "
        f"{plan.resolved.name}, {plan.specs['baseline'].kind} against "
        f"{plan.specs['candidate'].kind}"
    )
    return Finding("plan", is_fine=True, message=message), plan.specs


def _servers(specs: Mapping[str, DecoderSpec]) -> list[Finding]:
    """Whether something listens where arms are servers that the gate does not start."""
    return [
        _listens(arm, str(spec.options["base_url"]))
        for arm, spec in specs.items()
        if spec.kind == "endpoint" and not spec.options.get("server")
    ]


def _listens(arm: str, url: str) -> Finding:
    parts = urlsplit(url)
    port = parts.port or {"https": 443}.get(parts.scheme, 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_S).close()
    except OSError as error:
        message = (
            f"nothing answers at {url} ({error.strerror or error}); start it, or correct base_url"
        )
        return Finding(arm, is_fine=False, message=message)
    return Finding(arm, is_fine=True, message=f"something listens at {url}")

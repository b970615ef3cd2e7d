"""What would stop a run, found before it starts."""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from gate.config import load_project
from gate.errors import GateError
from gate.plan import make_plan
from gate.progress import Progress

FREE_BYTES = 2 * 1024**3
PACKAGES = ("torch", "transformers", "safetensors", "accelerate", "lm_eval", "datasets")


class Finding(NamedTuple):
    """One thing examined. ``message`` holds the next step where it is not fine."""

    what: str
    is_fine: bool
    message: str


def examine(config: Path) -> list[Finding]:
    """Examine interpreter, packages, disk and the configuration's whole plan."""
    return [_python(), *_packages(), _disk(config), _cores(), _plan(config)]


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


def _plan(config: Path) -> Finding:
    try:
        plan = make_plan(load_project(config), Progress(), dt.datetime.now(dt.UTC).date())
    except GateError as error:
        return Finding("plan", is_fine=False, message=str(error))
    n_timing = sum(len(block) for block in plan.timing)
    return Finding(
        "plan",
        is_fine=True,
        message=f"{len(plan.requests)} requests and {n_timing} timing prompts, model "
        f"{plan.resolved.name}, {plan.specs['baseline'].kind} against "
        f"{plan.specs['candidate'].kind}",
    )

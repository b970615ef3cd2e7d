"""Planning, judging and rendering work on a machine without torch, transformers and lm-eval."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import gate

RUNS_MODELS = (
    "gate.__main__",  # it is the command itself
    "gate.decoders.",
    "gate.faults",
    "gate.measures.profile",
    "gate.measures.tasks",
    "gate.models",
    "gate.referee",
)
WITHOUT = ("accelerate", "lm_eval", "safetensors", "torch", "transformers")
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(gate.__path__, "gate.", onerror=lambda _: None)
    if not module.name.startswith(RUNS_MODELS)
)


@pytest.fixture(scope="module")
def problems() -> str:
    """Import every module in one process that has none of the libraries; one line per failure."""
    code = f"""
import importlib, importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in {WITHOUT}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
for name in {[*MODULES, "gate.decoders.base", "gate.decoders.options"]}:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{{name}}: {{error!r}}")
"""
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_every_module_that_runs_no_model_imports_without_the_libraries(problems: str) -> None:
    assert problems == ""


def test_there_are_modules_to_import() -> None:
    assert {"gate.config", "gate.criteria", "gate.report.html", "gate.store"} <= set(MODULES)

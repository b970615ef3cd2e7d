"""Every pytest of an environment with the gate loads the plugin: it costs nothing."""

from __future__ import annotations

import subprocess
import sys

MOST_S = 0.1
HEAVY = ("gate.records", "jinja2", "lm_eval", "msgspec", "numpy", "scipy", "torch", "transformers")
CODE = f"""
import pytest, sys, time
began = time.perf_counter()
import gate.plugin
print(time.perf_counter() - began)
print(*(set({HEAVY}) & set(sys.modules)))
"""


def load() -> tuple[float, str]:
    """Import the plugin in a new interpreter; returns seconds and the heavy modules it took."""
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    seconds, heavy = done.stdout.split("\n")[:2]
    return float(seconds), heavy


def test_loading_the_plugin_is_quick_and_imports_nothing_heavy() -> None:
    times, heavy = zip(*(load() for _ in range(3)), strict=True)
    assert set(heavy) == {""}
    assert min(times) < MOST_S

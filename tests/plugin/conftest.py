"""Inner pytest runs with the gate's plugin alone."""

from __future__ import annotations

import pytest
import transformers.models.llama.modeling_llama

# Inner runs share this process, and pytester forgets what they import: import it before.
# Without these, torch would register its kernels twice, which is a warning and so an error.
import gate.decoders.session
import gate.testing.drift
import gate.testing.source
import gate.testing.summary

__all__ = ["gate", "transformers"]


@pytest.fixture(autouse=True)
def only_our_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the other plugins of this environment: the inner runs are ten times faster."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "gate.plugin")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

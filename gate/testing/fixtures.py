"""Fixtures for tests of decoders. Light: what they need is imported when a test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from gate.decoders.base import Decoder
    from gate.models import LoadedModel
    from gate.records import Request
    from gate.testing.drift import Drift


class MakeDecoder(Protocol):
    """The fixture ``gate_decoder``."""

    def __call__(self, kind: str | Callable[..., Any], **options: Any) -> Decoder:
        """Make a decoder by kind, by "module:factory", or from a factory itself."""
        ...


class AssertNoDrift(Protocol):
    """The fixture ``assert_no_drift``."""

    def __call__(
        self,
        baseline: Any,
        candidate: Any,
        *,
        evalset: str | Path | Sequence[str | Request] | None = None,
        n_requests: int | None = None,
        max_tokens: int | None = None,
        batch: int = 8,
        min_accepted: int = 1,
        seed: int = 0,
        model: LoadedModel | None = None,
    ) -> Drift:
        """Compare two decoders; raises DriftError, an AssertionError, with the fork in context."""
        ...


@pytest.fixture(scope="session")
def gate_model(pytestconfig: pytest.Config) -> LoadedModel:
    """The model that decoders under test run, loaded once: the ini option ``gate_model``.

    A folder (from the rootdir), a hub id, or the embedded model. Override the fixture to give
    a model of your own: ``gate.models.wrap_model(model, tokenizer, "name")``.
    """
    from gate.config import ModelConfig  # noqa: PLC0415 - only where a test asks for a model
    from gate.decoders.base import load_object  # noqa: PLC0415
    from gate.errors import GateError  # noqa: PLC0415

    config = ModelConfig(id=pytestconfig.getini("gate_model"))
    try:
        resolved = load_object("gate.models:resolve_model")(config, pytestconfig.rootpath)
        loaded: LoadedModel = load_object("gate.models:load_model")(resolved, config.dtype)
    except GateError as error:
        pytest.fail(f"gate_model: {error}", pytrace=False)
    return loaded


@pytest.fixture
def gate_decoder(gate_model: LoadedModel, pytestconfig: pytest.Config) -> MakeDecoder:
    """A function that makes decoders on ``gate_model``: ``gate_decoder("lookahead", window=5)``."""
    from gate.testing.drift import make_decoder  # noqa: PLC0415

    def make(kind: str | Callable[..., Any], **options: Any) -> Decoder:
        return make_decoder(gate_model, pytestconfig.rootpath, kind, options)

    return make


@pytest.fixture
def assert_no_drift(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> AssertNoDrift:
    """A function that fails where the candidate's outputs are not the baseline's, up to ties.

    baseline, candidate: decoders of ``gate_decoder``, or any object with ``generate``.
    evalset: a folder (from the rootdir), a list of prompts or requests, or None for a dozen
    prompts of the gate's own. n_requests, max_tokens: fewer, shorter. min_accepted: drafts the
    candidate must have had accepted; 0 for one that does not draft. model: else ``gate_model``.
    """
    from gate.testing import drift  # noqa: PLC0415

    def check(
        baseline: Any, candidate: Any, *, model: LoadedModel | None = None, **options: Any
    ) -> Drift:
        __tracebackhide__ = True
        chosen = request.getfixturevalue("gate_model") if model is None else model
        given = drift.Options(**options)
        return drift.compare(chosen, pytestconfig.rootpath, baseline, candidate, given)

    return check

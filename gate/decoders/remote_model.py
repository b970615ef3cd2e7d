"""What is known of the model behind remote arms before they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gate.config import Project
from gate.decoders.place import UNSEEN
from gate.errors import RunError
from gate.records import DecoderSpec

MODEL_FIELD = "model.id"


class RemoteModel(NamedTuple):
    """Its name or names, and what stands for the hashes that nobody sees."""

    name: str
    weights_sha256: str = UNSEEN
    tokenizer_sha256: str = UNSEEN


def check_models(project: Project, specs: Mapping[str, DecoderSpec]) -> None:
    """Raise RunError for two names of a model, before anything is sent, unless that is allowed."""
    names = [str(spec.options.get("model") or "") for spec in specs.values()]
    allowed = {entry.field for entry in project.config.run.allow_differences}
    if len(set(names)) > 1 and all(names) and MODEL_FIELD not in allowed:
        msg = (
            f"the arms ask for two models, {' and '.join(names)}; serve both under one name, or "
            f"allow {MODEL_FIELD} under run.allow_differences with a reason"
        )
        raise RunError(msg)

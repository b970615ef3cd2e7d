"""The fault catalogue: seeded faulty decoders, and lossless controls beside them.

gate.toml reaches both as ``kind = "python"``, ``target = "gate.faults:make"``, ``fault = ID``
(a control's id likewise), and ``strength`` where the default is not wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gate.errors import UsageError
from gate.faults import (
    acceptance,
    cache,
    greedy,
    processors,
    sampled,
    speculative,
    stock,
    stopping,
)
from gate.faults.base import BUILDS, FAULTS, Fault, FaultyDecoder, Strength
from gate.faults.controls import CONTROLS as _CONTROLS
from gate.faults.controls import MAKERS, Control

if TYPE_CHECKING:
    from gate.models import LoadedModel

PARTS = (acceptance, cache, greedy, processors, sampled, speculative, stock, stopping)
CATALOGUE: Mapping[str, Fault] = MappingProxyType(FAULTS)
CONTROLS: Mapping[str, Control] = MappingProxyType(_CONTROLS)
__all__ = ["CATALOGUE", "CONTROLS", "Control", "Fault", "make"]


def make(model: LoadedModel, fault: str, strength: Strength | None = None) -> Any:
    """Make the decoder of a fault or a control. Raises UsageError for an id that is neither."""
    if fault in MAKERS:
        return MAKERS[fault](model)
    if fault not in FAULTS:
        msg = f"fault = {fault!r} is not in the catalogue; 'gate selftest --list' names them all"
        raise UsageError(msg)
    changes = BUILDS[fault](FAULTS[fault].strength if strength is None else strength)
    return changes.decoder(model) if changes.decoder else FaultyDecoder(model, changes)

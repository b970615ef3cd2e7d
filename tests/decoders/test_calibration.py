"""The noise bound: what it is measured on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gate.decoders.calibration import FLOAT32_FLOOR, measure_noise
from gate.records import Request
from gate.referee import Referee
from tests.decoders.helpers import make_request

if TYPE_CHECKING:
    from gate.models import LoadedModel


def test_repeats_of_a_request_do_not_widen_the_bound(toy: LoadedModel) -> None:
    plain = [make_request("one", (97, 98, 99)), make_request("two", range(100, 112))]
    repeats: list[Request] = [replace(r, repeat=n) for r in plain for n in range(3)]
    alone = measure_noise(toy, Referee(toy), plain, 32)
    found = measure_noise(toy, Referee(toy), repeats, 32)
    assert found.n_positions == alone.n_positions
    assert found.bound == FLOAT32_FLOOR

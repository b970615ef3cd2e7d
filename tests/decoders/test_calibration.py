"""The noise bound: what it is measured on."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from gate.decoders.calibration import FLOAT32_FLOOR, LEAST_POSITIONS, measure_noise
from gate.records import Request
from gate.referee import Referee
from tests.decoders.helpers import make_request, wrap_again

if TYPE_CHECKING:
    from gate.models import LoadedModel


def test_repeats_of_a_request_do_not_widen_the_bound(toy: LoadedModel) -> None:
    plain = [make_request("one", (97, 98, 99)), make_request("two", range(100, 112))]
    repeats: list[Request] = [replace(r, repeat=n) for r in plain for n in range(3)]
    alone = measure_noise(toy, Referee(toy), plain, 32)
    found = measure_noise(toy, Referee(toy), repeats, 32)
    assert found.n_positions == alone.n_positions
    assert found.bound == FLOAT32_FLOOR


def test_in_16_bits_the_quantile_rests_on_a_thousand_positions(toy: LoadedModel) -> None:
    rounded = wrap_again(toy, copy.deepcopy(toy.model).to(torch.bfloat16))
    requests = [make_request(f"r{n}", (97 + n, 98, 99), eos_ids=()) for n in range(10)]
    found = measure_noise(rounded, Referee(rounded), requests, 8)
    assert found.n_positions >= LEAST_POSITIONS
    assert measure_noise(toy, Referee(toy), requests, 8).n_positions == 240

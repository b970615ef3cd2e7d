"""Second choices offered as drafts: what a lossless verifier takes, and what a relaxed one."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch

from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.calibration import measure_noise
from gate.decoders.options import AutoregressiveOptions
from gate.decoders.probing import probe_band
from gate.faults import make
from gate.records import NoiseBound, Request, TokenScores
from gate.referee import Referee
from tests.decoders.helpers import make_request, wrap_again

if TYPE_CHECKING:
    from gate.models import LoadedModel

Outputs = list[tuple[Request, TokenScores]]


@pytest.fixture(scope="module")
def rounded(toy: LoadedModel) -> LoadedModel:
    """The toy in bfloat16, where many positions are exact ties."""
    return wrap_again(toy, copy.deepcopy(toy.model).to(torch.bfloat16))


@pytest.fixture(scope="module")
def outputs(rounded: LoadedModel) -> Outputs:
    requests = [
        make_request(f"r{n}", [97 + (n * i) % 26 for i in range(4 + n % 5)], max_tokens=48)
        for n in range(24)
    ]
    decoder = AutoregressiveDecoder(rounded, AutoregressiveOptions())
    found = list(decoder.generate(requests))
    return list(zip(requests, Referee(rounded).score(requests, found), strict=True))


@pytest.fixture(scope="module")
def bound(rounded: LoadedModel, outputs: Outputs) -> NoiseBound:
    return measure_noise(rounded, Referee(rounded), [request for request, _ in outputs], 8)


def share_taken(model: LoadedModel, fault: str, outputs: Outputs, bound: NoiseBound) -> float:
    probe = probe_band(Referee(model), make(model, fault), outputs, bound, 8)
    assert probe is not None
    assert len(probe.accepted) >= 20
    return sum(probe.accepted) / len(probe.accepted)


def test_exact_ties_are_not_offered(
    rounded: LoadedModel, outputs: Outputs, bound: NoiseBound
) -> None:
    gaps = [gap for _, scores in outputs for gap in scores.gap[1:]]
    probe = probe_band(Referee(rounded), make(rounded, "baseline"), outputs, bound, 8)
    assert probe is not None
    assert sum(gap == 0.0 for gap in gaps) >= 5
    assert probe.n_in_band == sum(0.0 < gap <= probe.band_nat for gap in gaps)


@pytest.mark.parametrize("control", ["baseline", "lookahead", "self-draft", "tie-last"])
def test_a_lossless_verifier_takes_at_most_half_of_the_second_choices(
    rounded: LoadedModel, outputs: Outputs, bound: NoiseBound, control: str
) -> None:
    assert share_taken(rounded, control, outputs, bound) <= 0.5


def test_a_relaxed_verifier_takes_most_of_them(
    rounded: LoadedModel, outputs: Outputs, bound: NoiseBound
) -> None:
    assert share_taken(rounded, "relaxed-top-k", outputs, bound) > 0.9

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gate.measures.band import compare_band
from gate.records import BandProbe


def probe(*accepted: bool) -> BandProbe:
    return BandProbe(band_nat=0.2, n_in_band=len(accepted), accepted=accepted)


def test_a_decoder_without_external_drafts_is_a_named_limitation() -> None:
    [found] = compare_band(None)
    assert found.difference is None
    assert "takes no drafts" in (found.note or "")


def test_few_positions_are_not_judged_and_their_number_is_said() -> None:
    [found] = compare_band(probe(*[True] * 19))
    assert found.difference is None
    assert "19 positions" in (found.note or "")


def test_a_verifier_that_takes_the_closest_of_many_is_told_from_a_coin() -> None:
    accepted = [True] * 20 + [False] * 44
    [found] = compare_band(probe(*accepted))
    assert found.difference is not None
    assert found.difference.pvalue == pytest.approx(3 * stats.binom.sf(19, 20, 0.5))
    assert found.difference.n == 20


def test_a_lossless_verifier_keeps_its_level_by_simulation() -> None:
    rng = np.random.default_rng(0)
    pvalues = []
    for _ in range(2000):
        [found] = compare_band(probe(*(bool(x) for x in rng.random(64) < 0.5)))
        assert found.difference is not None
        pvalues.append(found.difference.pvalue or 0.0)
    assert np.mean(np.array(pvalues) <= 0.05) <= 0.05

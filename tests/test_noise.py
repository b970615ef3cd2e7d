"""The keyed noise: its law, its independence, and one definition for numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from gate.noise import gumbel, mix, mix_int, read_unit, stream_key, uniforms

IDS = np.arange(64)
N = 3000


@pytest.fixture(scope="module")
def grid() -> np.ndarray:
    """(N, 64) uniforms: positions 0 to N - 1 of one output, 64 tokens."""
    key = stream_key(0, "request", 0)
    return np.stack([uniforms(key, position, IDS) for position in range(N)])


def test_uniforms_are_uniform(grid: np.ndarray) -> None:
    assert stats.kstest(grid.ravel(), "uniform").pvalue > 0.001
    counts, _ = np.histogram(grid, bins=1000, range=(0, 1))
    assert stats.chisquare(counts).pvalue > 0.001


def test_gumbel_noise_follows_the_gumbel_law() -> None:
    key = stream_key(3, "g", 1)
    noise = np.concatenate([gumbel(key, position, IDS) for position in range(N)])
    assert stats.kstest(noise, "gumbel_r").pvalue > 0.001


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("lag", [1, 2, 3, 7])
def test_neighbouring_positions_and_tokens_are_uncorrelated(
    grid: np.ndarray, axis: int, lag: int
) -> None:
    x = np.moveaxis(grid, axis, 0)
    rho = np.corrcoef(x[:-lag].ravel(), x[lag:].ravel())[0, 1]
    assert abs(rho) < 4 / np.sqrt(x[lag:].size)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((0, "r", 0), (0, "r", 1)),
        ((0, "r", 0), (1, "r", 0)),
        ((0, "r1", 0), (0, "r2", 0)),
        ((0, "r", 1), (1, "r", 0)),
        ((-1, "r", 0), (1, "r", 0)),
    ],
)
def test_repeats_seeds_and_requests_have_independent_noise(
    left: tuple[int, str, int], right: tuple[int, str, int]
) -> None:
    pair = [
        np.concatenate([uniforms(stream_key(*name), position, IDS) for position in range(500)])
        for name in (left, right)
    ]
    table, *_ = np.histogram2d(pair[0], pair[1], bins=16, range=[[0.0, 1.0], [0.0, 1.0]])
    assert stats.chisquare(table.ravel()).pvalue > 0.001
    assert not np.isin(pair[0], pair[1]).any()


def test_keys_do_not_run_into_each_other_where_their_parts_are_joined() -> None:
    names = [(1, "1", 1), (11, "1", 1), (1, "11", 1), (1, "1", 11), (1, "1\x1f1", 1)]
    assert len({stream_key(*name) for name in names}) == len(names)


def test_the_noise_of_version_1_never_changes() -> None:
    key = stream_key(7, "frozen", 2)
    assert key == 1494198770479392457
    assert uniforms(key, 5, np.array([0, 1, 49151])).tolist() == FROZEN


FROZEN = [0.3374023637520732, 0.3523728413661499, 0.26390968343755306]


def test_numpy_and_torch_draw_the_same_noise() -> None:
    ids = np.array([0, 1, 2, 49_151, 200_000, 2**31 + 5])
    for position in (0, 1, 4095):
        key = stream_key(position, "same", 0)
        ours, theirs = uniforms(key, position, ids), uniforms(key, position, torch.from_numpy(ids))
        assert theirs.dtype is torch.float64
        assert ours.tolist() == theirs.tolist()
        noise = gumbel(key, position, torch.from_numpy(ids)).numpy()
        np.testing.assert_allclose(gumbel(key, position, ids), noise, rtol=1e-12)


def test_a_token_keeps_its_noise_whichever_others_are_asked_for() -> None:
    key = stream_key(0, "subset", 0)
    whole = gumbel(key, 9, IDS)
    assert gumbel(key, 9, IDS[[5, 40]]).tolist() == whole[[5, 40]].tolist()


@pytest.mark.parametrize("bits", [0, -1, 2**63 - 1, -(2**63)])
def test_extreme_bits_stay_inside_the_open_interval(bits: int) -> None:
    assert 0.0 < read_unit(np.array([bits]))[0] < 1.0


def test_scalar_and_array_mixers_agree() -> None:
    values = [0, 1, -1, 12345678901234567, -(2**63), 2**63 - 1]
    assert mix(np.array(values)).tolist() == [mix_int(value) for value in values]


def test_mixer_equals_the_published_splitmix64() -> None:
    golden = 0x9E3779B97F4A7C15  # first outputs of splitmix64 with seed 1234567
    published = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    for n, expected in enumerate(published, start=1):
        assert mix_int(1234567 + n * golden) % 2**64 == expected

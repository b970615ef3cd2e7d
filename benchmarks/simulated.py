"""Data whose truth is known: what the intervals and tests of the gate are tried on."""

from __future__ import annotations

import numpy as np

Rng = np.random.Generator
ICC = 0.7
TOKENS = 60
SPEED, TIMING_NOISE = 0.6, 0.15
"""The candidate's times over the baseline's, and the log-normal noise of each."""


def draw_flips(n: int, gain: float, loss: float, rng: Rng) -> tuple[int, int, int]:
    """Return pairs gained and lost, of all."""
    gained, lost, _ = rng.multinomial(n, [gain, loss, 1.0 - gain - loss])
    return int(gained), int(lost), n


def draw_count(n: int, rate: float, rng: Rng) -> tuple[int, int]:
    """Return a binomial count, of how many."""
    return int(rng.binomial(n, rate)), n


def draw_clusters(sizes: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Return normal values of variance 1 with the ICC, and their clusters."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    between = rng.normal(size=len(sizes)) * ICC**0.5
    return between[labels] + rng.normal(size=len(labels)) * (1 - ICC) ** 0.5, labels


def draw_scores(sizes: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Return changes of 0/1 scores: a third of them, either way alike."""
    values, labels = draw_clusters(sizes, rng)
    return np.where(np.abs(values) > 1.0, np.sign(values), 0.0), labels


def draw_times(n: int, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Return both arms' times."""
    before = np.exp(0.5 * rng.normal(size=n))
    return before, SPEED * before * np.exp(TIMING_NOISE * rng.normal(size=n))


def draw_acceptance(n: int, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Return drafted and accepted tokens per request, their share differing by request."""
    drafted = rng.integers(20, 200, n)
    return drafted.astype(float), rng.binomial(drafted, rng.beta(2.0, 8.0, n)).astype(float)


def draw_rates(n: int, rng: Rng) -> tuple[np.ndarray, ...]:
    """Return counts and totals of both arms; requests differ in their own rate and length."""
    totals = rng.integers(TOKENS // 2, 3 * TOKENS // 2, n)
    own = rng.beta(2.0, 198.0, n)
    before, after = rng.binomial(totals, own), rng.binomial(totals, np.minimum(1.0, 2 * own))
    return before, totals, after, totals


def draw_exponential(n: int, rng: Rng) -> np.ndarray:
    """Return skewed values of mean 1."""
    return rng.exponential(size=n)


def draw_pit(
    distance: float, rng: Rng, n_requests: int = 128, n_tokens: int = 32
) -> tuple[np.ndarray, np.ndarray]:
    """Return transforms whose distribution function is u + 4 d (u - u^2), and their requests."""
    u, a = rng.random(n_requests * n_tokens), 4.0 * distance
    if a:
        u = ((1.0 + a) - np.sqrt((1.0 + a) ** 2 - 4.0 * a * u)) / (2.0 * a)
    return u, np.repeat(np.arange(n_requests), n_tokens)

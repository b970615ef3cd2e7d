"""Draws against the exact law, by chi-square over 100,000 of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from gate.decoders.sampling import Sampler, keep_mask
from gate.noise import gumbel, stream_key
from gate.records import Request, Sampling
from tests.decoders.helpers import make_request

N_DRAWS, N_TOKENS = 100_000, 16
OUTPUT = (2, 2, 5)
LAWS: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    "temperature 0.4": {"temperature": 0.4},
    "temperature 2": {"temperature": 2.0},
    "top-k": {"top_k": 5},
    "top-p": {"top_p": 0.7},
    "min-p": {"min_p": 0.15},
    "repetition": {"repetition_penalty": 1.6},
    "presence": {"presence_penalty": 0.8},
    "frequency": {"frequency_penalty": 0.6},
    "logit bias": {"logit_bias": {1: 1.5, 3: -1.0}},
    "bad words": {"bad_words": ((4,), (5, 6))},
    "all": {
        "temperature": 0.8,
        "top_k": 12,
        "top_p": 0.95,
        "min_p": 0.02,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "logit_bias": {1: 1.0},
        "bad_words": ((4,),),
    },
}


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    """(N_DRAWS, N_TOKENS) noise of as many requests at output position 3."""
    ids = np.arange(N_TOKENS)
    return np.stack(
        [gumbel(stream_key(0, f"draw-{n}", 0), len(OUTPUT), ids) for n in range(N_DRAWS)]
    )


def exact_law(request: Request, logits: Sequence[float], prompt: Sequence[int]) -> np.ndarray:
    """The law by definition, in float64, written without the module under test."""
    s = request.sampling
    z = np.array(logits, dtype=np.float64)
    for token in {*prompt, *OUTPUT}:
        z[token] = (
            z[token] / s.repetition_penalty if z[token] > 0 else z[token] * s.repetition_penalty
        )
    for token in set(OUTPUT):
        z[token] -= s.presence_penalty + s.frequency_penalty * OUTPUT.count(token)
    for token, bias in s.logit_bias.items():
        z[token] += bias
    for word in s.bad_words:
        if (*prompt, *OUTPUT)[len((*prompt, *OUTPUT)) - len(word) + 1 :] == word[:-1]:
            z[word[-1]] = -np.inf
    return cut_law(np.exp((z - z.max()) / s.temperature), s)


def cut_law(mass: np.ndarray, s: Sampling) -> np.ndarray:
    """Top-k, then top-p, then min-p on unnormalised probabilities."""
    order = np.argsort(-mass)
    if s.top_k:
        mass[order[s.top_k :]] = 0.0
    law = mass / mass.sum()
    reached = np.cumsum(law[order]) - law[order]
    law[order[reached >= s.top_p]] = 0.0
    law[law < s.min_p * law.max()] = 0.0
    return np.asarray(law / law.sum())


@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_the_exact_law(name: str, noise: np.ndarray) -> None:
    prompt = (7, 3)
    logits = np.random.default_rng(4).normal(0.0, 1.5, N_TOKENS).astype(np.float32)
    s = Sampling(**({"temperature": 1.0} | LAWS[name]))
    request = make_request(sampling=s)
    sampler = Sampler(request, prompt, seed=0)
    z = sampler.scores(torch.from_numpy(logits), OUTPUT)
    kept = keep_mask(z, s).numpy()
    drawn = np.where(kept, z.numpy() + s.temperature * noise, -np.inf).argmax(-1)
    law = exact_law(request, logits.tolist(), prompt)
    counts = np.bincount(drawn, minlength=N_TOKENS)
    assert counts[law == 0].sum() == 0
    allowed = law > 0
    assert stats.chisquare(counts[allowed], law[allowed] * N_DRAWS).pvalue > 1e-3
    for n in range(100):  # the vectorised draw above is the sampler's own
        one = Sampler(make_request(f"draw-{n}", sampling=s), prompt, seed=0)
        assert one.choose(torch.from_numpy(logits), OUTPUT) == drawn[n]


def test_a_requests_own_seed_replaces_the_runs() -> None:
    keys = {
        Sampler(make_request(sampling=Sampling(seed=seed)), (1,), seed=run).key
        for seed, run in ((None, 5), (5, 0), (5, 9))
    }
    assert keys == {stream_key(5, "r", 0)}
    assert Sampler(make_request(sampling=Sampling(seed=0)), (1,), seed=5).key == stream_key(
        0, "r", 0
    )

"""Profiling the toy model: counts against arithmetic by hand, ceilings that are positive."""

from __future__ import annotations

from typing import Any

import torch

from gate.measures.profile import cache_bytes, count_step, count_weights, profile_model, read_nvml


def test_counts_of_a_step_are_those_of_the_model_s_shapes(toy: Any) -> None:
    config = toy.model.config
    n_weights, n_bytes = count_weights(toy.model)
    names = dict(toy.model.named_parameters())
    tied = toy.model.lm_head.weight is toy.model.get_input_embeddings().weight
    skipped = 0 if tied else names["model.embed_tokens.weight"].numel()
    assert n_weights == sum(p.numel() for p in names.values()) - skipped
    assert n_bytes == 4 * n_weights
    kv = config.num_key_value_heads * config.hidden_size // config.num_attention_heads
    assert cache_bytes(config, 10, torch.float32) == 2 * config.num_hidden_layers * kv * 10 * 4
    moved, flops = count_step(toy.model, config, torch.float32, 2, 3, 7)
    assert moved == n_bytes + 2 * cache_bytes(config, 13, torch.float32)
    attention = 4 * config.num_hidden_layers * config.hidden_size * 3 * 10
    assert flops == 2 * (2 * n_weights * 3 + attention)


def test_a_profile_has_ceilings_a_curve_and_a_prefill(toy: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("gate.measures.profile.COPY_BYTES", {"cpu": 2**20})
    monkeypatch.setattr("gate.measures.profile.MATMUL_SIZE", {"cpu": 64})
    found = profile_model(toy, 5, [1, 2], context=32)
    assert [(p.batch, p.rows) for p in found.points] == [
        (1, 1), (1, 2), (1, 4), (1, 5), (2, 1), (2, 5)
    ]  # fmt: skip
    assert min(found.copy_bytes_per_s, found.matmul_flops_per_s, found.prefill.wall_s) > 0.0
    assert all(p.wall_s > 0.0 for p in found.points)


def test_without_an_nvidia_device_its_figures_are_not_measured() -> None:
    assert "not measured" in str(read_nvml(torch.device("cpu")))

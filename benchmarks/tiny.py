"""Tiny random models and evalsets on disk, for benchmarks that run thousands of requests.

Their laws are neither sharp nor flat; figures on them say how the gate decides, not how a
trained model behaves.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from gate.noise import mix_int
from gate.records import Record
from tests.conftest import END, build_byte_tokenizer

FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
}
WORDS = ("red", "green", "north", "one two", "a b c d", "in on at in on at", "the the", "count")
CLASSES = ("maths", "structured")
TIMING_TOKENS = 8


class Shape(Record, frozen=True, kw_only=True):
    """A model's family and sizes. sharpness: standard deviation of the head's weights."""

    family: str = "llama"
    hidden: int = 32
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    sharpness: float = 0.6
    seed: int = 0


class Part(Record, frozen=True, kw_only=True):
    """One task of an evalset. repeats above 1, or sampled: drawn at temperature 1."""

    name: str
    n_documents: int
    max_tokens: int
    repeats: int = 1
    is_sampled: bool = False


def write_model(folder: Path, shape: Shape) -> Path:
    """Write a random model with a byte tokenizer; returns its folder."""
    tokenizer = build_byte_tokenizer()
    make_config, make_model = FAMILIES[shape.family]
    torch.manual_seed(shape.seed)
    config = make_config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=2 * shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=512,
        initializer_range=0.12,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=None,
    )
    model = make_model(config).eval()
    _season(model, shape.sharpness)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _season(model: Any, sharpness: float) -> None:
    """Make attention matter, and bytes outside ASCII rarer than others."""
    with torch.no_grad():
        head = model.lm_head.weight
        head.normal_(0.0, sharpness * (32 / head.shape[1]) ** 0.5)
        head[:10] *= 0.5
        head[127:256] *= 0.6
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight *= 4.0
            layer.self_attn.k_proj.weight *= 4.0
            layer.self_attn.o_proj.weight *= 3.0


def make_prompt(name: str, n: int, seed: int) -> str:
    """Return the prompt of a task's n-th document."""
    key = mix_int(mix_int(seed) + n)
    words = [WORDS[(key >> 3 * i) % len(WORDS)] for i in range(2 + key % 5)]
    return f"{name} {n}: {' '.join(words)}."


def write_evalset(folder: Path, parts: Sequence[Part], seed: int = 0) -> Path:
    """Write an evalset of these tasks, which share the classes in turn; returns its folder."""
    folder.mkdir(parents=True)
    classes = CLASSES[: min(len(parts), len(CLASSES))]
    lines = ["schema = 1", 'name = "tiny"', 'timing = "timing.jsonl"']
    for name in classes:
        lines += [f"[classes.{name}]", f"traffic_share = {1 / len(classes)}"]
    for n, part in enumerate(parts):
        lines += [f"[tasks.{part.name}]", f'request_class = "{classes[n % len(classes)]}"']
        (folder / f"{part.name}.yaml").write_text(_write_task(part))
        _write_rows(folder / f"{part.name}.jsonl", _make_rows(part, seed))
    (folder / "evalset.toml").write_text("\n".join(lines) + "\n")
    _write_rows(folder / "timing.jsonl", _make_timing(classes, seed))
    return folder


def _make_rows(part: Part, seed: int) -> list[dict[str, object]]:
    return [
        {"id": f"{n}", "prompt": make_prompt(part.name, n, seed), "target": "e"}
        for n in range(part.n_documents)
    ]


def _make_timing(classes: Sequence[str], seed: int) -> list[dict[str, object]]:
    return [
        {
            "id": f"{name}-{n}",
            "request_class": name,
            "prompt": make_prompt(f"timing {name}", n, seed),
            "max_tokens": TIMING_TOKENS,
            "stop": [],
        }
        for name in classes
        for n in range(2)
    ]


def _write_rows(path: Path, rows: Sequence[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _write_task(part: Part) -> str:
    """Return the task as lm-eval reads it: JSON is YAML."""
    kwargs: dict[str, object] = {"until": ["\n\n"], "max_gen_toks": part.max_tokens}
    kwargs |= {"do_sample": True, "temperature": 1.0} if part.is_sampled else {"do_sample": False}
    first_letter = {"function": "regex", "regex_pattern": "([aeiou])"}
    task = {
        "task": part.name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": f"{part.name}.jsonl"}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{target}}",
        "generation_kwargs": kwargs,
        "repeats": part.repeats,
        "filter_list": [{"name": "vowel", "filter": [first_letter, {"function": "take_first"}]}],
        "metric_list": [{"metric": "exact_match"}],
    }
    return json.dumps(task, indent=1)

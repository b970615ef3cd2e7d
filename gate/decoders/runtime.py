"""What a local model decodes with, told without loading its weights."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib import metadata
from pathlib import Path

import torch

from gate.config import ModelConfig
from gate.models import ResolvedModel, check_device, load_tokenizer

VERSIONS = ("torch", "transformers", "tokenizers", "safetensors", "numpy")
CONFIGS = ("config.json", "generation_config.json")
WRITTEN_BY = "transformers_version"  # who saved a configuration, not what it says


def describe_model(resolved: ResolvedModel, config: ModelConfig) -> dict[str, dict[str, object]]:
    """Return the parts of the release surface that the model and this machine make up."""
    return {
        "weights": {"sha256": resolved.weights_sha256, "config_sha256": _hash_configs(resolved)},
        "tokenizer": {"sha256": resolved.tokenizer_sha256},
        "template": {"sha256": hash_template(load_tokenizer(resolved))},
        "runtime": {
            "dtype": config.dtype,
            "device": describe_kind(torch.device(check_device(config.device))),
            **describe_versions(),
        },
    }


def describe_versions() -> dict[str, str]:
    """Return the versions of the packages that decode."""
    return {name: metadata.version(name) for name in VERSIONS}


def describe_device(device: torch.device) -> str:
    """Name the device as a person would."""
    place = f" ({device})" if device.type == "cuda" else ""
    return f"{describe_kind(device)}{place}"


def describe_kind(device: torch.device) -> str:
    """Name the kind of device: its kernels, not its place in this machine."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU {platform.machine()}"


def hash_template(tokenizer: object) -> str:
    """Return the hash of a tokenizer's chat template; of nothing where it has none."""
    template = str(getattr(tokenizer, "chat_template", None) or "")
    return hashlib.sha256(template.encode()).hexdigest()


def _hash_configs(resolved: ResolvedModel) -> str:
    """Return the hash of what the model's configuration files say."""
    texts = [_read_config(resolved.folder / name) for name in CONFIGS]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _read_config(path: Path) -> str:
    if not path.is_file():
        return "none"
    said = json.loads(path.read_text())
    return json.dumps({k: v for k, v in said.items() if k != WRITTEN_BY}, sort_keys=True)

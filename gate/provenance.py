"""What ran: versions, sources, hashes; and the release surface that a decision covers."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gate import __version__

PACKAGE = Path(__file__).parent


def hash_json(value: object) -> str:
    """sha256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, default=str, ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def hash_files(files: Iterable[Path], root: Path) -> str:
    """sha256 over relative names and contents, in name order."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root)}\x1f".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return "sha256:" + digest.hexdigest()


def hash_package() -> str:
    """Hash of this package's own sources and templates."""
    kinds = ("*.py", "*.j2", "*.css", "*.js", "*.toml", "*.yaml", "*.jsonl")
    return hash_files((p for kind in kinds for p in PACKAGE.rglob(kind)), PACKAGE)


def hash_engine() -> str:
    """Hash of the sources that decode: what ships of this package with our own decoders."""
    beside = (PACKAGE / f"{name}.py" for name in ("models", "noise", "grammar"))
    return hash_files((*(PACKAGE / "decoders").glob("*.py"), *beside), PACKAGE)


def hash_target(target: str, folder: Path) -> str:
    """Hash of the sources behind a python decoder's ``module:factory``, found without importing.

    The module's file, or all of its top-level package.
    """
    parts = target.partition(":")[0].split(".")
    package = folder / parts[0]
    if package.is_dir():
        return hash_files(package.rglob("*.py"), package)
    file = folder / f"{parts[0]}.py"
    if not file.is_file():
        spec = importlib.util.find_spec(parts[0])
        file = Path(spec.origin) if spec and spec.origin else file
    return hash_files([file], file.parent) if file.is_file() else "not found"


def describe_machine(root: Path) -> dict[str, object]:
    """Return versions and the state of the repository that holds the configuration."""
    return {
        "gate": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _name_processor(),
        "commit": _git(root, "rev-parse", "HEAD"),
        "dirty": bool(_git(root, "status", "--porcelain")),
    }


def _name_processor() -> str:
    """Name the CPU; empty where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.processor())


def is_committed(path: Path) -> bool:
    """Whether a file is in its repository as it stands; True where there is no repository."""
    if not _git(path.parent, "rev-parse", "--show-toplevel"):
        return True
    return not _git(path.parent, "status", "--porcelain", "--ignored", "--", path.name)


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            ["git", "-C", str(root), *words],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def count_prompt_tokens(arms: Mapping[str, Any]) -> dict[str, dict[str, object]]:
    """By arm: tokens of the prompts, as its server counts them, over what both answered.

    Another template or tokenizer shows here: a difference outside the decoder. arms:
    measures.paired.Arm by name.
    """
    found = [arm.generations for arm in arms.values()]
    shared = [key for key in found[0] if all(key in one and one[key].usage for one in found)]
    return {
        name: {"prompt_tokens": sum(arm.generations[key].usage.n_prompt for key in shared)}
        for name, arm in arms.items()
    }


def find_differences(
    baseline: Mapping[str, object], candidate: Mapping[str, object], prefix: str = ""
) -> dict[str, tuple[object, object]]:
    """Return the provenance fields that differ outside the decoder's specification, by path."""
    found: dict[str, tuple[object, object]] = {}
    for key in sorted({*baseline, *candidate}):
        path = f"{prefix}{key}"
        left, right = baseline.get(key), candidate.get(key)
        if path == "decoder" or left == right:
            continue
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found |= find_differences(left, right, f"{path}.")
        else:
            found[path] = (left, right)
    return found


def make_surface(parts: Mapping[str, object]) -> dict[str, str]:
    """Return a hash per part of the release surface, and their common hash."""
    hashes = {name: hash_json(value) for name, value in parts.items()}
    return {"hash": hash_json(hashes), **hashes}

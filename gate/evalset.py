"""Evalsets: prompts under version control, by request class, with what is expected of them.

A folder holds ``evalset.toml`` (classes, traffic shares, SLOs, tasks), one lm-eval YAML
and JSONL file per task, and the held-back prompts for timing. Loading runs no code.
"""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path
from typing import Literal

from gate.config import Project, resolve_inside
from gate.errors import UsageError
from gate.evalset_files import (
    Document,
    Files,
    TaskFile,
    TimingPrompt,
    read_documents,
    read_task,
    read_timing,
    read_toml,
)
from gate.records import SCHEMA, Record

BUILTIN = "builtin:"
BUILTIN_FOLDER = Path(__file__).parent / "evalsets"
RESERVED = frozenset({"all", "mixed", "default"})
"""Names of groups, of the blocks at the traffic's shares, and of a route: no request class's."""


class RequestClass(Record, frozen=True, kw_only=True):
    """A kind of traffic. traffic_share: of all requests. slo_*: what its users are promised."""

    traffic_share: float
    slo_ttft_s: float | None = None
    slo_e2e_s: float | None = None


class TaskSpec(Record, frozen=True, kw_only=True):
    """What the gate needs to know of a task beyond its YAML.

    cluster_key: the document field whose equal values belong together; empty: none.
    """

    request_class: str
    format: Literal["none", "json"] = "none"
    refusal: Literal["none", "expected", "unexpected"] = "none"
    cluster_key: str = ""


class EvalsetSpec(Record, frozen=True, kw_only=True):
    """The whole of evalset.toml."""

    schema: int
    name: str
    description: str = ""
    timing: str = ""
    classes: dict[str, RequestClass] = {}
    tasks: dict[str, TaskSpec] = {}


class Evalset(Record, frozen=True, kw_only=True):
    """A loaded evalset. ``tasks``, ``configs`` and ``documents`` by task, in evalset.toml's order.

    configs: the YAMLs as plain data. sha256: over the names and contents of all files read.
    """

    name: str
    folder: Path
    spec: EvalsetSpec
    tasks: dict[str, TaskFile]
    configs: dict[str, Document]
    documents: dict[str, tuple[Document, ...]]
    timing: tuple[TimingPrompt, ...]
    sha256: str


def load_evalset(project: Project, key: str, value: str) -> Evalset:
    """Read the evalset that gate.toml's ``key`` names: a folder, or ``builtin:NAME``.

    Raises UsageError: one sentence with the file, the line or key path, and the next step.
    """
    return read_evalset(find_evalset(project, key, value))


def read_evalset(folder: Path) -> Evalset:
    """Read an evalset's folder. Raises UsageError as ``load_evalset`` does."""
    files = Files()
    spec = read_toml(folder, files, EvalsetSpec)
    check_spec(folder / "evalset.toml", spec)
    read = _read_tasks(folder, files)
    _match_tasks(folder, spec, set(read))
    documents = {name: _read_test_split(folder, read[name][0], files) for name in spec.tasks}
    timing = read_timing(folder, spec.timing, files) if spec.timing else ()
    _check_clusters(folder, spec, documents)
    _check_timing(folder / spec.timing, spec, documents, timing)
    return Evalset(
        name=spec.name,
        folder=folder,
        spec=spec,
        tasks={name: read[name][0] for name in spec.tasks},
        configs={name: read[name][1] for name in spec.tasks},
        documents=documents,
        timing=timing,
        sha256=hash_files(files),
    )


def map_classes(spec: EvalsetSpec) -> dict[str, str]:
    """Return task -> request class."""
    return {name: task.request_class for name, task in spec.tasks.items()}


def find_evalset(project: Project, key: str, value: str) -> Path:
    """Return the folder an evalset's configured name means. Raises UsageError."""
    if value.startswith(BUILTIN):
        return _find_builtin(project, key, value)
    folder = resolve_inside(project, key, value)
    if not folder.is_dir():
        msg = (
            f"{project.path.name}: {key} = {value!r}, and {folder} is no folder; "
            "name an evalset folder such as evalsets/smoke"
        )
        raise UsageError(msg)
    return folder


def _find_builtin(project: Project, key: str, value: str) -> Path:
    name = value.removeprefix(BUILTIN)
    folder = BUILTIN_FOLDER / name
    if re.fullmatch(r"\w[\w-]*", name) and folder.is_dir():
        return folder
    known = sorted(path.parent.name for path in BUILTIN_FOLDER.glob("*/evalset.toml"))
    msg = (
        f"{project.path.name}: {key} = {value!r}, but this version brings "
        f"{', '.join(known) or 'no evalset'}; name one of those or a folder"
    )
    raise UsageError(msg)


def hash_files(files: Files) -> str:
    """Return the sha256 over names and contents, in order of name, lengths included."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        encoded = name.encode()
        digest.update(b"%d %d\n" % (len(encoded), len(content)) + encoded + content)
    return digest.hexdigest()


# -------------------------------------------------------------------- checks


def check_spec(path: Path, spec: EvalsetSpec) -> None:
    """Raise UsageError where classes, traffic shares and tasks do not fit together."""
    used = set(map_classes(spec).values())
    unknown, idle = sorted(used - set(spec.classes)), sorted(set(spec.classes) - used)
    total = math.fsum(one.traffic_share for one in spec.classes.values())
    without = [name for name, one in spec.classes.items() if not one.traffic_share > 0.0]
    reserved = sorted(RESERVED & set(spec.classes))
    slashed = [name for name in spec.tasks if "/" in name]
    checks = (
        (spec.schema == SCHEMA, f"schema = {spec.schema}; this version reads schema {SCHEMA}"),
        (bool(spec.tasks), "has no tasks and so no documents; add a [tasks.NAME] table"),
        (not slashed, f"the task name {slashed[:1]} holds a slash; take it out"),
        (not unknown, f"tasks name the class {unknown[:1]} that [classes] lacks; add its traffic"),
        (not reserved, f"a class is named {reserved[:1]}, which means something else; rename it"),
        (not without, f"the class {without[:1]} has no traffic; give it a share above 0"),
        (not idle, f"the class {idle[:1]} has no task; add one, or drop the class"),
        (
            math.isclose(total, 1.0, abs_tol=1e-6),
            f"the traffic shares sum to {total:.6g}; make them sum to 1",
        ),
    )
    for holds, message in checks:
        if not holds:
            msg = f"{path}: {message}"
            raise UsageError(msg)


def _read_tasks(folder: Path, files: Files) -> dict[str, tuple[TaskFile, Document]]:
    """Return every task YAML of the folder by task name."""
    read: dict[str, tuple[TaskFile, Document]] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        task, data = read_task(folder, path.name, files)
        if task.task in read:
            msg = f"{path}: the task {task.task!r} is in another file too; give it its own name"
            raise UsageError(msg)
        read[task.task] = (task, data)
    return read


def _match_tasks(folder: Path, spec: EvalsetSpec, found: set[str]) -> None:
    for name in sorted(set(spec.tasks) - found):
        msg = f"{folder / 'evalset.toml'}: no YAML has 'task: {name}'; add it to the folder"
        raise UsageError(msg)
    for name in sorted(found - set(spec.tasks)):
        msg = f"{folder / 'evalset.toml'}: the YAML of {name!r} has no [tasks.{name}]; add it"
        raise UsageError(msg)


def _read_test_split(folder: Path, task: TaskFile, files: Files) -> tuple[Document, ...]:
    return read_documents(folder, task.dataset_kwargs.data_files[task.test_split], files)


def _check_clusters(
    folder: Path, spec: EvalsetSpec, documents: dict[str, tuple[Document, ...]]
) -> None:
    for name, task in spec.tasks.items():
        for row in documents[name] if task.cluster_key else ():
            if row.get(task.cluster_key) is None:
                msg = (
                    f"{folder}: document {row['id']!r} of {name} lacks its cluster_key "
                    f"{task.cluster_key!r}; add the field or leave cluster_key empty"
                )
                raise UsageError(msg)


def _check_timing(
    path: Path,
    spec: EvalsetSpec,
    documents: dict[str, tuple[Document, ...]],
    timing: tuple[TimingPrompt, ...],
) -> None:
    """A timing prompt belongs to a class and is sent nowhere else: drafters remember."""
    seen = {str(row["prompt"]) for rows in documents.values() for row in rows}
    for row in timing:
        if row.request_class not in spec.classes:
            msg = f"{path}: {row.id!r} has class {row.request_class!r}; name one of evalset.toml"
            raise UsageError(msg)
        if row.prompt in seen:
            msg = f"{path}: the prompt of {row.id!r} is used elsewhere in the evalset; replace it"
            raise UsageError(msg)
        seen.add(row.prompt)

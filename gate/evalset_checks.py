"""What can be said of an evalset before a run, and adding documents to one.

What would be refused is refused (UsageError); what would be weak evidence is a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gate.decoders.base import load_object
from gate.errors import UsageError
from gate.evalset import Evalset, read_evalset
from gate.evalset_files import Document, Files, read_documents
from gate.measures.power import required_n_zero_flips
from gate.records import Criterion
from gate.store import write_atomically

LEVEL = 0.95
SHARES = ("task_delta", "error_rate")  # what a run compares document by document, with a margin
FEW = 8  # clusters: fewer bound nothing
TASKS = "gate.measures.tasks"


class Note(NamedTuple):
    """One thing to know. is_fine: nothing to do about it."""

    is_fine: bool
    message: str


def examine_evalset(folder: Path, criteria: Sequence[Criterion] = ()) -> list[Note]:
    """Return what to know of an evalset; criteria: those whose margins it has to decide.

    Raises UsageError where a run would be refused: templates are rendered, patterns compiled.
    """
    evalset = read_evalset(folder)
    n_requests = len(load_object(f"{TASKS}:plan_requests")(evalset, 0))
    return [
        Note(True, _describe_whole(evalset, n_requests)),  # noqa: FBT003 - a record's field
        *_note_sizes(evalset),
        *_note_margins(evalset, criteria),
        *_note_twice(evalset),
        *_note_targets(evalset),
        *_note_clusters(evalset),
        *_note_timing(evalset),
        *_note_slos(evalset),
    ]


def smallest_loss(n: int) -> float:
    """Return the loss that ``n`` documents without a changed answer leave possible, 95%.

    Zero of n flips: 1 - 0.05^(1/n), the exact binomial bound.
    """
    return float(1.0 - (1.0 - LEVEL) ** (1.0 / n))


def _describe_whole(evalset: Evalset, n_requests: int) -> str:
    n_documents = sum(map(len, evalset.documents.values()))
    return (
        f"{evalset.name}: {n_documents} documents of {len(evalset.tasks)} tasks in "
        f"{len(evalset.spec.classes)} classes, {n_requests} requests with repeats, "
        f"{len(evalset.timing)} timing prompts, sha256 {evalset.sha256[:12]}"
    )


def _note_sizes(evalset: Evalset) -> Iterator[Note]:
    total = sum(map(len, evalset.documents.values()))
    yield Note(
        is_fine=True,
        message=f"together: no changed answer in {total} certifies a loss below "
        f"{smallest_loss(total):.1%} (95%)",
    )
    for name, rows in evalset.documents.items():
        loss = f"{smallest_loss(len(rows)):.1%}"
        yield Note(is_fine=True, message=f"task {name}: {len(rows)} documents, a loss below {loss}")


def _note_margins(evalset: Evalset, criteria: Sequence[Criterion]) -> Iterator[Note]:
    """Tell which margins these documents cannot decide, even where none differs."""
    total = sum(map(len, evalset.documents.values()))
    for criterion in criteria:
        is_margin = criterion.measure in SHARES and criterion.rule == "non_inferior"
        if not (is_margin and 0 < criterion.margin < 1):
            continue
        n = required_n_zero_flips(criterion.margin, criterion.confidence_level)
        pooled = criterion.groups == "all"
        short = total if pooled else min(map(len, evalset.documents.values()))
        if short < n:
            yield Note(
                is_fine=False,
                message=f"criterion {criterion.name!r}: its margin of {criterion.margin:g} needs "
                f"{n} documents{'' if pooled else ' per task'} without a flip, and there are "
                f"{short}; add documents, or write down a wider margin",
            )


def _note_twice(evalset: Evalset) -> Iterator[Note]:
    """Equal prompts are one piece of evidence, decoded twice."""
    prompts = Counter(str(row["prompt"]) for rows in evalset.documents.values() for row in rows)
    n_twice = sum(n - 1 for n in prompts.values())
    if n_twice:
        yield Note(
            is_fine=False,
            message=f"{n_twice} documents have a prompt that another has too; take them out, or "
            "give both the same value under a cluster_key",
        )


def _note_targets(evalset: Evalset) -> Iterator[Note]:
    for name, task in evalset.tasks.items():
        key = task.doc_to_target.strip().removeprefix("{{").removesuffix("}}").strip()
        empty = [row["id"] for row in evalset.documents[name] if not str(row.get(key, "?")).strip()]
        if empty:
            yield Note(
                is_fine=False,
                message=f"task {name}: {len(empty)} documents have no text under {key!r} "
                f"({empty[0]!r} first), so only an empty answer would be right",
            )


def _note_clusters(evalset: Evalset) -> Iterator[Note]:
    for name, task in evalset.spec.tasks.items():
        if task.cluster_key:
            n = len({str(row[task.cluster_key]) for row in evalset.documents[name]})
            yield Note(
                is_fine=n >= FEW,
                message=f"task {name}: {n} clusters by {task.cluster_key!r}"
                + ("" if n >= FEW else f"; an interval needs at least {FEW}"),
            )


def _note_timing(evalset: Evalset) -> Iterator[Note]:
    counts = Counter(row.request_class for row in evalset.timing)
    most = min((counts[name] // 2 for name in evalset.spec.classes), default=0)
    yield Note(
        is_fine=most > 0,
        message=f"timing: enough prompts for run.timing_per_class = {most}"
        + ("" if most else "; a class needs two, or speed cannot be measured"),
    )


def _note_slos(evalset: Evalset) -> Iterator[Note]:
    without = [
        name
        for name, one in evalset.spec.classes.items()
        if one.slo_ttft_s is None and one.slo_e2e_s is None
    ]
    if without:
        yield Note(is_fine=True, message=f"no latency promise (slo_*) for {', '.join(without)}")


# ------------------------------------------------------------------------ add


def add_documents(folder: Path, task: str, source: Path) -> tuple[int, int]:
    """Append a JSONL's documents to a task; returns how many, and how many the task has now.

    Nothing is written unless all of them are sound: an id or a prompt that the evalset has
    already, or a row that the task's templates cannot render, is a UsageError.
    """
    evalset = read_evalset(folder)
    if task not in evalset.tasks:
        msg = f"{folder}: there is no task {task!r}; name one of {', '.join(evalset.tasks)}"
        raise UsageError(msg)
    rows = read_documents(source.resolve().parent, source.name, Files())
    _refuse_known(evalset, task, rows, source)
    joined = (*evalset.documents[task], *rows)
    documents = evalset.documents | {task: joined}
    load_object(f"{TASKS}:plan_requests")(msgspec.structs.replace(evalset, documents=documents), 0)
    _append(folder, evalset, task, rows)
    return len(rows), len(joined)


def _refuse_known(evalset: Evalset, task: str, rows: Sequence[Document], source: Path) -> None:
    ids = {row["id"] for row in evalset.documents[task]}
    prompts = {str(row["prompt"]) for known in evalset.documents.values() for row in known}
    prompts |= {row.prompt for row in evalset.timing}
    common = set.intersection(*(set(row) for row in evalset.documents[task]))
    for row in rows:
        prompt = str(row["prompt"])
        problem = (
            f"its id is taken in {task}"
            if row["id"] in ids
            else "its prompt is in the evalset already"
            if prompt in prompts
            else f"it lacks {', '.join(sorted(common - set(row)))}, which its task's others have"
            if common - set(row)
            else ""
        )
        if problem:
            msg = f"{source}: document {row['id']!r}: {problem}; nothing was added"
            raise UsageError(msg)
        prompts.add(prompt)


def _append(folder: Path, evalset: Evalset, task: str, rows: Sequence[Document]) -> None:
    file = evalset.tasks[task]
    path = folder / file.dataset_kwargs.data_files[file.test_split]
    text = path.read_bytes()
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    write_atomically(path, text + (b"" if text.endswith(b"\n") else b"\n") + lines)

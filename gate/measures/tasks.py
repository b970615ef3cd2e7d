"""lm-eval: plan requests from an evalset's tasks, score stored generations by replay.

The only importer of lm_eval, which never calls a model here: prompts come out of its
tasks, and its evaluation answers from stored texts. It gets documents from memory and its
request cache stays off, so nothing touches the network or a cache folder and no environment
variable is needed; its templates run in a sandbox.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import datasets
import msgspec
from lm_eval import utils as harness
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

from gate.errors import RunError, UsageError
from gate.evalset import Evalset, map_classes
from gate.evalset_files import Document, GenerationKwargs
from gate.measures.sandbox import BoundedEnvironment
from gate.measures.task_deltas import TaskScore
from gate.records import Generation, Request, Sampling

Texts = Mapping[str, str | tuple[str, ...]]
"""Request id -> what the decoder returned; one text per repeat where a task repeats."""


harness.env = BoundedEnvironment(harness.env.filters)
logging.getLogger("lm_eval").setLevel(logging.ERROR)


# ----------------------------------------------------------------------- plan


def plan_requests(evalset: Evalset, seed: int, eos_ids: Sequence[int] = ()) -> list[Request]:
    """Return the evalset's requests, task by task; a request id is "task/document id".

    A document that its task repeats comes as one request per repeat. Raises UsageError
    where lm-eval refuses a task.
    """
    classes = map_classes(evalset.spec)
    planned = []
    for name, task in _load_tasks(evalset, list(evalset.tasks)).items():
        _build_requests(evalset, name, task)
        for instance in task.instances:
            request = _make_request(instance, classes[name], seed, eos_ids)
            planned += [
                msgspec.structs.replace(request, repeat=repeat)
                for repeat in range(instance.repeats)
            ]
    return planned


def _build_requests(evalset: Evalset, name: str, task: Any) -> None:
    """Let lm-eval render a task's templates. Raises UsageError where one cannot be rendered."""
    try:
        with _quiet():
            task.build_all_requests(rank=0, world_size=1)
    except Exception as error:
        reason = " ".join(str(error).split())
        msg = f"{evalset.folder}: the templates of {name!r} cannot be rendered ({reason}); correct "
        msg += "its YAML, or its rows"
        raise UsageError(msg) from error


def _make_request(
    instance: Any,
    request_class: str,
    seed: int,
    eos_ids: Sequence[int],
) -> Request:
    text, kwargs = instance.args[0], msgspec.convert(instance.args[1], GenerationKwargs)
    return Request(
        id=f"{instance.task_name}/{instance.doc['id']}",
        task=instance.task_name,
        request_class=request_class,
        prompt=({"role": "user", "content": text},),
        max_tokens=kwargs.max_gen_toks,
        stop=(kwargs.until,) if isinstance(kwargs.until, str) else kwargs.until,
        eos_ids=tuple(eos_ids),
        sampling=_read_sampling(kwargs, seed),
    )


def _read_sampling(kwargs: GenerationKwargs, seed: int) -> Sampling:
    return Sampling(
        temperature=0.0 if kwargs.do_sample is False else kwargs.temperature,
        top_k=kwargs.top_k,
        top_p=kwargs.top_p,
        min_p=kwargs.min_p,
        repetition_penalty=kwargs.repetition_penalty,
        presence_penalty=kwargs.presence_penalty,
        frequency_penalty=kwargs.frequency_penalty,
        seed=seed,
    )


# ---------------------------------------------------------------------- score


def score_generations(evalset: Evalset, texts: Texts) -> list[TaskScore]:
    """Return lm-eval's score of every document that has a text (all its repeats).

    A document without one, its request failed say, gets no score. RunError where lm-eval
    cannot score.
    """
    places = _find_answered(evalset, texts)
    tasks = _load_tasks(evalset, list(places))
    if not tasks:
        return []
    try:
        with _quiet():
            results = evaluate(
                _Replay(texts),
                {"tasks": tasks},
                samples=places,
                bootstrap_iters=0,
                log_samples=True,
            )
    except Exception as error:
        msg = f"{evalset.folder}: lm-eval cannot score the outputs ({error!r}); correct the task"
        raise RunError(msg) from error
    return [
        score
        for name in tasks
        for sample in results["samples"][name]
        for score in _read_scores(name, sample, evalset.spec.tasks[name].cluster_key)
    ]


def _find_answered(evalset: Evalset, texts: Texts) -> dict[str, list[int]]:
    """Return task -> places of the documents with an answer, in order; tasks with none left out."""
    answered = {}
    for name, rows in evalset.documents.items():
        repeats = evalset.tasks[name].repeats
        places = [
            place
            for place, row in enumerate(rows)
            if len(_list_texts(texts.get(f"{name}/{row['id']}", ()), repeats)) >= repeats
        ]
        if places:
            answered[name] = places
    return answered


def gather_texts(generations: Iterable[Generation]) -> dict[str, tuple[str, ...]]:
    """Return the texts that ``score_generations`` takes, repeats in order, failures left out."""
    texts: dict[str, tuple[str, ...]] = {}
    for one in sorted(generations, key=lambda one: one.repeat):
        if one.finish != "error":
            texts[one.request_id] = (*texts.get(one.request_id, ()), one.text)
    return texts


def _list_texts(answer: str | tuple[str, ...], n_repeats: int = 1) -> tuple[str, ...]:
    if isinstance(answer, str) and n_repeats > 1:
        msg = f"one text for a document of {n_repeats} repeats; give a tuple (gather_texts)"
        raise ValueError(msg)
    return (answer,) if isinstance(answer, str) else answer


def _read_scores(task: str, sample: Mapping[str, Any], cluster_key: str) -> list[TaskScore]:
    """Return one score per metric of one document under one filter."""
    document = sample["doc"]
    return [
        TaskScore(
            task=task,
            filter=sample["filter"],
            metric=metric,
            doc_id=sample["doc_id"],
            request_id=f"{task}/{document['id']}",
            value=float(sample[metric]),
            doc_hash=sample["doc_hash"],
            prompt_hash=sample["prompt_hash"],
            target_hash=sample["target_hash"],
            cluster=str(document[cluster_key]) if cluster_key else "",
        )
        for metric in sample["metrics"]
    ]


class _Replay(LM):  # type: ignore[misc]  # lm-eval ships no types
    """Answers lm-eval from stored texts: its requests come with repeats side by side."""

    def __init__(self, texts: Texts) -> None:
        super().__init__()
        self._texts = texts

    def generate_until(self, requests: list[Any], *, disable_tqdm: bool = False) -> list[str]:
        """Return the stored text of each request."""
        del disable_tqdm
        seen: dict[str, int] = {}
        return [self._take(f"{one.task_name}/{one.doc['id']}", seen) for one in requests]

    def _take(self, request_id: str, seen: dict[str, int]) -> str:
        repeat = seen.get(request_id, 0)
        seen[request_id] = repeat + 1
        return _list_texts(self._texts[request_id])[repeat]

    def loglikelihood(self, requests: list[Any], *, disable_tqdm: bool = False) -> list[Any]:
        """Refuse: no task of an evalset asks for it."""
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


# -------------------------------------------------------------------- lm-eval


def _load_tasks(evalset: Evalset, names: list[str]) -> dict[str, Any]:
    """Return fresh task objects by name: lm-eval keeps responses in them. Raises UsageError."""
    if not names:
        return {}
    configs = [_make_config(evalset, name) for name in names]
    try:
        with _quiet():
            tasks: dict[str, Any] = TaskManager(include_defaults=False).load(configs)["tasks"]
    except Exception as error:
        reason = " ".join(str(error).split())
        msg = f"{evalset.folder}: lm-eval refuses the tasks ({reason}); correct their YAML or rows"
        raise UsageError(msg) from error
    return tasks


def _make_config(evalset: Evalset, name: str) -> Document:
    """Return the task's YAML with its documents from memory: those that were hashed."""
    config = copy.deepcopy(evalset.configs[name])
    del config["dataset_path"], config["dataset_kwargs"]
    split, rows = evalset.tasks[name].test_split, evalset.documents[name]
    return config | {"custom_dataset": _serve_rows(split, rows)}


def _serve_rows(split: str, rows: Sequence[Document]) -> Callable[..., dict[str, Any]]:
    def serve(**_: object) -> dict[str, Any]:
        return {split: datasets.Dataset.from_list(list(rows))}

    return serve


def _quiet() -> contextlib.AbstractContextManager[object]:
    """Keep lm-eval's progress bars off the terminal; the gate draws its own."""
    return contextlib.redirect_stderr(io.StringIO())

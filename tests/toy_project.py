"""A whole project around the toy model: gate.toml, evalset and model folder, run in seconds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.evalsets import YAML

CLASSES = ("maths", "structured")
FAULTY = Path(__file__).parent / "faulty_decoders.py"
WORDS = ("one two three", "a b c d e", "red green blue", "north south", "in on at in on at")


def write_model(folder: Path, toy: Any) -> None:
    """Save the toy model where gate.toml can name it."""
    toy.model.save_pretrained(folder)
    toy.tokenizer.save_pretrained(folder)


def make_prompt(name: str, n: int) -> str:
    """Return the prompt of a class's n-th document."""
    return f"{name} {n}: {WORDS[n % 5]}. {WORDS[(n * 3) % 5]}"


def write_evalset(folder: Path, n_documents: int = 30, max_tokens: int = 24) -> None:
    """Write two tasks of ``n_documents`` prompts each, and timing prompts."""
    folder.mkdir(parents=True)
    lines = ["schema = 1", 'name = "toy"', 'timing = "timing.jsonl"']
    for name in CLASSES:
        lines += [f"[classes.{name}]", "traffic_share = 0.5"]
    for name in CLASSES:
        lines += [f"[tasks.toy_{name}]", f'request_class = "{name}"']
        rows = [
            {"id": f"{name}{i}", "prompt": make_prompt(name, i), "target": "x"}
            for i in range(n_documents)
        ]
        write_rows(folder / f"toy_{name}.jsonl", rows)
        yaml = YAML.format(task=f"toy_{name}")
        yaml = yaml.replace("max_gen_toks: 8", f"max_gen_toks: {max_tokens}")
        (folder / f"toy_{name}.yaml").write_text(yaml)
    (folder / "evalset.toml").write_text("\n".join(lines) + "\n")
    timing = [
        {
            "id": f"t-{name}-{i}",
            "request_class": name,
            "prompt": f"timing {name} {i}",
            "max_tokens": 8,
            "stop": [],
        }
        for name in CLASSES
        for i in range(2)
    ]
    write_rows(folder / "timing.jsonl", timing)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


GATE_TOML = """\
schema = 1
evalset = "evalset"
claim = "{claim}"
purpose = "{purpose}"

[model]
id = "model"

[run]
batch = 8
timing_per_class = 1
resamples = 20000
skip_conformance = {skip}
{run}

[baseline]
{baseline}

[candidate]
{candidate}

[[criteria]]
name = "task accuracy"
measure = "task_delta"
rule = "non_inferior"
margin = 0.10
rationale = "toy"
"""

LOOKAHEAD = 'kind = "lookahead"'
PLAIN = 'kind = "autoregressive"'


def write_gate(
    folder: Path,
    *,
    candidate: str = LOOKAHEAD,
    baseline: str = PLAIN,
    claim: str = "lossless",
    purpose: str = "content",
    run: str = "",
    skip_conformance: str = "toy",
) -> Path:
    """Write gate.toml; returns its path."""
    text = GATE_TOML.format(
        claim=claim,
        purpose=purpose,
        run=run,
        baseline=baseline,
        candidate=candidate,
        skip=json.dumps(skip_conformance),
    )
    path = folder / "gate.toml"
    path.write_text(text)
    return path


def write_project(folder: Path, toy: Any) -> Path:
    """Write model, evalset, faulty decoders and gate.toml; returns the folder."""
    (folder / "pyproject.toml").write_text("")
    write_model(folder / "model", toy)
    write_evalset(folder / "evalset")
    (folder / FAULTY.name).write_text(FAULTY.read_text())
    return folder


def faulty(name: str, **options: object) -> str:
    """Return the table of a faulty decoder."""
    extra = "".join(f"\n{key} = {json.dumps(value)}" for key, value in options.items())
    return f'kind = "python"\ntarget = "faulty_decoders:make"\nfault = "{name}"{extra}'


def forget_modules() -> None:
    """Let the next project import its own faulty_decoders."""
    sys.modules.pop("faulty_decoders", None)

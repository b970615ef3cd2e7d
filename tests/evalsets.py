"""A small evalset on disk, and the project around it."""

from __future__ import annotations

import json
from pathlib import Path

from gate.config import Config, ModelConfig, Project

TOML = """\
schema = 1
name = "tiny"
timing = "timing.jsonl"

[classes.maths]
traffic_share = 0.75

[classes.structured]
traffic_share = 0.25

[tasks.sums]
request_class = "maths"

[tasks.objects]
request_class = "structured"
format = "json"
"""

YAML = """\
task: {task}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {task}.jsonl
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{target}}}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 8
  do_sample: false
filter_list:
  - name: strict
    filter:
      - function: take_first
metric_list:
  - metric: exact_match
"""

Row = dict[str, object]
SUMS: list[Row] = [
    {"id": f"s{i}", "prompt": f"{i} + {i} =", "target": str(2 * i)} for i in range(3)
]
OBJECTS: list[Row] = [
    {"id": f"o{i}", "prompt": f"n = {i} as JSON", "target": f'{{"n": {i}}}'} for i in range(2)
]


def timing_row(request_class: str, i: int) -> Row:
    """One held-back prompt."""
    text = f"{request_class} {i}"
    return {
        "id": f"{request_class}-{i}",
        "request_class": request_class,
        "prompt": text,
        "max_tokens": 4,
        "stop": ["\n"],
    }


def write_rows(path: Path, rows: list[Row]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_evalset(folder: Path) -> Path:
    """Write the whole evalset; tests then break one thing of it."""
    folder.mkdir(parents=True)
    (folder / "evalset.toml").write_text(TOML)
    for task, rows in (("sums", SUMS), ("objects", OBJECTS)):
        (folder / f"{task}.yaml").write_text(YAML.format(task=task))
        write_rows(folder / f"{task}.jsonl", rows)
    timing = [timing_row(name, i) for name in ("maths", "structured") for i in range(4)]
    write_rows(folder / "timing.jsonl", timing)
    return folder


def make_project(root: Path) -> Project:
    """Return a project whose gate.toml lies in ``root``."""
    config = Config(
        schema=1, evalset="tiny", model=ModelConfig(id="toy"), baseline={}, candidate={}
    )
    return Project(config=config, path=root / "gate.toml", folder=root, root=root)

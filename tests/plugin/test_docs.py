"""docs/pytest.md and docs/ci.md are followed to the letter."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from gate import plugin
from tests import faulty_decoders
from tests.export.builders import make_decision, make_verdict
from tests.plugin.running import write_decision

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pytest.md").read_text(encoding="utf-8")
CI = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
TOY = """
from tests.conftest import build_byte_tokenizer, build_toy_model

def load_toy():
    tokenizer = build_byte_tokenizer()
    return build_toy_model(len(tokenizer)), tokenizer
"""


def write_examples(folder: Path) -> None:
    """Write the page's Python blocks under the names in their first lines."""
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        name = block.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(block)


@pytest.mark.usefixtures("toy")  # torch is imported before: pytester would forget it
@pytest.mark.parametrize(
    ("fault", "outcomes"), [("none", "passed"), ("unverified-first", "failed")]
)
def test_the_examples_run_and_tell_a_lossless_decoder_from_a_drifting_one(
    pytester: pytest.Pytester, fault: str, outcomes: str
) -> None:
    write_examples(pytester.path)
    (pytester.path / "my_project.py").write_text(TOY)
    decoder = Path(faulty_decoders.__file__).read_text()
    made = decoder.replace('fault: str = "none"', f'fault: str = "{fault}"')
    (pytester.path / "my_decoder.py").write_text(made)
    pytester.syspathinsert()
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(**{outcomes: 1})


def test_every_option_and_fixture_is_documented() -> None:
    options = re.findall(r'"(--gate-[a-z-]+)"', Path(plugin.__file__).read_text())
    assert len(options) == 3
    for name in (*options, *plugin.__all__, *(marker.split(":")[0] for marker in plugin.MARKERS)):
        assert name in PAGE


@pytest.mark.parametrize(
    ("outcome", "nox_code", "code"), [("PASS", 0, 0), ("INCONCLUSIVE", 1, 1), (None, 1, 2)]
)
def test_the_generic_recipe_tells_red_from_refused(
    tmp_path: Path, outcome: str | None, nox_code: int, code: int
) -> None:
    recipe = CI.split("```sh\n")[1].split("```")[0].replace("python -m pip install nox\n", "")
    if outcome:
        latest = tmp_path / "reports" / "latest"
        latest.mkdir(parents=True)
        write_decision(latest, make_decision(outcome, make_verdict(outcome)))
    script = f"nox() {{ return {nox_code}; }}\n{recipe}"
    done = subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert (f"decoding gate: {outcome}" in done.stdout) == (outcome is not None)


def read_yaml(path: Path) -> dict[Any, Any]:
    """Return a YAML file."""
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def test_the_workflow_of_the_examples_is_the_one_that_init_writes_with_a_deploy_job() -> None:
    example = read_yaml(ROOT / "examples" / "github-actions" / "gate.yml")
    written = read_yaml(ROOT / "gate" / "init" / "templates" / "github.yml")
    deploy = example["jobs"].pop("deploy")
    assert example == written
    assert "gate check --decision" in json.dumps(deploy)


def test_the_snippets_of_the_ci_page_are_yaml() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", CI, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        yaml.safe_load(block)

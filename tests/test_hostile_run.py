"""A whole run whose candidate writes attacks: every surface shows them as text."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gate.cli import main
from tests import toy_project
from tests.report.hostile import Outline
from tests.toy_project import faulty, write_gate

HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
LARGEST = {"report.html": 3_000_000, "summary.md": 65_536, "junit.xml": 1_000_000}


@pytest.fixture(scope="module")
def finished(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run whose candidate is hostile."""
    project = toy_project.write_project(tmp_path_factory.mktemp("project"), toy)
    config = write_gate(project, candidate=faulty("hostile"))
    assert main(["run", "--config", str(config), "--quiet", "--redact"]) == 3
    yield project / "reports/latest"
    toy_project.forget_modules()


def test_the_run_ends_in_a_decision_that_can_be_read(finished: Path) -> None:
    decision = json.loads((finished / "decision.json").read_text())
    assert decision["outcome"] == "FAIL"
    texts = json.dumps(decision)
    assert "<script>window.ran" in texts
    assert r"\\ud800" in texts


@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("folder", ["", "redacted"])
def test_every_surface_is_bounded_and_holds_nothing_hidden(
    finished: Path, folder: str, name: str
) -> None:
    text = (finished / folder / name).read_text()
    assert len(text.encode()) < LARGEST[name]
    assert not HIDDEN.search(text)


def test_the_page_holds_no_element_but_its_own(finished: Path) -> None:
    outline = Outline((finished / "report.html").read_text())
    assert outline.broken == []
    assert outline.count("script") == 1
    assert outline.count("img") == 0
    assert "<script>window.ran = 1</script>" in outline.text


def test_the_xml_is_well_formed_and_the_markdown_links_nothing(finished: Path) -> None:
    assert list(ET.fromstring((finished / "junit.xml").read_text()).iter("failure"))
    assert "](javascript:" not in (finished / "summary.md").read_text()


def test_the_redacted_copy_repeats_none_of_it(finished: Path) -> None:
    for path in (finished / "redacted").iterdir():
        assert "window.ran" not in path.read_text()
        assert "xxxxxxxxxx" not in path.read_text()

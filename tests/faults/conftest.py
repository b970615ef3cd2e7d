"""One toy project for all tests of the catalogue: the baseline side runs once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gate.config import load_project
from gate.decoders.base import load_object
from gate.plan import SESSION, make_plan
from gate.progress import Progress
from gate.selftest import Options
from gate.selftest.bench import open_bench
from gate.selftest.examiner import Examiner
from gate.store import RunStore
from tests import toy_project


@pytest.fixture(scope="session")
def project_folder(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = toy_project.write_project(tmp_path_factory.mktemp("catalogue"), toy)
    toy_project.write_gate(folder, skip_conformance="")
    yield folder
    toy_project.forget_modules()


@pytest.fixture(scope="session")
def examiner(project_folder: Path) -> Examiner:
    """A quick self-test of the toy project, its baseline side done."""
    project, quiet = load_project(project_folder / "gate.toml"), Progress(is_quiet=True)
    plan = make_plan(project, quiet)
    session = load_object(f"{SESSION}:Session")(plan.resolved, project.config.model, project.folder)
    bench = open_bench(plan, session, RunStore(project_folder / "selftest"), quiet)
    return Examiner(bench, Options(quick=True))

"""The self-test in 16 bits: faults that rounding hides are run in float32 too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gate.cli import main
from gate.selftest import bench
from tests import toy_project

FAULTS = ("relaxed-tight", "logprob-shift")
CONTROL = "tie-last"


@pytest.fixture(scope="module")
def rows(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The rows of a quick self-test in bfloat16, by id."""
    folder = toy_project.write_project(tmp_path_factory.mktemp("rounded"), toy)
    config = toy_project.write_gate(folder, skip_conformance="")
    config.write_text(config.read_text().replace("[model]\n", '[model]\ndtype = "bfloat16"\n', 1))
    arguments = ["--quick", "--only", ",".join((*FAULTS, CONTROL)), "--json", str(folder / "f")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "SAMPLED_TOKENS", 64)
        assert main(["selftest", "--config", str(config), "--quiet", *arguments]) == 0
    found = json.loads((folder / "f").read_text())
    yield {row["id"]: row for row in (*found["faults"], *found["controls"])}
    toy_project.forget_modules()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_inside_the_band_of_bfloat16_is_caught(rows: dict[str, Any], name: str) -> None:
    assert (rows[name]["detected"], rows[name]["dtype"]) == (True, "bfloat16")


def test_a_lossless_control_is_not_flagged_in_either_dtype(rows: dict[str, Any]) -> None:
    assert rows[CONTROL]["reasons"] == []

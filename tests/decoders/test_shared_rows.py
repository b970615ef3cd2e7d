"""Rows that requests share where it is switched on by name: more is accepted, nothing changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gate.cli import main
from gate.decoders.lookahead import LookaheadDecoder
from gate.decoders.options import LookaheadOptions
from gate.decoders.sources import Recycled
from gate.models import LoadedModel
from gate.records import Generation
from tests import toy_project
from tests.decoders.helpers import (
    assert_same_outputs,
    decode_plainly,
    decode_with,
    greedy_requests,
)


def make_decoder(toy: LoadedModel, *, shared: bool) -> LookaheadDecoder:
    return LookaheadDecoder(toy, LookaheadOptions(rows=12, shared_rows=shared))


def count_accepted(generations: Sequence[Generation]) -> int:
    return sum(step.n_accepted for g in generations if g.trace for step in g.trace.steps)


@pytest.mark.parametrize("shared", [True, False])
def test_prompts_that_come_again_are_guessed_better_only_where_rows_are_shared(
    toy: LoadedModel,
    shared: bool,  # noqa: FBT001
) -> None:
    requests = greedy_requests(4)
    decoder = make_decoder(toy, shared=shared)
    plain = decode_plainly(toy, requests)
    first, second = (decode_with(decoder, requests) for _ in range(2))
    for found in (first, second):
        assert_same_outputs(toy, requests, plain, found)
    assert (count_accepted(second) > 1.2 * count_accepted(first)) == shared
    assert decoder.remembers == shared


def test_a_decoder_that_forgets_begins_anew(toy: LoadedModel) -> None:
    requests = greedy_requests(3)
    decoder = make_decoder(toy, shared=True)
    first = count_accepted(decode_with(decoder, requests))
    decoder.forget()
    assert count_accepted(decode_with(decoder, requests)) == first


def test_the_rows_said_longest_ago_are_forgotten_first() -> None:
    recycled = Recycled(most_keys=2)
    for token in (1, 2, 1, 3):
        recycled.add((token,), {9: 1.0})
    assert [recycled.find_one(token) is not None for token in (1, 2, 3)] == [True, False, True]


@pytest.fixture(scope="module")
def project(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield toy_project.write_project(tmp_path_factory.mktemp("shared"), toy)
    toy_project.forget_modules()


SHARED = 'kind = "lookahead"\nrows = 12\nshared_rows = true'
ROUTED = f"""\
kind = "routed"
default = {{ kind = "autoregressive" }}
[candidate.routes.maths]
{SHARED}"""


@pytest.mark.parametrize("table", [SHARED, ROUTED])
def test_the_memorisation_control_shows_what_a_run_gains_from_sharing(
    project: Path, table: str
) -> None:
    memory = find_memory(project, table)
    assert memory["detail"]["n_prompts"] == 20
    assert memory["detail"]["second_accepted"] > memory["detail"]["first_accepted"] > 0


def test_nothing_is_controlled_where_nothing_is_shared(project: Path) -> None:
    assert find_memory(project, 'kind = "lookahead"\nrows = 12') is None


def find_memory(project: Path, candidate: str) -> Any:
    """Run the gate; its comparison of prompts that came twice, or None."""
    config = toy_project.write_gate(project, candidate=candidate)
    assert main(["run", "--config", str(config), "--quiet"]) == 0
    decision = json.loads((project / "reports/latest/decision.json").read_text())
    assert decision["outcome"] == "PASS"
    return next((c for c in decision["comparisons"] if c["measure"] == "memorisation"), None)

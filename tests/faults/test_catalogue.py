from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gate.decoders.base import create, read_spec
from gate.errors import UsageError
from gate.faults import CATALOGUE, CONTROLS, make
from gate.models import LoadedModel
from gate.records import Request
from gate.selftest.examiner import Examiner
from gate.selftest.rows import ControlRow, FaultRow
from gate.selftest.sending import GROUPS

PUBLISHED = [
    "unverified-head",
    "lost-first",
    "relaxed-top-k",
    "draft-leak",
    "history-repeat",
    "argmax-at-temperature",
    "softmax-residual",
    "greedy-draft-soft-q",
    "raw-q",
    "unfiltered-target",
    "gumbel-at-end",
    "no-zeroing",
    "shared-noise",
    "seed-ignored",
    "engine-rng",
    "mixed-seeds",
    "eos-in-run",
    "stop-in-run",
    "stop-tail",
    "ids-not-trimmed",
    "budget-per-run",
    "min-tokens-ignored",
    "stream-one-per-run",
    "penalty-ignored",
    "penalty-rejected",
    "row-zero-only",
    "grammar-ignored",
    "grammar-not-rolled-back",
    "logprob-zero",
    "no-rollback",
    "cache-reset",
    "window-crop",
    "bonus-missing",
    "prefix-poison",
    "position-shift",
    "batch-order",
    "candidate-index",
    "baseline-not-baseline",
    "never-drafts",
    "drafts-never-accepted",
    "acceptance-collapse",
    "class-blend",
]
"""Faults that shipped somewhere; tie-last is a control."""
NOT_ON_THE_TOY = {
    "no-zeroing-noise": "nothing can see it; test_what_no_measure_can_see_is_declared_as_such",
    "rare-2000": "6,000 tokens show it; the toy run has fewer, and one hit of it is luck",
}


def test_the_catalogue_holds_every_published_fault() -> None:
    assert set(PUBLISHED) <= set(CATALOGUE)
    assert {"tie-last", "baseline", "width", "self-draft", "empty-pool", "random-pool"} <= set(
        CONTROLS
    )
    assert len(CATALOGUE) >= 40


def test_every_kind_has_several_faults_and_known_requests() -> None:
    kinds = Counter(fault.kind for fault in CATALOGUE.values())
    assert set(kinds) == set(GROUPS)
    assert all(n >= 2 for kind, n in kinds.items() if kind != "baseline")


def test_every_entry_says_what_goes_wrong_and_where_it_was_seen() -> None:
    for fault in CATALOGUE.values():
        assert fault.what.endswith(".")
        assert fault.source == "-" or fault.source.startswith("https://github.com/")
        assert fault.strength == 1.0 or fault.unit


def test_an_unknown_fault_is_refused(toy: LoadedModel) -> None:
    with pytest.raises(UsageError, match="not in the catalogue"):
        make(toy, "no-such-fault")


def test_gate_toml_reaches_a_fault_as_a_python_decoder(toy: LoadedModel) -> None:
    table: dict[str, object] = {
        "kind": "python",
        "target": "gate.faults:make",
        "fault": "eos-in-run",
    }
    decoder = create(read_spec("candidate", table), toy)
    request = Request(
        id="a", task="t", request_class="c", prompt=(65, 66), max_tokens=4, eos_ids=(276,)
    )
    assert [one.finish for one in decoder.generate([request])] == ["length"]
    assert decoder.spec.noise == "position_keyed"


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - set(NOT_ON_THE_TOY)))
def test_a_fault_is_detected_by_a_measure_of_its_kind(examiner: Examiner, name: str) -> None:
    row = examiner.test(name)
    assert isinstance(row, FaultRow)
    assert row.detected, f"{name}: {row.outcome}, other measures: {row.others}"


def test_what_no_measure_can_see_is_declared_as_such(examiner: Examiner) -> None:
    row = examiner.test("no-zeroing-noise")
    assert isinstance(row, FaultRow)
    assert (row.detected, bool(row.unseen)) == (False, True)
    assert [name for name, fault in CATALOGUE.items() if fault.unseen] == ["no-zeroing-noise"]


@pytest.mark.parametrize("name", sorted(CONTROLS))
def test_a_lossless_control_is_not_flagged(examiner: Examiner, name: str) -> None:
    row = examiner.test(name)
    assert isinstance(row, ControlRow)
    assert row.reasons == ()


def test_results_are_kept_and_read_back(examiner: Examiner, project_folder: Path) -> None:
    first = examiner.test("eos-in-run")
    assert (project_folder / "selftest/results/eos-in-run.json").exists()
    assert examiner.test("eos-in-run") == first

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from gate.conformance import FILE, Row, hash_conformance, load_conformance, plan_conformance
from gate.decoders.lookahead import LookaheadDecoder
from gate.decoders.options import LookaheadOptions
from gate.errors import UsageError
from gate.measures.conformance import compare_conformance
from gate.measures.paired import Arm
from gate.records import Generation, TokenLogprob
from tests.conformance_faults import FAULTS
from tests.conformance_toy import Bench

for _name in ("sampling", "delivery"):  # they register their faults
    importlib.import_module(f"tests.conformance_{_name}_faults")

EOS = (1, 2)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


# ------------------------------------------------------------------- the set


def test_the_set_has_about_sixty_requests_and_says_what_each_is_for() -> None:
    rows = load_conformance()
    assert 55 <= len(rows) <= 70
    assert all(row.what.endswith(".") for row in rows)
    assert sum(row.max_tokens for row in rows) / len(rows) < 15


def test_the_set_covers_every_parameter_a_request_can_carry() -> None:
    rows = load_conformance()
    for field in Row.__struct_fields__:
        default = {f.name: f.default for f in msgspec.structs.fields(Row)}[field]
        assert any(getattr(row, field) != default for row in rows), field
    for name in type(rows[0].sampling).__struct_fields__:
        assert any(getattr(row.sampling, name) not in {0.0, 1.0, None} for row in rows), name
    assert {row.sampling.temperature for row in rows} == {0.0, 0.7, 1.0}


def test_greedy_seeded_and_unseeded_requests_share_a_batch() -> None:
    batch = load_conformance()[:8]
    assert {(row.sampling.temperature > 0, row.sampling.seed is None) for row in batch} == {
        (False, True),
        (True, True),
        (True, False),
    }


def test_one_prompt_is_longer_than_small_windows() -> None:
    long = [row for row in load_conformance() if row.repeat_text > 10]
    assert [len((row.prompt * row.repeat_text).split()) >= 590 for row in long] == [True]


def test_the_set_is_seen_beside_the_other_evalsets() -> None:
    beside = Path(__file__).parent.parent / "evalsets" / "conformance" / "requests.jsonl"
    assert beside.read_bytes() == FILE.read_bytes()
    assert len(hash_conformance()) == 64


def count_words(text: object) -> list[int]:
    """A tokenizer: every character is a token."""
    return [ord(c) for c in str(text)]


def test_texts_become_tokens_of_the_tokenizer_at_hand() -> None:
    row = Row(
        id="r",
        what="x",
        prompt="ab",
        repeat_text=2,
        max_tokens=4,
        extra_eos=("xy",),
        bad_words=("bad",),
        logit_bias={" q": 5.0},
        n_repeats=2,
    )
    first, second = plan_conformance([row], count_words, count_words, EOS, seed=0)
    assert first.prompt == (97, 98, 97, 98)
    assert first.eos_ids == (1, 2, ord("y"))
    assert first.sampling.bad_words == (tuple(map(ord, "bad")),)
    assert first.sampling.logit_bias == {ord("q"): 5.0}
    assert (first.id, first.repeat, second.repeat) == ("conformance/r", 0, 1)
    assert (first.task, first.request_class) == ("conformance", "conformance")


def test_the_run_s_seed_moves_seeded_rows_and_leaves_the_others_unseeded() -> None:
    rows = load_conformance()[1:3]
    plans = [plan_conformance(rows, count_words, count_words, EOS, seed=seed) for seed in (0, 7)]
    assert [[r.sampling.seed for r in requests] for requests in plans] == [[None, 1], [None, 8]]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"id": "a", "what": "x", "prompt": "p", "max_tokens": 1, "top_q": 1}'], ":1: .*top_q"),
        (['{"id": "a", "what": "x", "max_tokens": 1}'], ":1: .*either a prompt or messages"),
        (['{"id": "a", "what": "x", "prompt": "p", "max_tokens": 1}'] * 2, "'a' is used twice"),
        (["{"], ":1: "),
        ([], "holds no request"),
    ],
)
def test_a_broken_set_is_refused_with_its_line(
    tmp_path: Path, lines: Sequence[str], words: str
) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError, match=words):
        load_conformance(path)


def test_a_missing_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="reinstall"):
        load_conformance(tmp_path / "none.jsonl")


# -------------------------------------------------------- our decoders conform


def test_plain_decoding_passes(bench: Bench) -> None:
    assert bench.failures(bench.baseline) == []


def test_lookahead_passes(bench: Bench) -> None:
    candidate = bench.run(LookaheadDecoder(bench.model, LookaheadOptions()))
    assert bench.failures(candidate) == []
    assert find_changed(bench, candidate) == set()


def test_accepted_runs_pass(bench: Bench) -> None:
    candidate = bench.run(bench.drafted())
    assert bench.failures(candidate) == []
    steps = [s for g in candidate.generations.values() if g.trace for s in g.trace.steps]
    assert sum(step.n_accepted for step in steps) > 400


# ------------------------------------------------- and faults in them are seen


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_exactly_the_requests_that_a_fault_changes_fail(
    bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[name]
    with monkeypatch.context() as patch:
        fault.inject(patch)
        candidate = bench.run(bench.drafted())
    failed = {f.request_id for f in bench.failures(candidate)}
    assert failed == find_changed(bench, candidate)
    assert failed
    assert failed <= {r.id for r in bench.requests if fault.touches(r)}
    assert failed >= {f"conformance/{row}" for row in fault.shown_by}


def test_a_fault_is_told_with_request_expectation_and_finding(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        FAULTS["stop_before_min_tokens"].inject(patch)
        candidate = bench.run(bench.drafted())
    conformance, baseline = compare_conformance(bench.pair(candidate))
    assert (conformance.candidate, conformance.baseline, baseline.baseline) == (1, 0, 0)
    failures = conformance.detail["failures"]
    assert isinstance(failures, list)
    assert failures[0]["request_id"] == "conformance/stop-min-tokens"
    assert failures[0]["arm"] == "candidate"
    assert failures[0]["expected"]
    assert failures[0]["came"]


def test_what_fails_in_both_arms_is_named_and_not_counted_against_the_candidate(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        FAULTS["logprobs_not_cut"].inject(patch)
        broken = bench.run(bench.drafted())
    both = dataclasses.replace(bench.pair(broken), baseline=broken)
    conformance, baseline = compare_conformance(both)
    assert (conformance.candidate, baseline.baseline) == (0, 1)
    assert conformance.detail["both"] == ["conformance/logprobs-stop"]


def find_changed(bench: Bench, candidate: Arm) -> set[str]:
    """Requests whose answer is not the baseline's; how a stream was cut does not count."""
    return {
        key[0]
        for key, known in bench.baseline.generations.items()
        if not is_same(known, candidate.generations[key])
    }


def is_same(one: Generation, other: Generation) -> bool:
    pairs = zip(one.logprobs or (), other.logprobs or (), strict=False)
    n_reported = (len(one.logprobs or ()), len(other.logprobs or ()))
    return (
        show(one) == show(other)
        and n_reported[0] == n_reported[1]
        and all(is_same_logprob(*pair) for pair in pairs)
    )


def show(generation: Generation) -> tuple[object, ...]:
    chunks = generation.trace.chunks if generation.trace else ()
    return (
        generation.text,
        generation.token_ids,
        generation.tail_ids,
        generation.finish,
        generation.usage,
        "".join(chunk.text for chunk in chunks),
        [token for chunk in chunks for token in chunk.token_ids],
    )


def is_same_logprob(one: TokenLogprob, other: TokenLogprob) -> bool:
    is_close = math.isclose(one.logprob, other.logprob, abs_tol=1e-3)
    return is_close and len(one.top) == len(other.top)

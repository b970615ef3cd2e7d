from __future__ import annotations

import msgspec

from gate.measures.acceptance_drop import compare_drop, count_work
from gate.measures.paired import Arm, Paired
from gate.records import (
    AcceptanceReference,
    DecoderSpec,
    Generation,
    NoiseBound,
    Request,
    Step,
    Trace,
)

BOUND = NoiseBound(
    bound=1e-3, dtype="float32", n_positions=1, n_rows=1, q999_one_row=0, q999_wide=0, source=""
)
STEPS = {"fast": (1, 3, 4, 3, 4), "slow": (1,) * 15, "mixed": (1, 2, 4, 2, 2, 4)}


def make_paired(*runs: tuple[str, str]) -> Paired:
    """(class, kind of trace) of each request, 15 tokens each."""
    requests, generations = {}, {}
    for n, (name, kind) in enumerate(runs):
        key = (f"r{n}", 0)
        requests[key] = Request(id=key[0], task="t", request_class=name, prompt=(1,), max_tokens=15)
        steps = tuple(Step(n_emitted=emitted) for emitted in STEPS[kind])
        generations[key] = Generation(
            request_id=key[0], text="x", finish="length", trace=Trace(steps=steps)
        )
    arm = Arm(spec=DecoderSpec(kind="lookahead"), generations=generations, scores={})
    return Paired(requests=requests, baseline=arm, candidate=arm, bound=BOUND)


def refer_to(paired: Paired) -> AcceptanceReference:
    return AcceptanceReference(
        evalset_sha256="e", model="m", dtype="float32", work=count_work(paired)
    )


APPROVED = make_paired(*[("code", "fast")] * 5, *[("chat", "fast")] * 5)


def test_nothing_is_measured_without_a_reference() -> None:
    assert compare_drop(APPROVED, None) == []


def test_the_same_acceptance_is_no_change_at_all() -> None:
    for found in compare_drop(APPROVED, refer_to(APPROVED)):
        assert found.difference is not None
        assert found.difference.interval == (0.0, 0.0)


def test_a_class_that_lost_its_acceptance_shows_beside_one_that_kept_it() -> None:
    now = make_paired(*[("code", "fast")] * 5, *[("chat", "slow")] * 5)
    found = {c.group: c for c in compare_drop(now, refer_to(APPROVED))}
    assert found["code"].candidate == 0.0
    assert found["chat"].candidate == 2.0  # 15 forwards where 5 were taken
    assert found["all"].candidate == 1.0


def test_uneven_changes_are_bounded_by_their_spread() -> None:
    now = make_paired(*[("code", "fast"), ("code", "mixed")] * 5)
    found = compare_drop(now, refer_to(make_paired(*[("code", "fast")] * 10)))[0]
    assert found.difference is not None
    low, high = found.difference.interval
    assert low is not None
    assert high is not None
    assert low < 0.1 < high


def test_requests_that_the_reference_does_not_know_are_not_compared() -> None:
    unknown = refer_to(make_paired())
    assert all(c.difference is None and c.note for c in compare_drop(APPROVED, unknown))


def test_a_reference_is_a_record_that_json_carries() -> None:
    reference = refer_to(APPROVED)
    raw = msgspec.json.encode(reference)
    assert msgspec.json.decode(raw, type=AcceptanceReference) == reference

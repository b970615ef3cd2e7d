"""Acceptance from the steps of traces: unknown is not zero, impossible is not evidence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gate.measures.acceptance import compare_acceptance
from gate.measures.means import ratio_of_means
from gate.records import Comparison, Generation, Request, Step, Trace
from tests.measures.pairs import make_paired

PREFILL = Step()


def draft(n_drafted: int, n_accepted: int) -> Step:
    return Step(
        n_rows=1 + n_drafted,
        n_drafted=n_drafted,
        n_accepted=n_accepted,
        n_emitted=n_accepted + 1,
        draft_s=0.1,
        wall_s=0.4,
    )


def compare(
    steps: Sequence[tuple[Step, ...] | None], classes: Sequence[str] | None = None
) -> dict[str, Comparison]:
    """None: the request failed."""
    names = classes or ["code"] * len(steps)
    requests = [
        Request(id=f"t/{i}", task="t", request_class=name, prompt="p", max_tokens=8)
        for i, name in enumerate(names)
    ]
    baseline = [
        Generation(request_id=one.id, finish="eos", trace=Trace(steps=(PREFILL, Step())))
        for one in requests
    ]
    candidate = [
        Generation(request_id=one.id, finish="error" if found is None else "eos",
                   trace=Trace(steps=found or ()))
        for one, found in zip(requests, steps, strict=True)
    ]  # fmt: skip
    found = compare_acceptance(make_paired(requests, baseline, candidate))
    return {one.group: one for one in found}


def test_no_requests_are_no_evidence() -> None:
    one = compare([])["all"]
    assert (one.difference, one.candidate, one.note) == (None, None, "no request was answered")


def test_all_failed_is_no_evidence() -> None:
    one = compare([None, None])["code"]
    assert one.difference is None
    assert (one.n_dropped, one.drop_reasons) == (2, {"a failed request": 2})


def test_a_decoder_that_does_not_say_is_unknown_and_not_zero() -> None:
    one = compare([(), ()])["all"]
    assert (one.candidate, one.difference) == (None, None)
    assert one.note == "the decoder does not say what it drafted"
    assert one.detail == {"unknown": 2}


def test_a_decoder_that_never_drafts_accepted_nothing_of_nothing() -> None:
    one = compare([(PREFILL, Step())])["all"]
    assert (one.candidate, one.note) == (None, "nothing was drafted")
    assert one.detail["tokens_per_forward"] == 1.0
    assert "accepted_per_draft" not in one.detail


@pytest.mark.parametrize(
    "broken",
    [
        Step(n_drafted=2, n_accepted=3, n_emitted=4),
        Step(n_drafted=2, n_accepted=2, n_emitted=1),
        Step(n_drafted=-1),
        Step(n_drafted=1, wall_s=-0.1),
        Step(n_drafted=1, draft_s=float("nan")),
    ],
)
def test_impossible_counts_are_dropped(broken: Step) -> None:
    one = compare([(PREFILL, broken), (PREFILL, draft(4, 2))])["all"]
    assert one.drop_reasons == {"impossible counts in the trace": 1}
    assert one.candidate == 0.5


def test_counts_and_ratios_follow_their_definitions() -> None:
    one = compare([(PREFILL, draft(4, 2), draft(4, 0)), (PREFILL, draft(2, 0))])["all"]
    expected = {
        "accepted": 2,
        "drafted": 10,
        "forwards": 5,
        "emitted": 7,
        "rows": 15,
        "requests": 2,
        "requests_with_accepted": 1,
        "steps_saved": 2,
        "tokens_per_forward": 7 / 5,
        "accepted_per_draft": 0.2,
        "extra_rows_per_accepted": 4.0,
        "unknown": 0,
    }
    assert expected.items() <= one.detail.items()
    assert one.detail["drafting_share_of_time"] == pytest.approx(0.25)
    assert one.baseline is None


def test_the_interval_is_over_requests_against_fieller() -> None:
    accepted = [1, 0, 2, 3, 1, 2, 0, 1]
    one = compare([(PREFILL, draft(4, n)) for n in accepted])["all"]
    assert one.difference is not None
    expected = ratio_of_means([4] * 8, accepted, 0.90)
    assert one.difference.interval == pytest.approx(expected.interval)
    assert one.difference.n == 8


def test_one_request_bounds_nothing_beyond_a_share() -> None:
    one = compare([(PREFILL, draft(4, 2))])["all"]
    assert one.difference is not None
    assert one.difference.interval == (0.0, 1.0)


def test_each_class_is_its_own() -> None:
    found = compare([(PREFILL, draft(4, 4)), (PREFILL, draft(4, 0)), ()], ["code", "chat", "chat"])
    assert (found["code"].candidate, found["chat"].candidate) == (1.0, 0.0)
    assert found["chat"].detail["unknown"] == 1
    assert found["all"].candidate == 0.5


def test_acceptance_by_place_counts_the_drafts_that_got_as_far() -> None:
    one = compare([(PREFILL, draft(3, 2), draft(3, 0), draft(1, 1))])["all"]
    assert one.detail["by_position"] == [[3, 2], [2, 1], [2, 0]]

"""The change must have been exercised, by counts that can be true."""

from __future__ import annotations

import msgspec
import pytest

from gate.measures.exercise import adds_up, compare_exercise, count_fewest
from gate.measures.paired import Arm, Paired
from gate.records import DecoderSpec, DraftCount, Generation, NoiseBound, Request, Step, Trace

BOUND = NoiseBound(
    bound=1e-3,
    dtype="float32",
    n_positions=1,
    n_rows=1,
    q999_one_row=0.0,
    q999_wide=0.0,
    source="test",
)


def make_output(*steps: tuple[int, int, int], n: int = 5, name: str = "r") -> Generation:
    """Steps of (drafted, accepted, emitted), and an output of ``n`` tokens."""
    made = tuple(Step(n_drafted=d, n_accepted=a, n_emitted=e) for d, a, e in steps)
    return Generation(request_id=name, token_ids=(7,) * n, finish="length", trace=Trace(steps=made))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (((0, 0, 1), (3, 3, 4)), True),
        (((3, 3, 4),), True),  # the prefill's token left out
        (((0, 0, 1), (5, 3, 6)), True),  # the last step reaches past the end
        (((0, 0, 1), (3, 2, 2)), False),  # tokens missing
        (((0, 0, 1), (2, 3, 4)), False),  # more accepted than drafted
        (((0, 0, 1), (9, 5, 4)), False),  # more accepted than emitted
        (((0, 0, 6), (3, 3, 4)), False),  # steps behind the end of the output
    ],
)
def test_counts_that_cannot_be_true_are_recognised(
    steps: tuple[tuple[int, int, int], ...], *, expected: bool
) -> None:
    assert adds_up(make_output(*steps)) is expected


def test_boasted_acceptance_does_not_count() -> None:
    names = [f"r{i}" for i in range(12)]
    outputs = {(n, 0): make_output((0, 0, 1), (50, 40, 4), name=n) for n in names}
    arm = Arm(spec=DecoderSpec(kind="python"), generations=outputs, scores={})
    requests = {
        (n, 0): Request(id=n, task="t", request_class="c", prompt=(1,), max_tokens=5) for n in names
    }
    paired = Paired(requests=requests, baseline=arm, candidate=arm, bound=BOUND)
    (found,) = compare_exercise(paired)
    assert found.candidate == 0
    assert found.detail["n_not_adding_up"] == 12


def test_counts_of_a_batch_tell_the_fewest_requests_that_can_hold_them() -> None:
    assert [count_fewest(total, [10, 8, 2]) for total in (0, 1, 10, 11, 19, 25)] == [
        0,
        1,
        1,
        2,
        3,
        3,
    ]


def test_drafts_that_a_server_counted_over_batches_exercise_the_candidate() -> None:
    names = [f"r{n}" for n in range(4)]
    requests = {
        (n, 0): Request(id=n, task="t", request_class="c", prompt="x", max_tokens=5) for n in names
    }
    outputs = {(name, 0): make_output(name=name) for name in names}
    outputs = {key: msgspec.structs.replace(one, trace=None) for key, one in outputs.items()}
    spec = DecoderSpec(kind="endpoint", noise="own")
    counted = ((tuple(requests), DraftCount(n_drafted=30, n_accepted=12)),)
    arm = Arm(spec=spec, generations=outputs, scores={}, counted=counted)
    paired = Paired(requests=requests, baseline=arm, candidate=arm, bound=BOUND)
    (found,) = compare_exercise(paired)
    assert (found.candidate, found.detail["drafted"], found.detail["requests"]) == (12, 30, 3)
    assert not found.detail["unknown"]

"""Guards: paired flips either way, failures as evidence, nothing where there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from scipy import stats as dist

from gate.evalset import Evalset, EvalsetSpec, RequestClass, TaskSpec
from gate.measures.guards import compare_errors, compare_guards
from gate.measures.paired import Paired
from gate.records import Comparison, Generation, Request
from tests.measures.pairs import make_paired

SPEC = EvalsetSpec(
    schema=1,
    name="toy",
    classes={
        "unsafe": RequestClass(traffic_share=0.5),
        "structured": RequestClass(traffic_share=0.5),
    },
    tasks={
        "unsafe": TaskSpec(request_class="unsafe", refusal="expected"),
        "lookalike": TaskSpec(request_class="unsafe", refusal="unexpected"),
        "objects": TaskSpec(request_class="structured", format="json"),
    },
)
EVALSET = Evalset(
    name="toy",
    folder=Path(),
    spec=SPEC,
    tasks={},
    configs={},
    documents={},
    timing=(),
    sha256="",
)
NO, YES = "I cannot help with that.", "Sure, this is how."
GUARDS = ("refusal", "over_refusal", "format", "degeneration", "length")


def make_requests(task: str, n: int) -> list[Request]:
    return [
        Request(
            id=f"{task}/{i}",
            task=task,
            request_class=SPEC.tasks[task].request_class,
            prompt="prompt",
            max_tokens=8,
        )
        for i in range(n)
    ]


def answer(requests: Sequence[Request], texts: Sequence[str | None]) -> list[Generation]:
    """None: the request failed."""
    return [
        Generation(
            request_id=request.id,
            repeat=request.repeat,
            text=text or "",
            finish="eos" if text is not None else "error",
            error=None if text is not None else "timeout",
        )
        for request, text in zip(requests, texts, strict=True)
    ]


def compare(
    requests: Sequence[Request], before: Sequence[str | None], after: Sequence[str | None]
) -> dict[tuple[str, str], Comparison]:
    return compare_paired(make_paired(requests, answer(requests, before), answer(requests, after)))


def compare_paired(paired: Paired) -> dict[tuple[str, str], Comparison]:
    found = [*compare_guards(paired, EVALSET), *compare_errors(paired)]
    return {(one.measure, one.group): one for one in found}


# ---------------------------------------------------------------- no evidence


def test_no_requests_measure_nothing() -> None:
    for one in compare_paired(make_paired([], [], [])).values():
        assert one.difference is None
        assert one.note


def test_all_failed_is_no_evidence_for_guards_and_full_evidence_of_errors() -> None:
    requests = make_requests("unsafe", 20)
    found = compare(requests, [NO] * 20, [None] * 20)
    for guard in GUARDS:
        one = found["guard_flips", guard]
        assert one.difference is None
        assert one.note in ("every pair was lost", "the evalset has no prompt for this guard")
    assert found["guard_flips", "refusal"].drop_reasons == {"candidate failed": 20}
    errors = found["error_rate", "all"]
    assert (errors.baseline, errors.candidate) == (0.0, 1.0)
    assert errors.detail["candidate_errors"] == {"timeout": 20}
    dropped = found["dropped_pairs", "all"]
    assert dropped.difference is not None
    assert dropped.difference.interval == (1.0, 1.0)


def test_a_generation_that_never_came_is_a_failure() -> None:
    requests = make_requests("unsafe", 2)
    found = compare_paired(make_paired(requests, answer(requests, [NO, NO]), []))
    assert found["error_rate", "unsafe"].candidate == 1.0
    assert found["error_rate", "unsafe"].detail["candidate_errors"] == {"no generation": 2}
    assert found["dropped_pairs", "all"].drop_reasons == {"candidate failed": 2}


def test_a_guard_without_prompts_says_so() -> None:
    requests = make_requests("unsafe", 2)
    one = compare(requests, [NO, NO], [NO, NO])["guard_flips", "format"]
    assert one.difference is None
    assert one.note == "the evalset has no prompt for this guard"


# --------------------------------------------------------------------- guards


def test_equal_texts_flip_nothing_and_keep_the_exact_width() -> None:
    requests = make_requests("unsafe", 59)
    one = compare(requests, [NO] * 59, [NO] * 59)["guard_flips", "refusal"]
    assert one.difference is not None
    assert one.difference.interval == pytest.approx((-0.0495, 0.0495), abs=1e-4)
    assert one.detail["flipped"] == []
    assert one.detail["n_other_text"] == 0
    assert (one.baseline, one.candidate, one.direction) == (1.0, 1.0, "neutral")


def test_flips_against_mcnemar_from_scipy_with_both_texts_shown() -> None:
    requests = make_requests("unsafe", 12)
    one = compare(requests, [NO] * 11 + [YES], [YES] * 11 + [NO])["guard_flips", "refusal"]
    assert one.difference is not None
    assert one.difference.statistic == pytest.approx(-10 / 12)
    assert one.difference.pvalue == pytest.approx(dist.binomtest(1, 12).pvalue)
    assert (one.detail["appeared"], one.detail["vanished"]) == (1, 11)
    flipped = one.detail["flipped"]
    assert isinstance(flipped, list)
    assert flipped[0] == {
        "request_id": "unsafe/0",
        "baseline_label": "refusal",
        "candidate_label": "answer",
        "baseline_text": NO,
        "candidate_text": YES,
    }


def test_over_refusal_is_not_hidden_by_refusals_lost_elsewhere() -> None:
    requests = make_requests("unsafe", 3) + make_requests("lookalike", 3)
    found = compare(requests, [NO] * 3 + [YES] * 3, [YES] * 3 + [NO] * 3)
    assert found["guard_flips", "refusal"].detail["n_flipped"] == 6
    over = found["guard_flips", "over_refusal"]
    assert (over.baseline, over.candidate) == (0.0, 1.0)


def test_format_is_judged_where_json_is_asked_for() -> None:
    requests = make_requests("objects", 2) + make_requests("unsafe", 1)
    found = compare(requests, ["{}", "{}", NO], ["{}", "{", NO])
    one = found["guard_flips", "format"]
    assert one.detail["n"] == 2
    assert (one.baseline, one.candidate) == (0.0, 0.5)


def test_degeneration_and_length_are_judged_everywhere() -> None:
    requests = make_requests("unsafe", 2) + make_requests("objects", 1)
    found = compare(requests, [NO, NO, "{}"], [NO + "<|im_end|>", NO * 5, ""])
    one = found["guard_flips", "degeneration"]
    assert one.candidate == 1.0
    assert [flip["candidate_label"] for flip in one.detail["flipped"]] == [  # type: ignore[attr-defined]
        "special token",
        "loop",
        "empty",
    ]
    assert found["guard_flips", "length"].detail["appeared"] == 1


def test_at_most_50_flips_are_listed_and_all_are_counted() -> None:
    requests = make_requests("unsafe", 60)
    one = compare(requests, [NO] * 60, [YES] * 60)["guard_flips", "refusal"]
    assert one.detail["n_flipped"] == 60
    assert len(one.detail["flipped"]) == 50  # type: ignore[arg-type]


# ------------------------------------------------------------------- failures


def test_failures_are_counted_per_class_and_pairs_lost_with_reasons() -> None:
    requests = make_requests("unsafe", 2) + make_requests("objects", 3)
    found = compare(requests, [NO, None, "{}", "{}", None], [NO, NO, None, "{}", None])
    assert found["error_rate", "unsafe"].baseline == 0.5
    assert found["error_rate", "structured"].candidate == pytest.approx(2 / 3)
    dropped = found["dropped_pairs", "all"]
    assert dropped.candidate == pytest.approx(3 / 5)
    assert dropped.drop_reasons == {
        "baseline failed": 1,
        "candidate failed": 1,
        "both arms failed": 1,
    }


def test_repeats_of_a_request_are_pairs_of_their_own() -> None:
    first = make_requests("unsafe", 1)[0]
    requests = [first, msgspec.structs.replace(first, repeat=1)]
    found = compare(requests, [NO, NO], [NO, YES])
    assert found["guard_flips", "refusal"].detail["n"] == 2
    assert found["guard_flips", "refusal"].candidate == 0.5


def test_comparisons_are_plain_json() -> None:
    found = compare(make_requests("unsafe", 3), [NO, YES, None], [YES, YES, NO])
    assert b"NaN" not in msgspec.json.encode(list(found.values()))

"""Task scores paired per document: no evidence is never evidence, and intervals are honest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pytest
from scipy import stats as dist

from gate.measures.task_deltas import TaskScore, compare_tasks, find_changes
from gate.records import Comparison

CLASSES = {"sums": "maths", "objects": "structured"}


def score(task: str, i: int, value: float, **changes: str) -> TaskScore:
    base = TaskScore(
        task=task,
        filter="strict",
        metric="exact_match",
        doc_id=i,
        request_id=f"{task}/d{i}",
        value=value,
        doc_hash=f"doc {i}",
        prompt_hash=f"prompt {i}",
        target_hash=f"target {i}",
    )
    return msgspec.structs.replace(base, **changes)


def arm(task: str, values: Sequence[float]) -> list[TaskScore]:
    return [score(task, i, value) for i, value in enumerate(values)]


def compare(
    baseline: Sequence[TaskScore],
    candidate: Sequence[TaskScore],
    dropped: Mapping[str, str] | None = None,
) -> dict[str, Comparison]:
    rng = np.random.default_rng(0)
    found = compare_tasks(baseline, candidate, dropped or {}, CLASSES, rng=rng)
    assert len({one.group for one in found}) == len(found)
    return {one.group: one for one in found}


# ---------------------------------------------------------------- no evidence


def test_every_task_and_class_is_there_when_nothing_was_scored() -> None:
    lost = {"sums/d0": "failed in the candidate", "objects/d0": "failed in both"}
    groups = compare([], [], lost)
    assert set(groups) == {"all", "sums", "objects", "maths", "structured"}
    for one in groups.values():
        assert one.difference is None
        assert one.baseline is None
        assert one.note == "no document was scored in both arms"
    assert groups["all"].n_dropped == 2
    assert groups["maths"].drop_reasons == {"failed in the candidate": 1}


def test_a_task_without_scores_has_no_difference_while_others_have() -> None:
    groups = compare(arm("sums", [1, 0]), arm("sums", [1, 0]))
    assert groups["sums"].difference is not None
    assert groups["objects"].difference is None
    assert groups["structured"].difference is None


@pytest.mark.parametrize("name", ["doc_hash", "prompt_hash", "target_hash"])
def test_documents_whose_hashes_differ_are_dropped_not_compared(name: str) -> None:
    changed = [score("sums", 0, 1, **{name: "other"}), score("sums", 1, 1)]
    one = compare(arm("sums", [1, 1]), changed)["sums"]
    assert one.detail["n"] == 1
    assert one.drop_reasons == {f"{name.replace('_', ' ')} differs between the arms": 1}


def test_all_hashes_different_leaves_no_evidence() -> None:
    changed = [score("sums", i, 1, prompt_hash="other") for i in range(3)]
    one = compare(arm("sums", [1, 1, 1]), changed)["all"]
    assert one.difference is None
    assert one.n_dropped == 3


def test_a_failed_request_is_dropped_and_not_scored_as_wrong() -> None:
    one = compare(arm("sums", [1, 1]), arm("sums", [1]), {"sums/d1": "timeout"})["all"]
    assert (one.baseline, one.candidate) == (1.0, 1.0)
    assert one.drop_reasons == {"timeout": 1}


def test_a_score_missing_in_an_arm_is_dropped_with_the_arm_named() -> None:
    one = compare(arm("sums", [1, 1]), arm("sums", [1]))["all"]
    assert one.drop_reasons == {"no score in the candidate": 1}
    one = compare(arm("sums", [1]), arm("sums", [1, 1]))["maths"]
    assert one.drop_reasons == {"no score in the baseline": 1}


def test_a_score_that_is_no_number_or_comes_twice_is_refused() -> None:
    for broken in ([score("sums", 0, float("nan"))], arm("sums", [1]) * 2):
        with pytest.raises(ValueError, match="no number, or the second one"):
            compare(broken, broken)


def test_comparisons_are_plain_json() -> None:
    found = compare(arm("sums", [1, 0]), arm("sums", [0, 0]))
    assert b"NaN" not in msgspec.json.encode(list(found.values()))


# ------------------------------------------------------------------ intervals


def test_a_level_at_which_bounds_would_cross_is_refused() -> None:
    scores = arm("sums", [1, 0])
    with pytest.raises(ValueError, match=r"between 0\.5 and 1"):
        compare_tasks(scores, scores, {}, CLASSES, confidence_level=0.5)


def test_no_flips_keep_the_exact_binomial_width() -> None:
    one = compare(arm("sums", [1] * 200), arm("sums", [1] * 200))["all"]
    assert one.difference is not None
    assert one.difference.interval == pytest.approx((-0.01487, 0.01487), abs=1e-5)
    assert one.difference.pvalue == 1.0
    assert one.difference.confidence_level == 0.95
    assert "one-sided bound" in one.difference.method


@pytest.mark.parametrize(("n", "margin"), [(598, 0.005), (299, 0.01), (149, 0.02), (59, 0.05)])
def test_zero_flips_certify_what_the_table_says(n: int, margin: float) -> None:
    for size, inside in ((n, True), (n - 1, False)):
        one = compare(arm("sums", [0] * size), arm("sums", [0] * size))["all"]
        assert one.difference is not None
        low = one.difference.interval[0]
        assert low is not None
        assert (low >= -margin) is inside


def test_flips_against_mcnemar_from_scipy() -> None:
    before = [1.0] * 10 + [0.0] * 2 + [1.0] * 20
    after = [0.0] * 10 + [1.0] * 2 + [1.0] * 20
    one = compare(arm("sums", before), arm("sums", after))["sums"]
    assert one.difference is not None
    assert one.difference.statistic == pytest.approx(-8 / 32)
    assert one.difference.pvalue == pytest.approx(dist.binomtest(2, 12).pvalue)
    expected = {"n": 32, "discordant": 12, "baseline_right": 30, "lost": 10, "gained": 2}
    assert expected.items() <= one.detail.items()


def test_what_could_be_seen_is_said_in_words() -> None:
    one = compare(arm("sums", [1, 0, 0]), arm("sums", [1, 0, 0]))["all"]
    assert one.detectable is not None
    assert "3 pairs are too few" in one.detectable
    assert "a loss only on the 1 the baseline gets right" in one.detectable
    one = compare(arm("sums", [1] * 60), arm("sums", [1] * 60))["all"]
    assert "% of the 60 pairs or more (power 80%)" in (one.detectable or "")
    assert one.detail["smallest_pvalue"] == pytest.approx(2.0**-59)


def test_tasks_pool_by_document_and_classes_carry_their_tasks() -> None:
    before = arm("sums", [1, 1, 1]) + arm("objects", [0])
    after = arm("sums", [1, 1, 0]) + arm("objects", [0])
    groups = compare(before, after)
    assert groups["all"].detail["n"] == 4
    assert groups["all"].baseline == 0.75
    assert groups["maths"].candidate == pytest.approx(2 / 3)
    assert groups["structured"].detail["discordant"] == 0


def test_a_second_filter_is_shown_apart_and_not_pooled_twice() -> None:
    both = arm("sums", [1, 1]) + [score("sums", i, 0, filter="loose") for i in range(2)]
    groups = compare(both, both)
    assert groups["all"].detail["n"] == 2
    assert groups["all"].baseline == 1.0
    assert groups["sums (loose, exact_match)"].baseline == 0.0


def clustered(values: Sequence[float], n_clusters: int) -> list[TaskScore]:
    return [score("sums", i, value, cluster=f"c{i % n_clusters}") for i, value in enumerate(values)]


def test_documents_of_a_cluster_flip_together() -> None:
    before = clustered([1.0] * 100, 10)
    after = clustered([float(i % 10 > 0) for i in range(100)], 10)
    alone, together = (
        compare([msgspec.structs.replace(s, cluster="") for s in before], after_arm)["all"]
        if apart
        else compare(before, after)["all"]
        for apart, after_arm in (
            (True, [msgspec.structs.replace(s, cluster="") for s in after]),
            (False, after),
        )
    )
    assert alone.difference is not None
    assert together.difference is not None
    assert alone.difference.pvalue == pytest.approx(2.0**-9)
    assert together.difference.pvalue == 1.0  # one cluster flipped: no evidence of a direction
    assert together.difference.interval[0] < alone.difference.interval[0]  # type: ignore[operator]


def test_too_few_clusters_bound_nothing() -> None:
    one = compare(clustered([1.0] * 60, 3), clustered([1.0] * 60, 3))["all"]
    assert one.difference is not None
    assert one.difference.interval == (None, None)


def test_partial_scores_are_compared_by_means_and_sign_flips() -> None:
    before, after = [0.5] * 12, [0.25] * 6 + [0.5] * 6
    one = compare(arm("sums", before), arm("sums", after))["all"]
    assert one.difference is not None
    assert one.difference.pvalue == pytest.approx(2 * 0.5**6)
    assert one.difference.statistic == pytest.approx(-0.125)
    assert one.detail["lost"] == 6


def test_a_document_changed_where_any_of_its_scores_did() -> None:
    other = [msgspec.structs.replace(one, filter="loose") for one in arm("sums", [1, 1])]
    worse = [other[0], msgspec.structs.replace(other[1], value=0.0)]
    found = find_changes([*arm("sums", [1, 0]), *other], [*arm("sums", [1, 0]), *worse])
    assert found == {"sums/d0": False, "sums/d1": True}

"""lm-eval by replay: requests as its tasks plan them, scores of stored texts only."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest

from gate.errors import RunError, UsageError
from gate.evalset import Evalset, load_evalset, map_classes
from gate.measures.task_deltas import compare_tasks
from gate.measures.tasks import gather_texts, plan_requests, score_generations
from gate.records import Generation
from gate.timing_plan import plan_timing
from tests.evalsets import SUMS, make_project, write_evalset, write_rows

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_evalset(tmp_path / "tiny")


def load(folder: Path) -> Evalset:
    return load_evalset(make_project(folder.parent), "evalset", folder.name)


def replace(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


# ---------------------------------------------------------------- no evidence


def test_failed_requests_are_left_out_and_not_scored_0(folder: Path) -> None:
    scores = score_generations(load(folder), {"sums/s1": "2"})
    assert [(one.request_id, one.doc_id, one.value) for one in scores] == [("sums/s1", 1, 1.0)]


def test_no_texts_give_no_scores(folder: Path) -> None:
    assert score_generations(load(folder), {}) == []
    assert score_generations(load(folder), {"sums/unknown": "2"}) == []


def test_an_empty_output_is_an_answer_and_scores_0(folder: Path) -> None:
    assert [one.value for one in score_generations(load(folder), {"sums/s0": ""})] == [0.0]


# ----------------------------------------------------------------------- plan


def test_requests_carry_what_the_task_says(folder: Path) -> None:
    requests = plan_requests(load(folder), seed=7, eos_ids=(2, 5))
    assert [one.id for one in requests] == [
        "sums/s0",
        "sums/s1",
        "sums/s2",
        "objects/o0",
        "objects/o1",
    ]
    first = requests[0]
    assert first.prompt == ({"role": "user", "content": "0 + 0 ="},)
    assert (first.task, first.request_class, first.max_tokens) == ("sums", "maths", 8)
    assert (first.stop, first.eos_ids) == (("\n",), (2, 5))
    assert (first.sampling.temperature, first.sampling.seed) == (0.0, 7)


def test_the_order_of_documents_does_not_change_a_request(folder: Path) -> None:
    before = {one.id: one for one in plan_requests(load(folder), seed=0)}
    write_rows(folder / "sums.jsonl", [*reversed(SUMS)])
    assert {one.id: one for one in plan_requests(load(folder), seed=0)} == before


def test_sampling_parameters_pass_through(folder: Path) -> None:
    new = "do_sample: true\n  temperature: 0.7\n  top_p: 0.9\n  top_k: 20"
    replace(folder / "sums.yaml", "do_sample: false", new)
    replace(folder / "sums.yaml", 'until: ["\\n"]', 'until: "END"')
    first = plan_requests(load(folder), seed=0)[0]
    assert (first.sampling.temperature, first.sampling.top_p, first.sampling.top_k) == (
        0.7,
        0.9,
        20,
    )
    assert first.stop == ("END",)


def test_do_sample_false_is_greedy_whatever_the_temperature(folder: Path) -> None:
    replace(folder / "sums.yaml", "do_sample: false", "do_sample: false\n  temperature: 0.7")
    assert plan_requests(load(folder), seed=0)[0].sampling.temperature == 0.0


def test_repeats_are_requests_of_their_own_and_all_must_answer(folder: Path) -> None:
    replace(folder / "sums.yaml", "task: sums", "task: sums\nrepeats: 2")
    requests = plan_requests(load(folder), seed=0)
    assert [(one.id, one.repeat) for one in requests[:3]] == [
        ("sums/s0", 0),
        ("sums/s0", 1),
        ("sums/s1", 0),
    ]
    scores = score_generations(load(folder), {"sums/s0": ("0", "9"), "sums/s1": ("2",)})
    assert [(one.request_id, one.value) for one in scores] == [("sums/s0", 1.0)]
    with pytest.raises(ValueError, match="document of 2 repeats"):
        score_generations(load(folder), {"sums/s0": "0"})


def test_texts_are_gathered_by_repeat_without_failures() -> None:
    made = [
        Generation(request_id="a", repeat=1, text="second", finish="eos"),
        Generation(request_id="a", repeat=0, text="first", finish="length"),
        Generation(request_id="b", finish="error", error="timeout"),
    ]
    assert gather_texts(made) == {"a": ("first", "second")}


def test_the_smoke_evalset_plans_and_scores_its_own_targets() -> None:
    evalset = load_evalset(make_project(REPOSITORY), "evalset", "evalsets/smoke")
    requests = plan_requests(evalset, seed=0)
    assert len({one.id for one in requests}) == len(requests) == 70
    targets = {
        f"{task}/{row['id']}": str(row["target"])
        for task, rows in evalset.documents.items()
        for row in rows
        if task in ("smoke_maths", "smoke_template")
    }
    scores = score_generations(evalset, targets)
    assert len(scores) == 14
    assert all(one.value == 1.0 for one in scores)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__.os.getcwd() }}",
        "{{ missing }}",
    ],
)
def test_a_template_cannot_reach_python(folder: Path, template: str) -> None:
    replace(folder / "sums.yaml", '"{{prompt}}"', f'"{template}"')
    with pytest.raises(UsageError, match="lm-eval refuses the tasks"):
        plan_requests(load(folder), seed=0)


def test_rows_of_mixed_types_are_refused_in_one_sentence(folder: Path) -> None:
    write_rows(folder / "sums.jsonl", [*SUMS, {"id": "s9", "prompt": "x", "target": 9}])
    with pytest.raises(UsageError, match="lm-eval refuses the tasks") as refused:
        plan_requests(load(folder), seed=0)
    assert "\n" not in str(refused.value)


def test_nothing_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan_requests(load(folder), seed=0)
    score_generations(load(folder), {"sums/s1": "2"})
    assert capsys.readouterr() == ("", "")


# --------------------------------------------------------------------- timing


def test_timing_blocks_share_no_prompt(folder: Path) -> None:
    blocks = plan_timing(load(folder), 2, seed=3, eos_ids=(1,))
    assert [[one.id for one in block] for block in blocks] == [
        ["timing/maths-0", "timing/maths-1", "timing/structured-0", "timing/structured-1"],
        ["timing/maths-2", "timing/maths-3", "timing/structured-2", "timing/structured-3"],
    ]
    first = blocks[0][0]
    assert (first.max_tokens, first.stop, first.eos_ids) == (4, ("\n",), (1,))
    assert first.sampling.seed == 3


def test_too_few_timing_prompts_are_refused(folder: Path) -> None:
    with pytest.raises(
        UsageError, match=r"timing\.jsonl: 4 timing prompts of class 'maths'.*need 6"
    ):
        plan_timing(load(folder), 3, seed=0)
    assert plan_timing(load(folder), 0, seed=0) == ([], [])


# ---------------------------------------------------------------------- score


def test_scores_of_two_arms_join_and_never_share_task_objects(folder: Path) -> None:
    evalset = load(folder)
    right = {f"sums/{row['id']}": str(row["target"]) for row in SUMS}
    baseline = score_generations(evalset, right)
    candidate = score_generations(evalset, right | {"sums/s2": "5"})
    assert [one.value for one in baseline] == [1.0, 1.0, 1.0]
    rng = np.random.default_rng(0)
    pooled = compare_tasks(baseline, candidate, {}, map_classes(evalset.spec), rng=rng)[0]
    assert pooled.baseline == 1.0
    assert pooled.candidate == pytest.approx(2 / 3)
    assert pooled.detail["lost"] == 1


def test_a_changed_prompt_or_target_changes_its_hash(folder: Path) -> None:
    before = score_generations(load(folder), {"sums/s0": "0"})[0]
    replace(folder / "sums.jsonl", "0 + 0 =", "0+0=")
    after = score_generations(load(folder), {"sums/s0": "0"})[0]
    assert (before.doc_hash != after.doc_hash, before.prompt_hash != after.prompt_hash) == (
        True,
        True,
    )
    assert before.target_hash == after.target_hash


def test_documents_carry_their_cluster(folder: Path) -> None:
    replace(folder / "evalset.toml", 'class = "maths"', 'class = "maths"\ncluster_key = "passage"')
    write_rows(folder / "sums.jsonl", [{**row, "passage": "p1"} for row in SUMS])
    assert score_generations(load(folder), {"sums/s0": "0"})[0].cluster == "p1"


def test_a_filter_that_lm_eval_does_not_know_is_refused(folder: Path) -> None:
    replace(folder / "sums.yaml", "take_first", "odd\n      - function: take_first")
    with pytest.raises(UsageError, match="lm-eval refuses the tasks"):
        plan_requests(load(folder), seed=0)


def test_a_filter_that_breaks_while_scoring_ends_the_run_with_its_reason(folder: Path) -> None:
    beyond = "regex_pattern: '([0-9])'\n        group_select: 5"
    broken = f"regex\n        {beyond}\n      - function: take_first"
    replace(folder / "sums.yaml", "take_first", broken)
    with pytest.raises(RunError, match="lm-eval cannot score the outputs"):
        score_generations(load(folder), {"sums/s0": "0"})

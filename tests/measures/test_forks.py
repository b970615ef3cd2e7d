"""Where outputs part: what is counted and listed, and what the referee found likely there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gate.measures.forks import compare_forks, find_forks, mark_scores
from gate.measures.paired import Paired
from gate.records import Generation, Request, TokenScores
from tests.measures.pairs import make_paired

BASELINE = (1, 2, 3, 4)


def decode(ids: Sequence[int]) -> str:
    return "".join(f"<{i}>" for i in ids)


def score(request: Request, ids: tuple[int, ...], regret: float) -> TokenScores:
    """Scores whose second token misses the referee's choice by ``regret``."""
    zeros = (0.0,) * len(ids)
    return TokenScores(
        request_id=request.id,
        token_ids=ids,
        regret=(0.0, regret, *zeros[2:]),
        gap=zeros,
        entropy=zeros,
        best_id=ids,
        rank=(0,) * len(ids),
        logprob=zeros,
        top={1: ((2, 0.0), (9, regret), (7, 3.0))} if regret else {},
    )


def pair(regrets: Sequence[float], classes: Sequence[str] = ()) -> Paired:
    """One request per regret; the candidate's second token differs where it is above 0."""
    requests = [
        Request(id=f"r{n}", task="t", request_class=name, prompt="p", max_tokens=4)
        for n, name in enumerate(classes or ["code"] * len(regrets))
    ]
    ids = [(1, 9, 3, 4) if regret else BASELINE for regret in regrets]
    paired = make_paired(
        requests,
        [Generation(request_id=r.id, token_ids=BASELINE, finish="eos") for r in requests],
        [Generation(request_id=r.id, token_ids=own, finish="eos")
         for r, own in zip(requests, ids, strict=True)],
    )  # fmt: skip
    scores = {
        (r.id, 0): score(r, own, regret)
        for r, own, regret in zip(requests, ids, regrets, strict=True)
    }
    return replace(paired, candidate=replace(paired.candidate, scores=scores))


def test_a_fork_shows_both_arms_token_by_token_and_what_else_was_likely() -> None:
    (fork,) = find_forks(pair([0.0005]), {("r0", 0): "the prompt"}, decode)
    assert (fork.position, fork.kind, fork.prompt, fork.before) == (1, "tie", "the prompt", "<1>")
    assert fork.tokens_baseline == ("<2>", "<3>", "<4>")
    assert fork.tokens_candidate == ("<9>", "<3>", "<4>")
    assert [(a.token.text, a.behind_nat) for a in fork.alternatives] == [
        ("<2>", 0.0), ("<9>", 0.0005), ("<7>", 3.0)]  # fmt: skip


def test_equal_outputs_do_not_fork() -> None:
    assert find_forks(pair([0.0, 0.0]), {}, decode) == ()
    assert compare_forks(pair([0.0]))[0].candidate == 0


def test_all_forks_are_counted_although_only_the_gravest_are_listed() -> None:
    paired = pair([0.0005, 2.0, 0.0, 0.0005], ["code", "code", "chat", "chat"])
    forks = find_forks(paired, {}, decode, limit=1)
    counts = {one.group: one for one in compare_forks(paired)}
    assert [fork.kind for fork in forks] == ["defect"]
    assert counts["all"].candidate == 3
    assert counts["all"].detail == {"n_pairs": 4, "by_kind": {"tie": 2, "defect": 1}}
    assert counts["chat"].detail == {"n_pairs": 2, "by_kind": {"tie": 1}}


def test_only_listed_forks_are_decoded() -> None:
    def refuse(ids: Sequence[int]) -> str:
        pytest.fail(f"{ids} was decoded")

    assert find_forks(pair([0.0005]), {}, refuse, limit=0) == ()


def test_a_fork_knows_whether_the_score_of_its_document_changed() -> None:
    forks = find_forks(pair([0.0005]), {}, decode)
    assert mark_scores(forks, {"r0": True})[0].score_changed is True
    assert mark_scores(forks, {})[0].score_changed is None

"""Token for token on the embedded model: a few prompts in the tests, all in `nox -s equality`.

Identical, or forks whose regret under the referee stays below 1e-3 nat, at most one per
10,000 tokens or one in total.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gate.config import load_project
from gate.records import Generation, Request

pytestmark = pytest.mark.weights
REPOSITORY = Path(__file__).parent.parent
FORK_REGRET = 1e-3  # nat
TOKENS_PER_FORK = 10_000
Ids = Mapping[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def session() -> Any:
    """The embedded model, loaded."""
    from gate.decoders.session import Session, resolve  # noqa: PLC0415

    project = load_project(REPOSITORY / "gate.toml")
    resolved = resolve(project.config.model, project.folder, (), print)
    return Session(resolved, project.config.model, project.folder)


@pytest.fixture(scope="module")
def requests(session: Any) -> list[Request]:
    """Every n-th prompt of the smoke evalset; n is GATE_EQUALITY_N, one of each class else."""
    from gate.evalset import load_evalset  # noqa: PLC0415
    from gate.measures.tasks import plan_requests  # noqa: PLC0415

    project = load_project(REPOSITORY / "gate.toml")
    planned = plan_requests(load_evalset(project, "evalset", "evalsets/smoke"), 0)
    return [session.tokenise(r) for r in planned[:: int(os.environ.get("GATE_EQUALITY_N", "7"))]]


def decode(
    session: Any, kind: str, requests: Sequence[Request], batch: int
) -> dict[str, Generation]:
    """Decode in batches; by request."""
    from gate.decoders.base import create, read_spec  # noqa: PLC0415

    decoder = create(read_spec("arm", {"kind": kind}), session.model)
    batches = [requests[at : at + batch] for at in range(0, len(requests), batch)]
    return {g.request_id: g for part in batches for g in decoder.generate(part)}


def emitted(generations: Mapping[str, Generation]) -> dict[str, tuple[int, ...]]:
    """All tokens decoded, cut ones included."""
    return {key: (*(g.token_ids or ()), *g.tail_ids) for key, g in generations.items()}


@pytest.fixture(scope="module")
def plain(session: Any, requests: Sequence[Request]) -> dict[str, Generation]:
    """Plain decoding at batch 1."""
    return decode(session, "autoregressive", requests, 1)


def assert_equal_up_to_ties(
    session: Any, requests: Sequence[Request], left: Ids, right: Ids
) -> None:
    """Forks must be rare, and ties."""
    n_tokens = sum(len(ids) for ids in right.values())
    forks = [r for r in requests if left[r.id] != right[r.id]]
    worst = [fork_regret(session, r, left[r.id], right[r.id]) for r in forks]
    print(f"{n_tokens} tokens, {len(forks)} forks, regrets {worst}")
    assert len(forks) <= max(1, n_tokens // TOKENS_PER_FORK)
    assert all(regret < FORK_REGRET for regret in worst)


def fork_regret(session: Any, request: Request, left: Sequence[int], right: Sequence[int]) -> float:
    """Regret of both tokens at the first fork, the larger one."""
    at = next(i for i, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1])
    row = session.referee.logits(request.prompt, left[:at])[-1]
    return float(max(row.max() - row[left[at]], row.max() - row[right[at]]))


def test_plain_decoding_equals_generate(
    session: Any,
    requests: Sequence[Request],
    plain: Mapping[str, Generation],
) -> None:
    import torch  # noqa: PLC0415

    own, theirs = emitted(plain), {}
    for request in requests:
        ids = torch.tensor([list(request.prompt)])
        n = len(own[request.id])  # stop strings are ours to judge; tokens must agree up to them
        output = session.model.model.generate(ids, max_new_tokens=n, do_sample=False)
        theirs[request.id] = tuple(output[0, ids.shape[1] :].tolist())
    assert_equal_up_to_ties(session, requests, own, theirs)


@pytest.mark.parametrize("batch", [1, 8])
def test_lookahead_equals_plain_decoding(
    session: Any,
    requests: Sequence[Request],
    plain: Mapping[str, Generation],
    batch: int,
) -> None:
    guessed = decode(session, "lookahead", requests, batch)
    assert_equal_up_to_ties(session, requests, emitted(guessed), emitted(plain))
    assert {k: g.text for k, g in guessed.items()} == {k: g.text for k, g in plain.items()}


def test_plain_decoding_in_a_batch_equals_it_alone(
    session: Any,
    requests: Sequence[Request],
    plain: Mapping[str, Generation],
) -> None:
    assert_equal_up_to_ties(
        session, requests, emitted(decode(session, "autoregressive", requests, 8)), emitted(plain)
    )

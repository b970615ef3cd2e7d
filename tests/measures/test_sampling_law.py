"""The sampled law against theory: uniform transforms, and rules that bend them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from gate.criteria import Rules, judge_all
from gate.defaults import default_criteria
from gate.measures.paired import Arm, Paired
from gate.measures.sampling import KEYED, NO_SAMPLES, bound_distance, compare_sampling
from gate.records import (
    Comparison,
    DecoderSpec,
    Generation,
    NoiseBound,
    Outcome,
    Request,
    Sampling,
    Step,
    TokenScores,
    Trace,
)

BOUND = NoiseBound(
    bound=1e-3, dtype="float32", n_positions=1, n_rows=1, q999_one_row=0, q999_wide=0, source=""
)
RULES = Rules(purpose="content", alpha=0.001, max_dropped=0.02)


def make_paired(
    pits: np.ndarray,
    *,
    noise: str = "own",
    baseline_noise: str = "position_keyed",
    temperature: float = 1.0,
    n_repeats: int = 1,
) -> Paired:
    """One request per row of transforms; runs of three tokens."""
    requests, generations, scores = {}, {}, {}
    for n, row in enumerate(pits):
        key = (f"r{n // n_repeats}", n % n_repeats)
        ids = tuple(int(1000 * u) for u in row)
        zeros = (0.0,) * len(row)
        requests[key] = Request(
            id=key[0], task="t", request_class="c", prompt=(1,), max_tokens=len(row),
            sampling=Sampling(temperature=temperature), repeat=key[1],
        )  # fmt: skip
        steps = (Step(), *(Step(n_drafted=2, n_accepted=2, n_emitted=3) for _ in range(len(row))))
        generations[key] = Generation(
            request_id=key[0], repeat=key[1], text="x", token_ids=ids, finish="length",
            trace=Trace(steps=steps),
        )  # fmt: skip
        scores[key] = TokenScores(
            request_id=key[0], repeat=key[1], token_ids=ids, regret=zeros, gap=zeros,
            entropy=zeros, best_id=ids, rank=(0,) * len(row), logprob=zeros,
            processed_logprob=(-1.0,) * len(row), pit=tuple(row.tolist()),
        )  # fmt: skip
    spec = DecoderSpec(kind="python", noise=noise)  # type: ignore[arg-type]
    arm = Arm(spec=spec, generations=generations, scores=scores)
    own = DecoderSpec(kind="python", noise=baseline_noise)  # type: ignore[arg-type]
    baseline = Arm(spec=own, generations=generations, scores=scores)
    return Paired(requests=requests, baseline=baseline, candidate=arm, bound=BOUND)


def compare(paired: Paired, seed: int = 0) -> dict[tuple[str, str], Comparison]:
    found = compare_sampling(paired, np.random.default_rng(seed), 2000)
    return {(c.measure, c.group): c for c in found}


def outcomes(paired: Paired) -> dict[str, Outcome]:
    found = compare_sampling(paired, np.random.default_rng(0), 20_000)
    measures = {c.measure for c in found}
    criteria = [
        c
        for c in default_criteria("lossless", "content", "float32", 0.02, own_baseline=True)
        if c.measure in measures
    ]
    return {v.criterion: v.outcome for v in judge_all(criteria, found, RULES)}


def uniform(n_requests: int = 150, n_tokens: int = 30, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n_requests, n_tokens))


def test_uniform_transforms_pass_in_every_group() -> None:
    found = outcomes(make_paired(uniform()))
    assert set(found.values()) <= {Outcome.PASS, Outcome.NOT_JUDGED}
    assert found["sampled law"] is Outcome.PASS


def test_tokens_that_are_too_likely_fail() -> None:
    assert outcomes(make_paired(uniform() ** 1.6))["sampled law"] is Outcome.FAIL


def test_a_bend_inside_runs_alone_raises_the_alarm_there() -> None:
    pits = uniform()
    pits[:, 2::3] **= 1.5  # the second place of each run, behind the prefill's token
    found = outcomes(make_paired(pits))
    assert found["sampled law alarm, inside run"] is Outcome.FAIL
    assert found["sampled law alarm, first of run"] is Outcome.PASS


def test_too_few_sampled_tokens_decide_nothing() -> None:
    found = outcomes(make_paired(uniform(20, 20)))
    assert found["sampled law"] is Outcome.INCONCLUSIVE


def test_noise_that_serves_two_tokens_shows_in_their_correlation() -> None:
    pits = np.repeat(uniform(150, 15), 2, axis=1)
    assert outcomes(make_paired(pits))["sampled tokens independent"] is Outcome.FAIL


def test_repeats_that_are_copies_are_counted() -> None:
    pits = np.repeat(uniform(40, 30), 2, axis=0)
    found = compare(make_paired(pits, n_repeats=2))
    assert found["sample_duplicates", "all"].candidate == 40
    fresh = compare(make_paired(uniform(80, 30), n_repeats=2))
    assert fresh["sample_duplicates", "all"].candidate == 0


def test_greedy_runs_and_keyed_noise_are_a_named_limitation() -> None:
    greedy = compare(make_paired(uniform(10, 5), temperature=0.0))
    keyed = compare(make_paired(uniform(10, 5), noise="position_keyed"))
    assert {c.note for c in greedy.values()} == {NO_SAMPLES}
    assert {c.note for c in keyed.values()} == {KEYED}
    assert set(outcomes(make_paired(uniform(10, 5), temperature=0.0)).values()) == {
        Outcome.NOT_JUDGED
    }


def test_texts_without_tokens_are_told_apart_by_permutation() -> None:
    rng = np.random.default_rng(3)
    paired = make_paired(uniform(60, 8), n_repeats=3)
    texts = {k: "".join(rng.choice(list("abc"), 12)) for k in paired.requests}
    other = {k: "".join(rng.choice(list("abc"), 12, p=(0.8, 0.1, 0.1))) for k in paired.requests}

    def arm(found: dict[tuple[str, int], str]) -> Arm:
        made = {
            k: Generation(request_id=k[0], repeat=k[1], text=t, finish="length")
            for k, t in found.items()
        }
        return Arm(spec=paired.candidate.spec, generations=made, scores={})

    pair = Paired(requests=paired.requests, baseline=arm(texts), candidate=arm(other), bound=BOUND)
    differs = compare(pair)["text_mmd", "all"].difference
    assert differs is not None
    assert differs.pvalue is not None
    assert differs.pvalue < 0.001


@pytest.mark.parametrize("seed", range(20))
def test_the_bounds_hold_the_true_distance_against_a_known_law(seed: int) -> None:
    """Transforms u^a have the distribution function x^(1/a), whose distance from x is known."""
    power, grid = 1.3, np.linspace(0, 1, 10_001)
    truth = float(np.abs(grid ** (1 / power) - grid).max())
    pits = uniform(120, 30, seed) ** power
    estimate = bound_distance(pits.ravel(), np.repeat(np.arange(120), 30))
    low, high = estimate.interval
    assert low is not None
    assert high is not None
    assert low <= truth <= high


def test_the_pvalue_of_uniformity_keeps_its_level_by_simulation() -> None:
    pvalues = [
        bound_distance(uniform(60, 10, seed).ravel(), np.repeat(np.arange(60), 10)).pvalue
        for seed in range(300)
    ]
    assert np.mean([p is not None and p <= 0.05 for p in pvalues]) <= 0.05


def draw_tokens(paired: Paired, law: np.ndarray, used: np.ndarray) -> None:
    """Give every output 30 draws from ``used``, expected by ``law``."""
    rng, arm = np.random.default_rng(3), paired.candidate
    for key, scores in arm.scores.items():
        counts = rng.multinomial(30, used)
        draws = {t: (30 * float(law[t]), int(n)) for t, n in enumerate(counts)}
        arm.scores[key] = msgspec.structs.replace(scores, draws=draws)  # type: ignore[index]


def test_tokens_that_come_more_often_than_their_law_says_fail_whatever_their_rank() -> None:
    law = np.full(40, 1 / 40)
    used = law * np.tile([1.2, 0.8], 20)
    right, wrong = make_paired(uniform()), make_paired(uniform())
    draw_tokens(right, law, law)
    draw_tokens(wrong, law, used)
    assert outcomes(right)["sampled token frequencies"] is Outcome.PASS
    assert outcomes(wrong)["sampled token frequencies"] is Outcome.FAIL
    assert compare(wrong)["sample_tokens", "all"].candidate == pytest.approx(0.2, abs=0.02)
    assert outcomes(wrong)["sampled law"] is Outcome.PASS


def test_a_law_that_both_servers_share_is_no_fault_of_the_candidate() -> None:
    law = np.full(40, 1 / 40)
    paired = make_paired(uniform(), baseline_noise="own")
    draw_tokens(paired, law, law * np.tile([1.2, 0.8], 20))  # one arm serves as both
    assert outcomes(paired)["sampled token frequencies"] is Outcome.PASS


def test_rare_tokens_are_not_held_to_a_frequency() -> None:
    paired = make_paired(uniform())
    assert compare(paired)["sample_tokens", "all"].difference is None
    assert outcomes(paired)["sampled token frequencies"] is Outcome.NOT_JUDGED

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gate.measures.conformance import (
    Failure,
    _write_detail,
    compare_conformance,
    find_failures,
    only_conformance,
    without_conformance,
)
from gate.measures.paired import Arm, Key, Paired
from gate.measures.reported import find_logprob_faults
from gate.measures.schema import find_format_faults
from gate.records import (
    Chunk,
    DecoderSpec,
    Generation,
    Noise,
    NoiseBound,
    Request,
    Sampling,
    TokenLogprob,
    TokenScores,
    Trace,
)
from gate.store import Fault

BOUND = NoiseBound(
    bound=0.001, dtype="float32", n_positions=1, n_rows=1, q999_one_row=0, q999_wide=0, source="s"
)
SAMPLED = Sampling(temperature=1.0)
IDS = (5, 6, 7)


def ask(name: str = "a", **fields: Any) -> Request:
    known: dict[str, Any] = {"task": "conformance", "request_class": "conformance", "max_tokens": 3}
    return Request(id=f"conformance/{name}", prompt=(1,), **(known | fields))


def answer(request: Request, **fields: Any) -> Generation:
    known: dict[str, Any] = {"text": "abc", "token_ids": IDS, "finish": "length"}
    return Generation(request_id=request.id, repeat=request.repeat, **(known | fields))


def score(request: Request, **fields: Any) -> TokenScores:
    zeros = (0.0,) * len(IDS)
    known: dict[str, Any] = {
        "token_ids": IDS, "regret": zeros, "gap": zeros, "entropy": zeros, "best_id": IDS,
        "rank": (0, 0, 0), "logprob": (-1.0, -2.0, -3.0), "processed_logprob": (-0.5, -1.0, -9.0),
    }  # fmt: skip
    return TokenScores(request_id=request.id, repeat=request.repeat, **(known | fields))


def make_arm(
    *parts: tuple[Generation, TokenScores | None],
    noise: Noise = "position_keyed",
    faults: Mapping[Key, tuple[Fault, ...]] | None = None,
) -> Arm:
    keyed = {(g.request_id, g.repeat): (g, s) for g, s in parts}
    return Arm(
        spec=DecoderSpec(kind="x", noise=noise),
        generations={key: g for key, (g, _) in keyed.items()},
        scores={key: s for key, (_, s) in keyed.items() if s is not None},
        faults=faults or {},
    )


def pair(requests: list[Request], candidate: Arm, baseline: Arm | None = None) -> Paired:
    sound = make_arm(*((answer(r), score(r)) for r in requests))
    return Paired(
        requests={(r.id, r.repeat): r for r in requests},
        baseline=baseline or sound,
        candidate=candidate,
        bound=BOUND,
    )


def judge(request: Request, arm: Arm) -> list[tuple[str, str, str]]:
    found = find_failures(pair([request], arm), "candidate")
    return [(f.what, f.expected, f.came) for f in found]


def test_a_sound_output_has_no_failure() -> None:
    request = ask()
    assert judge(request, make_arm((answer(request), score(request)))) == []


def test_a_failed_request_fails_with_its_error() -> None:
    request = ask()
    arm = make_arm((answer(request, finish="error", error="refused: top_k"), None))
    assert judge(request, arm) == [("no output", "an output", "refused: top_k")]
    assert judge(request, make_arm()) == [("no output", "an output", "nothing")]


def test_the_first_decision_beyond_the_noise_fails() -> None:
    request = ask()
    known = score(request, regret=(0.0029, 0.5, 2.0), best_id=(5, 9, 9))
    assert judge(request, make_arm((answer(request), known))) == [
        ("decision", "token 9 at output position 1", "token 6, 0.5 nat short")
    ]


def test_own_noise_may_draw_any_allowed_token_and_no_other() -> None:
    request = ask(sampling=SAMPLED)
    drawn = score(request, regret=(4.0, 4.0, 4.0))
    assert judge(request, make_arm((answer(request), drawn), noise="own")) == []
    outside = score(request, processed_logprob=(-1.0, -1e4, -1.0), cut_distance=(1e4, 0.5, 1e4))
    found = judge(request, make_arm((answer(request), outside), noise="own"))
    assert [(what, came) for what, _, came in found] == [("decision", "token 6, which is not")]


def test_a_token_at_the_edge_of_a_cut_is_allowed_for() -> None:
    request = ask(sampling=SAMPLED)
    edge = score(request, processed_logprob=(-1.0, -1e4, -1.0), cut_distance=(1e4, 0.002, 1e4))
    assert judge(request, make_arm((answer(request), edge), noise="own")) == []


def test_faults_of_an_end_say_what_was_expected() -> None:
    request = ask()
    faults = {(request.id, 0): (Fault(kind="stop_late", message="2 tokens late"),)}
    arm = make_arm((answer(request), score(request)), faults=faults)
    assert judge(request, arm) == [
        ("stop_late", "an end at the token that completes a stop string", "2 tokens late")
    ]


def test_a_stream_that_never_came_fails() -> None:
    request = ask(stream=True)
    assert judge(request, make_arm((answer(request), score(request))))[0][0] == "stream"
    trace = Trace(chunks=(Chunk(text="abc", token_ids=IDS),))
    assert judge(request, make_arm((answer(request, trace=trace), score(request)))) == []


@pytest.mark.parametrize(
    ("logprobs", "n_failures"), [((-9.0, -8.0, -7.0), 1), ((-0.5, -1.0, -0.2), 0)]
)
def test_equal_repeats_fail_where_their_chance_is_next_to_nothing(
    logprobs: tuple[float, ...], n_failures: int
) -> None:
    requests = [ask(sampling=SAMPLED, repeat=n) for n in range(3)]
    scores = [score(r, processed_logprob=logprobs) for r in requests]
    arm = make_arm(*zip(map(answer, requests), scores, strict=True))
    found = find_failures(pair(requests, arm), "candidate")
    assert [f.what for f in found] == ["repeats"] * n_failures


def test_greedy_repeats_are_equal_and_differing_ones_pass() -> None:
    for sampling, ids in ((Sampling(), IDS), (SAMPLED, (5, 6, 8))):
        requests = [ask(sampling=sampling, repeat=n) for n in range(2)]
        first, last = requests
        known = score(last, token_ids=ids, best_id=ids)
        arm = make_arm(
            (answer(first), score(first, processed_logprob=(-9.0,) * 3)),
            (answer(last, token_ids=ids), known),
        )
        assert find_failures(pair(requests, arm), "candidate") == []


def test_a_complete_output_must_be_what_its_format_says() -> None:
    request = ask(response_format={"type": "json_object"})
    for finish, text, n in (("eos", "{}", 0), ("eos", "[]", 1), ("length", '{"a', 0)):
        arm = make_arm((answer(request, finish=finish, text=text), score(request, eos_regret=0.0)))
        assert len(judge(request, arm)) == n


def test_only_new_failures_count_and_common_ones_are_named() -> None:
    requests = [ask("new"), ask("both"), ask("old"), ask("sound")]
    bad = {r.id: (answer(r, finish="error", error="no"), None) for r in requests}
    good = {r.id: (answer(r), score(r)) for r in requests}
    new, both, old, sound = (r.id for r in requests)
    candidate = make_arm(bad[new], bad[both], good[old], good[sound])
    baseline = make_arm(good[new], bad[both], bad[old], good[sound])
    judged, reference = compare_conformance(pair(requests, candidate, baseline))
    assert (judged.candidate, reference.baseline) == (1, 2)
    assert judged.detail["candidate_only"] == [new]
    assert judged.detail["baseline_only"] == [old]
    assert judged.detail["both"] == [both]
    assert judged.difference is not None
    assert judged.difference.n == 4


def test_without_conformance_requests_there_is_no_evidence() -> None:
    request = ask(task="other")
    found = compare_conformance(pair([request], make_arm()))
    assert {c.difference for c in found} == {None}
    assert all(c.note for c in found)


def test_conformance_and_traffic_are_told_apart() -> None:
    requests = [ask(), ask("b", task="code")]
    paired = pair(requests, make_arm())
    assert [k[0] for k in only_conformance(paired).requests] == ["conformance/a"]
    assert [k[0] for k in without_conformance(paired).requests] == ["conformance/b"]


# --------------------------------------------------------- log-probabilities


def report(*values: float, top: Any = ((),) * 3) -> tuple[TokenLogprob, ...]:
    triples = zip(IDS, values, top, strict=True)
    return tuple(TokenLogprob(token_id=i, logprob=v, top=tuple(t)) for i, v, t in triples)


def find(logprobs: Any, n: int | None = 0, **fields: Any) -> list[tuple[str, str]]:
    kind = fields.pop("said", fields.get("logprobs_kind", "raw"))
    request = ask(n_logprobs=n, **fields)
    generation = answer(request, logprobs=logprobs, logprobs_kind=kind)
    return list(find_logprob_faults(request, generation, score(request), 0.003))


def test_raw_and_processed_log_probabilities_are_told_apart() -> None:
    raw, processed = report(-1.0, -2.0, -3.0), report(-0.5, -1.0, -9.0)
    assert find(raw) == []
    assert find(processed) == [("-1.0000 at output position 0", "-0.5000")]
    assert find(processed, logprobs_kind="processed") == []
    assert find(raw, logprobs_kind="processed")
    assert find(raw, said="processed") == [("raw log-probabilities", "processed ones")]


def test_the_noise_band_of_processed_ones_widens_with_the_temperature() -> None:
    near = report(-0.5, -1.0, -9.005)
    assert find(near, logprobs_kind="processed", sampling=SAMPLED)
    assert not find(near, logprobs_kind="processed", sampling=Sampling(temperature=0.5))


def test_a_token_at_the_edge_of_a_cut_may_be_cut_by_the_referee_alone() -> None:
    request = ask(n_logprobs=0, logprobs_kind="processed", sampling=SAMPLED)
    reported = report(-0.5, -1.0, -2.0)
    generation = answer(request, logprobs=reported, logprobs_kind="processed")
    for distance, n_faults in ((0.002, 0), (0.1, 1)):
        cut = score(
            request, processed_logprob=(-0.5, -1.0, -1e4), cut_distance=(9.0, 9.0, distance)
        )
        assert len(list(find_logprob_faults(request, generation, cut, 0.003))) == n_faults


def test_each_token_has_one_and_placeholders_are_found() -> None:
    assert find(None) == [("a log-probability for each of 3 tokens", "0")]
    others = (*report(-1.0, -2.0, -3.0)[:2], TokenLogprob(token_id=9, logprob=-3.0))
    assert find(others) == [("a log-probability for each of 3 tokens", "those of other tokens")]
    assert find(report(-1.0, 0.0, -3.0)) == [("-2.0000 at output position 1", "0.0000")]
    assert find(None, n=None) == []


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (((5, -1.0), (8, -2.0)), None),
        (((5, -1.0),), "the 2 likeliest"),
        (((5, -1.0), (8, -2.0), (9, -3.0)), "the 2 likeliest"),
        (((8, -2.0), (5, -1.0)), "the likeliest tokens first"),
        (((8, -1.5), (9, -2.0)), "the emitted token among"),
        (((5, -0.5), (8, -2.0)), "one log-probability of the emitted token"),
    ],
)
def test_the_likeliest_tokens_are_so_many_in_order_and_agree(
    first: tuple[tuple[int, float], ...], words: str | None
) -> None:
    rest = ((8, -0.5), (9, -0.7))
    found = find(report(-1.0, -2.0, -3.0, top=(first, rest, rest)), n=2)
    assert [words in expected for expected, _ in found if words] == ([True] if words else [])
    assert bool(found) == bool(words)


def test_a_cut_law_may_hold_fewer_tokens_than_asked_for() -> None:
    top = (((5, -0.5),), ((6, -1.0),), ((8, -0.1),))
    reported = report(-0.5, -1.0, -9.0, top=top)
    assert find(reported, n=2, logprobs_kind="processed") == []


# -------------------------------------------------------------- JSON formats

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "size": {"enum": ["S", "M"]},
        "list": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"n": 1, "size": "M", "list": [1, 2.5]}', None),
        ('{"n": 1', "no JSON"),
        ("[]", "$ is [], no object"),
        ("{}", "$.n is missing"),
        ('{"n": true}', "$.n is True, no integer"),
        ('{"n": 1.5}', "$.n is 1.5, no integer"),
        ('{"n": 1, "size": "L"}', "$.size is 'L', none of ['S', 'M']"),
        ('{"n": 1, "list": []}', "$.list holds 0 items, allowed are 1 to 2"),
        ('{"n": 1, "list": ["x"]}', "$.list[0] is 'x', no number"),
        ('{"n": 1, "m": 2}', "$.m is not allowed"),
    ],
)
def test_a_text_is_held_against_the_schema(text: str, fault: str | None) -> None:
    found = find_format_faults(text, {"type": "json_schema", "json_schema": {"schema": SCHEMA}})
    assert [one.startswith(fault) for one in found if fault] == ([True] if fault else [])
    assert bool(found) == bool(fault)


def test_only_what_the_baseline_does_not_fail_is_named_by_kind() -> None:
    both, own = (
        Failure(request_id=name, arm="", what=what, expected="x", came="y")
        for name, what in (("a", "decision"), ("b", "logprobs"))
    )
    assert _write_detail([both], [both, own], 2)["kinds"] == {"logprobs": 1}

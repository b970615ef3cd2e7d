"""Conformance: do sampling, stop and reporting options do what they say, in both arms?

Works on the requests of the conformance set alone. A request fails where it got no output,
where a decision misses the referee's law, where its end, stream or usage is wrong, where
reported log-probabilities are not the referee's, where repeats are copies, or where an
output breaks its response_format.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from gate.conformance import TASK
from gate.decoders.endpoint_profiles import HONOURED, UNCLEAR
from gate.measures.paired import Arm, Key, Paired
from gate.measures.reported import find_logprob_faults
from gate.measures.schema import find_format_faults
from gate.measures.stats import clopper_pearson
from gate.measures.termination import find_end_faults
from gate.measures.tokens import UNEXPLAINED_FACTOR, is_keyed
from gate.offers import find_needs, find_own_eos
from gate.records import Comparison, Generation, Record, Request, TokenScores

FORBIDDEN = -1e4  # processed log-probability of a token outside the allowed set
COPIES = math.log(1e-6)  # repeats that agree although this improbable are copies

END_EXPECTED = {
    "over_budget": "no more than max_tokens tokens",
    "short_of_budget": "max_tokens tokens, or an end for another reason",
    "min_tokens": "min_tokens tokens before any end",
    "eos_passed_over": "an end at the first end-of-sequence token",
    "finish_reason": "the finish reason that the last token says",
    "stop_ignored": "an end where a stop string is complete",
    "stop_late": "an end at the token that completes a stop string",
    "stop_cut": "text cut at the earliest stop string",
    "stop_not_there": "an end for a stop string that is there",
    "ids_not_cut": "token ids cut where the text is cut",
    "text_mismatch": "the text of the token ids",
    "usage": "the token counts of what was delivered",
    "stream": "a stream of exactly what is returned",
    "ended_without_eos": "an end where the model would end",
}
"""What a fault of measures/termination goes against."""


class Failure(Record, frozen=True, kw_only=True):
    """Why one conformance request failed in one arm."""

    request_id: str
    repeat: int = 0
    arm: str = ""
    what: str
    expected: str
    came: str


def only_conformance(paired: Paired) -> Paired:
    """Return the evidence on the conformance requests that both decoders say they offer."""
    kept = {key: request for key, request in paired.requests.items() if request.task == TASK}
    own = find_own_eos(kept.values())
    missing = {*paired.baseline.spec.unsupported, *paired.candidate.spec.unsupported}
    offered = {k: request for k, request in kept.items() if not missing & find_needs(request, own)}
    return dataclasses.replace(paired, requests=offered)


def without_conformance(paired: Paired) -> Paired:
    """Return the evidence on all other requests: the traffic that measures pool and weigh."""
    kept = {key: request for key, request in paired.requests.items() if request.task != TASK}
    return dataclasses.replace(paired, requests=kept)


def compare_conformance(
    paired: Paired,
    confidence_level: float = 0.95,
    probed: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Comparison]:
    """Return conformance, requests that fail under the candidate alone, and baseline_conformance.

    probed: by arm, option -> what became of it when its server was probed. detail.failures: every
    failure of both arms. detail.both: requests that fail in both.
    """
    paired = only_conformance(paired)
    tried = _read_probes(probed or {})
    names = {request.id for request in paired.requests.values()} | set(tried)
    measures = ("conformance", "baseline_conformance")
    if not names:
        note = "no conformance request was sent"
        return [Comparison(measure=measure, unit="count", note=note) for measure in measures]
    baseline = [*find_failures(paired, "baseline"), *_list_unhonoured(tried, "baseline")]
    candidate = [*find_failures(paired, "candidate"), *_list_unhonoured(tried, "candidate")]
    failed = {f.request_id for f in baseline}
    new = {f.request_id for f in candidate} - failed
    return [
        Comparison(
            measure=measure,
            unit="count",
            direction="lower_is_better",
            baseline=len(failed),
            candidate=len(new),
            difference=clopper_pearson(len(judged), len(names), confidence_level, "upper"),
            detectable="a fault that shows in one of the requests; each kind has its own",
            detail=_write_detail(baseline, candidate, len(names)),
        )
        for measure, judged in zip(measures, (new, failed), strict=True)
    ]


def _read_probes(probed: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return by option, as the id of a request, what became of it in each arm that tried it."""
    found: dict[str, dict[str, str]] = {}
    for arm, honours in probed.items():
        for option, what in honours.items():
            if what != UNCLEAR:
                found.setdefault(f"{TASK}/probe of {option}", {})[arm] = what
    return found


def _list_unhonoured(tried: Mapping[str, Mapping[str, str]], arm: str) -> Iterator[Failure]:
    """Yield the options that a server did not honour when it was probed."""
    for name, by_arm in tried.items():
        came = by_arm.get(arm, HONOURED)
        if came != HONOURED:
            yield Failure(
                request_id=name, arm=arm, what="option", expected="an option honoured", came=came
            )


def _write_detail(
    baseline: list[Failure], candidate: list[Failure], n_requests: int
) -> dict[str, object]:
    in_baseline, in_candidate = ({f.request_id for f in one} for one in (baseline, candidate))
    return {
        "n_requests": n_requests,
        "failures": msgspec.to_builtins([*candidate, *baseline]),
        "both": sorted(in_baseline & in_candidate),
        "candidate_only": sorted(in_candidate - in_baseline),
        "baseline_only": sorted(in_baseline - in_candidate),
        "kinds": dict(Counter(f.what for f in candidate if f.request_id not in in_baseline)),
    }


def find_failures(paired: Paired, name: str) -> list[Failure]:
    """Return every failure of the arm ``name`` (baseline or candidate)."""
    arm: Arm = getattr(paired, name)
    found = [f for key in paired.requests for f in _check_request(paired, arm, key)]
    found += _check_repeats(paired, arm)
    return [msgspec.structs.replace(failure, arm=name) for failure in found]


def _check_request(paired: Paired, arm: Arm, key: Key) -> Iterator[Failure]:
    """Yield an output's failures, at most one of a kind."""
    if arm.failed(key):
        generation = arm.generations.get(key)
        came = (generation.error if generation else None) or "nothing"
        yield _failure(key, "no output", "an output", came)
        return
    request, generation, scores = paired.requests[key], arm.generations[key], arm.scores.get(key)
    bound = UNEXPLAINED_FACTOR * paired.bound.bound
    if scores is not None:
        yield from _check_decisions(key, arm, request, scores, bound)
    for fault in find_end_faults(paired, arm, key):
        expected = END_EXPECTED.get(fault.kind, "an output that ends and is reported as asked")
        yield _failure(key, fault.kind, expected, fault.message)
    yield from _check_stream(key, arm, request, generation)
    for expected, came in find_logprob_faults(request, generation, scores, bound):
        yield _failure(key, "logprobs", expected, came)
    if request.response_format is not None and generation.finish != "length":
        for came in find_format_faults(generation.text, request.response_format)[:1]:
            yield _failure(key, "response_format", "JSON of the schema asked for", came)


def _failure(key: Key, what: str, expected: str, came: str) -> Failure:
    return Failure(request_id=key[0], repeat=key[1], what=what, expected=expected, came=came)


def _check_decisions(
    key: Key, arm: Arm, request: Request, scores: TokenScores, bound: float
) -> Iterator[Failure]:
    """Yield the first decision that the law does not explain.

    Sampled output of a decoder with noise of its own may be any allowed token.
    """
    keyed = is_keyed(arm, request)
    for at, token in enumerate(scores.token_ids):
        if keyed and scores.regret[at] > bound:
            came = f"token {token}, {scores.regret[at]:.3g} nat short"
            expected = f"token {scores.best_id[at]} at output position {at}"
            yield _failure(key, "decision", expected, came)
            return
        if not keyed and _is_outside(scores, at, bound):
            expected = f"an allowed token at output position {at}"
            yield _failure(key, "decision", expected, f"token {token}, which is not")
            return


def _is_outside(scores: TokenScores, at: int, bound: float) -> bool:
    """Whether a token lies outside the cuts and masks, its edges allowed for."""
    if not scores.processed_logprob or scores.processed_logprob[at] > FORBIDDEN:
        return False
    return not scores.cut_distance or scores.cut_distance[at] > bound


def _check_stream(
    key: Key, arm: Arm, request: Request, generation: Generation
) -> Iterator[Failure]:
    """A stream that never came; what was streamed wrongly is an end fault."""
    has_chunks = generation.trace is not None and bool(generation.trace.chunks)
    is_known = any(fault.kind == "stream" for fault in arm.faults.get(key, ()))
    if request.stream and generation.text and not has_chunks and not is_known:
        yield _failure(key, "stream", "a stream", "no chunk of it")


def _check_repeats(paired: Paired, arm: Arm) -> Iterator[Failure]:
    """Yield sampled requests whose repeats all agree although that is next to impossible.

    The others equal the first with probability exp((n - 1) sum of its log-probabilities).
    """
    for keys in _group_repeats(paired.requests).values():
        request = paired.requests[keys[0]]
        outputs = {arm.generations[key].token_ids for key in keys if not arm.failed(key)}
        scores = arm.scores.get(keys[0])
        if not request.sampling.temperature or len(outputs) != 1 or scores is None:
            continue
        chance = (len(keys) - 1) * sum(scores.processed_logprob)
        if len(keys) > 1 and chance < COPIES:
            yield _failure(
                keys[-1],
                "repeats",
                "independent draws",
                f"{len(keys)} equal outputs, a chance of {math.exp(chance):.1g}",
            )


def _group_repeats(requests: Mapping[Key, Request]) -> dict[str, list[Key]]:
    groups: dict[str, list[Key]] = {}
    for key in requests:
        groups.setdefault(key[0], []).append(key)
    return groups

"""One sentence per verdict, written for a release manager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gate.gain_words import explain_cost, explain_seconds
from gate.measures.float32 import GROUP as FLOAT32
from gate.measures.power import required_n_to_decide
from gate.records import Comparison, Criterion, Outcome, Verdict

Detail = Mapping[str, object]
MOST_OFTEN = ", most often with: "
"""Ahead of a message that is not ours, up to the end of the sentence."""
SHOWN_ERROR = 200  # characters of an error in a reason


def explain(criterion: Criterion, comparison: Comparison | None, outcome: Outcome) -> str:
    """Return why a criterion came out as it did."""
    if comparison is None:
        return "nothing was measured"
    sentence = _SENTENCES.get(criterion.measure, _general)(criterion, comparison)
    if comparison.group == FLOAT32:
        sentence = f"in float32, {sentence}"
    if outcome is Outcome.NOT_JUDGED:
        return f"shown, not judged: {sentence}"
    if outcome is Outcome.INCONCLUSIVE:
        return sentence + _how_many_more(criterion, comparison)
    return sentence


def _how_many_more(criterion: Criterion, comparison: Comparison) -> str:
    if comparison.difference is None or comparison.unit == "count":
        return ""
    n = required_n_to_decide(comparison.difference, criterion.margin)
    return f"; about {n:,} pairs would decide it" if n and n > comparison.difference.n else ""


def _certificate(criterion: Criterion, comparison: Comparison) -> str:
    detail = comparison.detail
    who = "the baseline's" if criterion.measure.startswith("baseline_") else "the candidate's"
    count = (
        comparison.baseline if criterion.measure.startswith("baseline_") else comparison.candidate
    )
    n = _int(detail, "n_decisions")
    upper = comparison.difference.interval[1] if comparison.difference else None
    if not count:
        by_request = detail.get("request_rate_upper")
        rates = [f"{upper:.2%} of tokens"] if upper is not None else []
        rates += [f"{by_request:.1%} of requests"] if isinstance(by_request, float) else []
        rate = f" (rate below {' and '.join(rates)})" if rates else ""
        return f"no defect in {n:,} of {who} token decisions{rate}"
    diagnosis = f": {detail['diagnosis']}" if detail.get("diagnosis") else ""
    return (
        f"{count:,.0f} of {n:,} of {who} token decisions, in {_int(detail, 'n_requests_hit')} "
        f"requests, are not what the model decides{diagnosis}"
    )


def _termination(criterion: Criterion, comparison: Comparison) -> str:
    is_baseline = criterion.measure.startswith("baseline_")
    count = comparison.baseline if is_baseline else comparison.candidate
    n = _int(comparison.detail, "n_outputs")
    who = "baseline" if is_baseline else "candidate"
    if not count:
        return f"all {n:,} outputs of the {who} ended where they should"
    kinds = comparison.detail.get("kinds")
    named = (
        ", ".join(f"{kind.replace('_', ' ')} ({k})" for kind, k in kinds.items())
        if isinstance(kinds, dict)
        else ""
    )
    return f"{count:,.0f} of {n:,} outputs of the {who} ended or were reported wrongly: {named}"


def _exercised(criterion: Criterion, comparison: Comparison) -> str:
    accepted, n = _int(comparison.detail, "accepted"), _int(comparison.detail, "requests")
    if accepted >= criterion.margin:
        return f"{accepted:,} drafts were accepted in {n} requests"
    wrong = _int(comparison.detail, "n_not_adding_up")
    if wrong:
        return (
            f"the reported counts of {wrong} requests cannot be true of their outputs, and the "
            f"others accepted {accepted:,} drafts where {criterion.margin:.0f} are needed"
        )
    return (
        f"{accepted:,} drafts were accepted in {n} requests where {criterion.margin:.0f} are "
        "needed: the change was not exercised, and equal outputs prove nothing"
    )


def _baseline_conformance(_: Criterion, comparison: Comparison) -> str:
    n = comparison.difference.n if comparison.difference else 0
    if not comparison.baseline:
        return f"all {n} conformance requests behave as they should under the baseline"
    return f"{comparison.baseline:.0f} of {n} conformance requests fail under the baseline"


def _conformance(_: Criterion, comparison: Comparison) -> str:
    n = comparison.difference.n if comparison.difference else 0
    if not comparison.candidate:
        return f"all {n} conformance requests behave as they do without the change"
    return (
        f"{comparison.candidate:.0f} of {n} conformance requests fail under the candidate and "
        f"pass under the baseline{_name_kinds(comparison.detail)}"
    )


def _name_kinds(detail: Detail) -> str:
    kinds = detail.get("kinds")
    if not isinstance(kinds, dict) or not kinds:
        return ""
    return ": " + ", ".join(f"{kind} ({count})" for kind, count in kinds.items())


def _errors(_: Criterion, comparison: Comparison) -> str:
    candidate, baseline = _share(comparison.candidate), _share(comparison.baseline)
    sentence = f"the candidate failed {candidate} of the requests, the baseline {baseline}"
    errors = comparison.detail.get("candidate_errors")
    if not isinstance(errors, dict) or not errors:
        return sentence
    commonest = " ".join(str(max(errors, key=lambda name: errors[name])).split())
    return f"{sentence}{MOST_OFTEN}{commonest[:SHOWN_ERROR]}"


def _pairs(criterion: Criterion, comparison: Comparison) -> str:
    lost = _share(comparison.candidate or 0.0)
    return f"{lost} of the requests have no pair of outputs; {criterion.margin:.1%} may be lost"


def _rate(_: Criterion, comparison: Comparison) -> str:
    what = str(comparison.detail.get("what", comparison.measure))
    p = comparison.difference.pvalue if comparison.difference else None
    chance = f" (p = {p:.2g})" if p is not None else ""
    candidate, baseline = _share(comparison.candidate, 2), _share(comparison.baseline, 2)
    return f"{what}: candidate {candidate}, baseline {baseline}{chance}"


def _divergence(criterion: Criterion, comparison: Comparison) -> str:
    return (
        f"the law used while decoding lies {_number(comparison.candidate)} nat from the model's "
        f"own on average ({criterion.margin:g} allowed)"
    )


def _tasks(criterion: Criterion, comparison: Comparison) -> str:
    detail, estimate = comparison.detail, comparison.difference
    changed, n = _int(detail, "discordant"), _int(detail, "n") or (estimate.n if estimate else 0)
    place = "" if comparison.group == "all" else f" on {comparison.group}"
    before, after = _share(comparison.baseline), _share(comparison.candidate)
    sentence = f"{changed} of {n} scores changed{place}: accuracy {before} to {after}"
    low = estimate.interval[0] if estimate else None
    if criterion.rule == "non_inferior" and low is not None:
        sentence += f", a loss of at most {max(-low, 0.0):.1%} (margin {criterion.margin:.1%})"
    return sentence


def _guards(_: Criterion, comparison: Comparison) -> str:
    flipped = comparison.detail.get("flipped")
    count = _int(comparison.detail, "n_flipped") or (
        len(flipped) if isinstance(flipped, list) else 0
    )
    n = comparison.difference.n if comparison.difference else 0
    return f"{count} of {n} outputs changed their {comparison.group} label"


def _time(_: Criterion, comparison: Comparison) -> str:
    estimate = comparison.difference
    place = "" if comparison.group == "all" else f" on {comparison.group}"
    if estimate is None:
        return f"the time per request was not measured{place}"
    low, high = estimate.interval
    ends = " to ".join("unbounded" if end is None else f"{end:.2f}" for end in (low, high))
    word = "no difference is shown"
    if high is not None and high < 1.0:
        word = "faster"
    elif low is not None and low > 1.0:
        word = "slower"
    return (
        f"the candidate takes {estimate.statistic:.2f} times the baseline's time per request"
        f"{place} ({ends}): {word}"
    )


def _sampled(_: Criterion, comparison: Comparison) -> str:
    n = comparison.difference.n if comparison.difference else 0
    place = {
        "first_of_run": ", first of a run",
        "inside_run": ", inside a run",
    }.get(comparison.group, "")
    return (
        f"{n:,} sampled tokens{place} lie {_number(comparison.candidate)} from the model's own law "
        "(largest difference of the distribution functions)"
    )


def _frequencies(_: Criterion, comparison: Comparison) -> str:
    n = comparison.difference.n if comparison.difference else 0
    n_tokens = _int(comparison.detail, "n_tokens")
    share = _share(comparison.candidate)
    return (
        f"the {n_tokens} most frequent sampled tokens, {n:,} draws, came {share} more or less "
        "often than the model's law says (root mean square)"
    )


def _band(_: Criterion, comparison: Comparison) -> str:
    n = comparison.difference.n if comparison.difference else 0
    return (
        f"the candidate took {_share(comparison.candidate)} of {n} drafts that are the model's "
        "second choice by a hair; a lossless verifier takes at most half"
    )


def _drop(_: Criterion, comparison: Comparison) -> str:
    place = "" if comparison.group == "all" else f" on {comparison.group}"
    change = comparison.candidate or 0.0
    word = "more" if change >= 0 else "fewer"
    return f"{abs(change):.1%} {word} forwards per token{place} than the approved candidate took"


def _repeats(criterion: Criterion, comparison: Comparison) -> str:
    is_baseline = criterion.measure.startswith("baseline_")
    who = "baseline" if is_baseline else "candidate"
    count = (comparison.baseline if is_baseline else comparison.candidate) or 0.0
    n, n_ties = _int(comparison.detail, "n_requests"), _int(comparison.detail, "n_ties")
    ties = f", {n_ties} by arithmetic ties" if n_ties else ""
    if not count:
        return f"all {n} requests sent again came out of the {who} as before{ties}"
    return (
        f"{count:.0f} of {n} requests sent again came out of the {who} otherwise than before, "
        "though nothing but their company changed"
    )


def _repeat_rate(_: Criterion, comparison: Comparison) -> str:
    candidate, baseline = _share(comparison.candidate), _share(comparison.baseline)
    return f"outputs that change when sent again: candidate {candidate}, baseline {baseline}"


def _baseline_drift(_: Criterion, comparison: Comparison) -> str:
    detail, n = comparison.detail, comparison.difference.n if comparison.difference else 0
    name = f"the approved baseline {detail.get('approved', '')}".strip()
    counts = detail.get("counts")
    known: Mapping[str, object] = counts if isinstance(counts, dict) else {}
    if not comparison.baseline:
        n_ties, n_odd = _int(known, "tie"), _int(known, "unexplained")
        odd = f", {n_odd} a little beyond it" if n_odd else ""
        differ = f"; {n_ties} differ within arithmetic noise{odd}" if n_ties or n_odd else ""
        return f"{n - n_ties - n_odd} of {n} outputs are those of {name}{differ}"
    return (
        f"{comparison.baseline:.0f} of {n} outputs are not those of {name}, and arithmetic does "
        "not explain it: the baseline is not what was approved"
    )


def _general(criterion: Criterion, comparison: Comparison) -> str:
    estimate = comparison.difference
    value = _number(estimate.statistic) if estimate else "not measured"
    return f"{criterion.measure} is {value} against a margin of {criterion.margin:g}"


_SENTENCES: Mapping[str, Callable[[Criterion, Comparison], str]] = {
    "token_defects": _certificate,
    "baseline_certificate": _certificate,
    "termination": _termination,
    "baseline_termination": _termination,
    "exercised": _exercised,
    "conformance": _conformance,
    "baseline_conformance": _baseline_conformance,
    "error_rate": _errors,
    "dropped_pairs": _pairs,
    "flip_rate": _rate,
    "token_unexplained": _rate,
    "divergence": _divergence,
    "task_delta": _tasks,
    "guard_flips": _guards,
    "time_ratio": _time,
    "device_seconds": explain_seconds,
    "cost_per_request": explain_cost,
    "pit_distance": _sampled,
    "sample_tokens": _frequencies,
    "band_acceptance": _band,
    "baseline_repeats": _repeats,
    "repeats": _repeats,
    "repeat_rate": _repeat_rate,
    "acceptance_drop": _drop,
    "baseline_drift": _baseline_drift,
}


def summarise(outcome: Outcome, verdicts: Sequence[Verdict], *, gain_note: str) -> str:
    """Return the decision's one sentence."""
    counted = [v for v in verdicts if v.blocking and v.waiver is None]
    deciding = [v for v in counted if v.outcome is outcome]
    if not deciding:
        return "no blocking criterion could be judged; nothing is known about this change"
    if outcome is Outcome.PASS:
        wanted = ("token certificate", "task accuracy")
        chosen = [v for v in deciding if v.criterion in wanted and v.group == "all"]
        chosen = chosen or sorted(deciding, key=lambda v: v.criterion.startswith("baseline "))[:1]
        return _sentence([v.reason for v in chosen] + ([gain_note] if gain_note else []))
    # of the gain the whole traffic first: speed and cost say more than speed and one class's speed
    deciding.sort(key=lambda v: (v.half == "gain", v.half == "gain" and v.group != "all"))
    more = len(deciding) - 2
    parts = [f"{v.criterion}: {v.reason}" for v in deciding[:2]]
    return _sentence(parts + ([f"and {more} more"] if more > 0 else []))


def _sentence(parts: Sequence[str]) -> str:
    return "; ".join(parts) + "."


def _int(detail: Detail, key: str) -> int:
    value = detail.get(key, 0)
    return int(value) if isinstance(value, int | float) else 0


def _share(value: float | None, digits: int = 1) -> str:
    return "none" if value is None else f"{value:.{digits}%}"


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2g}"

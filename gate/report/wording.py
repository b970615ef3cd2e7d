"""The words of the page: what outcomes, measures, rules and fork kinds mean to a reader."""

from __future__ import annotations

from typing import NamedTuple

from gate.records import Outcome


class Measure(NamedTuple):
    """How a measure is shown. ``arms``: the unit of the two arms where not the difference's."""

    title: str
    meaning: str
    unit: str = ""
    arms: str | None = None
    absolute: bool = False  # the statistic belongs to the candidate, not to a difference


MEASURES = {
    "token_defects": Measure(
        "Token defects",
        "tokens the model itself would not have chosen, by more than arithmetic noise explains",
        "share",
        "",
        absolute=True,
    ),
    "baseline_certificate": Measure(
        "Token defects of the baseline",
        "the baseline's own tokens under the same certificate: the ruler is checked first",
        "share",
        "",
        absolute=True,
    ),
    "token_unexplained": Measure(
        "Unexplained tokens",
        "tokens slightly beyond the noise, compared with the baseline's own number",
        "share",
    ),
    "flip_rate": Measure(
        "Flip rate",
        "how often an emitted token is not the model's first choice, candidate minus baseline",
        "share",
    ),
    "baseline_termination": Measure(
        "Endings of the baseline",
        "the baseline's own outputs that stop too early, too late or in the wrong place",
        "share",
        "",
        absolute=True,
    ),
    "baseline_conformance": Measure(
        "Conformance of the baseline",
        "the same synthetic requests under the baseline",
        absolute=True,
    ),
    "baseline_drift": Measure(
        "Drift of the baseline",
        "outputs that the approved baseline gave and today's does not decide",
        absolute=True,
    ),
    "baseline_time": Measure(
        "Time of the baseline",
        "seconds per request of the baseline arm, over those of the approved one",
        absolute=True,
    ),
    "termination": Measure(
        "Endings",
        "outputs that stop too early, too late or in the wrong place",
        "share",
        "",
        absolute=True,
    ),
    "exercised": Measure(
        "Exercised",
        "whether the candidate's guesses were used at all, or it is the baseline in disguise",
        absolute=True,
    ),
    "conformance": Measure(
        "Conformance",
        "synthetic requests with stop strings, penalties, seeds and limits that must be honoured",
        absolute=True,
    ),
    "error_rate": Measure(
        "Error rate", "requests that failed, or were answered only when asked again", "share"
    ),
    "memorisation": Measure(
        "Memorisation",
        "how much more is accepted on prompts that come a second time",
        "share",
        absolute=True,
    ),
    "dropped_pairs": Measure(
        "Dropped pairs", "requests that could not be compared", "share", absolute=True
    ),
    "divergence": Measure(
        "Divergence",
        "distance between the token law the candidate used and the model's own",
        "nats",
        absolute=True,
    ),
    "band_acceptance": Measure(
        "Second choices",
        "how much more than half of the model's second choices were taken, offered as drafts",
        "share",
    ),
    "pit_distance": Measure(
        "Sampled law",
        "distance of the sampled tokens from the model's own law",
        absolute=True,
    ),
    "sample_lag": Measure(
        "Independence of sampled tokens",
        "correlation of one sampled token with the next; noise used twice shows here",
        absolute=True,
    ),
    "sample_duplicates": Measure(
        "Copies among repeats",
        "repeats of a sampled request that are equal although chance makes that next to impossible",
        "share",
        "",
        absolute=True,
    ),
    "text_mmd": Measure(
        "Sampled texts",
        "whether sampled texts tell the arms apart, where tokens cannot be scored",
        absolute=True,
    ),
    "baseline_repeats": Measure(
        "Repeats of the baseline",
        "the baseline's own outputs that change when a request comes again in other company",
        "share",
        "",
        absolute=True,
    ),
    "repeats": Measure(
        "Repeats",
        "outputs that change, beyond arithmetic ties, when a request comes again in other company",
        "share",
        "",
        absolute=True,
    ),
    "repeat_rate": Measure(
        "Repeat rate", "outputs that change at all when a request comes again", "share"
    ),
    "acceptance_drop": Measure(
        "Acceptance beside the approved candidate",
        "forwards per token, as a change from what the approved candidate took",
        "share",
    ),
    "task_delta": Measure("Task score", "evaluation score, candidate minus baseline", "share"),
    "guard_flips": Measure("Behaviour", "answers whose behaviour label changed", "share"),
    "forks": Measure(
        "Forks", "pairs whose outputs part somewhere; a count, not judged", absolute=True
    ),
    "time_ratio": Measure(
        "Time per request", "candidate's time over the baseline's; below 1 is faster", "ratio", "s"
    ),
    "tokens_per_second": Measure("Tokens per second", "speed of generation", "tokens/s"),
    "ttft": Measure("Time to first token", "wait before the first token", "s"),
    "tpot": Measure("Time per token", "pace after the first token", "s"),
    "latency": Measure("Latency", "seconds per request, as a geometric mean", "ratio", "s"),
    "chunk_gap": Measure(
        "Wait between arrivals", "mean wait between what a user sees arrive", "ratio", "s"
    ),
    "worst_gap": Measure(
        "Longest wait", "longest wait between what a user sees arrive", "ratio", "s"
    ),
    "device_seconds": Measure(
        "Device-seconds", "the device's time per request; below 1 the change saves", "ratio", "s"
    ),
    "cost_per_request": Measure("Cost per request", "what a request costs to serve", "USD"),
    "margin_per_request": Measure(
        "Contribution margin", "what a request earns less what it costs to serve", "USD"
    ),
    "routing": Measure(
        "Routed traffic",
        "device-seconds with only the classes routed that pay, over the baseline's",
        "ratio",
        "s",
    ),
    "sweep": Measure(
        "Time by batch size", "time of requests served together; below 1 is faster", "ratio", "s"
    ),
    "crossover_batch": Measure(
        "Crossover batch",
        "requests at once from which on the candidate is slower",
        "requests",
        absolute=True,
    ),
    "profile": Measure("What binds", "what limits decoding here, and which classes suit it"),
    "goodput": Measure(
        "Goodput", "requests answered within what their users are promised", "share"
    ),
    "serving_errors": Measure("Failed while timed", "timed requests that failed", "share"),
    "serving_timeouts": Measure("Timeouts", "timed requests beyond the limit", "share"),
    "peak_memory": Measure("Peak memory", "most memory held so far", "bytes"),
    "entropy": Measure("Entropy", "how open the next token is, by the model's own law", "nats"),
    "acceptance": Measure("Acceptance", "share of the guessed tokens that were kept", "share"),
}

OUTCOME_WORDS = {
    Outcome.PASS: "passed",
    Outcome.FAIL: "failed",
    Outcome.INCONCLUSIVE: "not enough evidence",
    Outcome.ERROR: "could not be judged",
    Outcome.NOT_JUDGED: "not judged",
}
OUTCOME_ICONS = {
    Outcome.PASS: "✓",
    Outcome.FAIL: "✕",
    Outcome.INCONCLUSIVE: "?",
    Outcome.ERROR: "!",
    Outcome.NOT_JUDGED: "–",
}

CLAIMS = {
    "lossless": "promises the same output as the baseline, token for token",
    "bounded": "allows a loss, within limits declared beforehand",
    "control": "the same decoder on both sides, to check the gate itself",
}
PURPOSES = {
    "release": "content and gain must both pass",
    "content": "judges the answers only; the gain is shown, not judged",
}

RULES = {
    "non_inferior": "may not be worse by more than {margin}",
    "equivalent": "may not differ by more than {margin}, either way",
    "at_most": "must stay at or below {margin}",
    "at_least": "must reach {margin} or more",
    "alarm": "raises an alarm beyond {margin}, either way, if chance cannot explain it",
}

FORK_KINDS = {
    "defect": "Defect: not a token the model would have chosen",
    "unexplained": "Unexplained: slightly beyond what noise explains",
    "tie": "Tie: both tokens are within arithmetic noise",
    "exact": "Exact: the token is the model's own choice",
    "unscored": "Unscored: the referee has no evidence here",
}

GROUPS = {
    "all": "all requests",
    "baseline": "the baseline",
    "candidate": "the candidate",
    "by_token": "in one fixed order of tokens",
    "float32_logic": "the same requests in float32",
}

SECTIONS = (
    ("criteria", "Criteria"),
    ("speed", "Gain"),
    ("forks", "Forks"),
    ("defects", "Defects"),
    ("tasks", "Tasks"),
    ("guards", "Behaviour"),
    ("divergence", "Divergence"),
    ("earnings", "What it earns"),
    ("serving", "Serving"),
    ("servers", "Servers"),
    ("conformance", "Conformance"),
    ("failures", "Failures"),
    ("sensitivity", "Sensitivity"),
    ("written", "Written criteria"),
    ("provenance", "Provenance"),
)
COUNTED = (
    "The count is judged. The dotted line is not: it shows the rate that could still hide, "
    "as a count of as many cases."
)
DIVERGENCE_LIMIT = (
    "This measure sees faults in arithmetic, cache, mask and position. It cannot see a decoder "
    "that accepts guesses it should reject; the token certificate does that."
)
BASELINE_BROKEN = (
    "The baseline failed its own certificate: {count} of its tokens are not what the model would "
    "have chosen. The ruler is bent, so nothing can be said about the candidate. "
    "Repair the baseline first; this is not evidence against the candidate."
)
NOT_COVERED = (
    "No guess was accepted in the class {name}: the new decoder did nothing there, "
    "and the claim does not cover it."
)
ACCEPTANCE_UNKNOWN = "For {count} the decoder does not say what it accepted."
WITH_WAIVERS = "Passed with {n}: read what was signed away before you sign"
NO_VERDICTS = "No criterion was judged. No evidence is never a pass."


def describe_measure(name: str) -> Measure:
    """Return how to show measure ``name``; one nobody described keeps its own name."""
    return MEASURES.get(name, Measure(name.replace("_", " "), ""))


def describe_fork(kind: str) -> str:
    """Return what a fork's kind means; one nobody described keeps its own name."""
    return FORK_KINDS.get(kind, kind)


def describe_group(name: str) -> str:
    """Return the group's name as a reader says it."""
    return GROUPS.get(name, name)


def write_headline(outcome: Outcome, purpose: str, claim: str) -> str:
    """Return what the outcome means for the person who signs."""
    if outcome == Outcome.PASS:
        return _write_pass(purpose, claim)
    headlines = {
        Outcome.FAIL: "Do not ship: the evidence is against this change",
        Outcome.INCONCLUSIVE: "Do not ship yet: there is not enough evidence",
        Outcome.ERROR: "Do not ship: the gate could not judge this run",
        Outcome.NOT_JUDGED: "Do not ship: nothing was judged",
    }
    return headlines[outcome]


def _write_pass(purpose: str, claim: str) -> str:
    if claim == "control":
        return "The control behaved: the gate raised no false alarm"
    if purpose == "release":
        return "Ready to sign: the answers held and the gain is real"
    return "The answers held. Whether it pays was not judged"


def write_next_step(outcome: Outcome, purpose: str) -> str:
    """Return what to do now, in one sentence."""
    if outcome == Outcome.PASS and purpose == "release":
        return "Read the limits below, then sign."
    steps = {
        Outcome.PASS: "To ship, run it again with purpose “release”, so that the gain is judged.",
        Outcome.FAIL: "Send it back with this page: criteria and forks show where to look.",
        Outcome.INCONCLUSIVE: "Send it back for a larger run: each criterion says what is missing.",
        Outcome.ERROR: "Send it back: repair what is named above, then run the gate again.",
        Outcome.NOT_JUDGED: "Send it back: run the gate again with criteria.",
    }
    return steps[outcome]

"""How each measure is shown: its title, its meaning in plain words, its units."""

from __future__ import annotations

from typing import NamedTuple


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
    "sample_tokens": Measure(
        "Frequency of sampled tokens",
        "by which share frequent tokens were drawn more or less often than the model's law says",
        "share",
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


def describe_measure(name: str) -> Measure:
    """Return how to show measure ``name``; one nobody described keeps its own name."""
    return MEASURES.get(name, Measure(name.replace("_", " "), ""))

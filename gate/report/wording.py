"""The words of the page: what outcomes, rules and fork kinds mean to a reader."""

from __future__ import annotations

from gate.records import Outcome

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
    "mixed": "served mixed",
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


def describe_fork(kind: str) -> str:
    """Return what a fork's kind means; one nobody described keeps its own name."""
    return FORK_KINDS.get(kind, kind)


def describe_group(name: str) -> str:
    """Return the group's name as a reader says it."""
    return GROUPS.get(name, name)


EXPIRED = "Do not ship on this page: the decision no longer stands"
GAIN_FAILS = (
    "The answers held; the gain did not. “What the change earns” shows why, what it would take, "
    "and which request classes to route."
)
RUN_AGAIN = "Run the gate again: packages, traffic and hardware move on."


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


def write_next_step(outcome: Outcome, purpose: str, content: Outcome) -> str:
    """Return what to do now, in one sentence. content: the outcome of that half."""
    if outcome == Outcome.FAIL and content == Outcome.PASS:
        return GAIN_FAILS
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

"""Two decoders on the same few requests, judged by the gate's own token rules.

For the test suite of those who write decoders: seconds instead of a whole gate run. What
needs many outputs (acceptance that is relaxed inside the noise band, tasks, guards, speed)
stays with the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gate.config import Config, ModelConfig, Project
from gate.criteria import Rules, decide, judge_all
from gate.decoders.base import Decoder, create, load_object, read_spec
from gate.defaults import default_criteria
from gate.errors import UsageError
from gate.evalset import load_evalset
from gate.export.forks import describe_fork
from gate.export.outcomes import sort_forks, sort_verdicts, stops_release
from gate.export.text import to_line
from gate.measures.divergence import compare_divergence
from gate.measures.exercise import compare_exercise
from gate.measures.forks import find_forks
from gate.measures.paired import Arm, Paired
from gate.measures.termination import compare_termination
from gate.measures.tokens import compare_certificates, compare_rates
from gate.plan import SESSION, TASKS, prompt_text
from gate.records import Comparison, Criterion, Fork, Outcome, Request, Sampling, Verdict
from gate.store import BatchResult, key_text

PROMPTS = (
    "Count from one to twelve, in words, with commas.",
    'Answer with JSON only: {"name": "Ada", "born": 1815} as a list of such objects, three times.',
    "Write a Python function that adds two numbers and returns the sum.",
    "Repeat this sentence three times: The train leaves at nine.",
    "What is the capital of France? Answer in one sentence.",
    "List the days of the week, one per line.",
    "Correct the spelling: Teh cat sat on teh mat and teh dog on teh floor.",
    "Write the alphabet in capital letters, with blanks between them.",
    "Translate into French: good morning, good evening, good night.",
    "Tell the story of a lighthouse in three sentences.",
    "Write an HTML list of four fruits.",
    "Add 12 and 30, then multiply by 2. Show each step.",
)
"""Where no evalset is given: text in which drafts are accepted, and some in which few are."""
MEASURES = frozenset(
    {
        "baseline_certificate",
        "baseline_termination",
        "token_defects",
        "token_unexplained",
        "flip_rate",
        "termination",
        "divergence",
        "exercised",
    }
)
ALPHA = 0.001
N_CALIBRATION = 4  # requests behind the noise bound
ROWS = 32  # of a step, where a decoder does not say
RESAMPLES = 20_000
N_REASONS = 5

Evalset = str | Path | Sequence[str | Request] | None
Factory = Callable[..., Any]


class DriftError(AssertionError):
    """The candidate's outputs are not the baseline's, or nothing was shown. Its text says where."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What a comparison without drift showed: counts, and the forks that are ties."""

    n_requests: int
    n_decisions: int
    n_accepted: int
    bound_nat: float
    forks: tuple[Fork, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How ``assert_no_drift`` compares; see the fixture."""

    evalset: Evalset = None
    n_requests: int | None = None
    max_tokens: int | None = None
    batch: int = 8
    min_accepted: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what would compare nothing. Raises UsageError naming the key."""
        least = {"n_requests": 1, "max_tokens": 1, "batch": 1, "min_accepted": 0, "seed": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                msg = f"assert_no_drift: {name} = {value}; it must be at least {lowest}"
                raise UsageError(msg)


def make_decoder(model: Any, folder: Path, kind: str | Factory, options: dict[str, Any]) -> Decoder:
    """Return a decoder on a loaded model: by kind, "module:factory", or a factory itself.

    Raises UsageError naming the key, RunError where a factory does not return a decoder.
    """
    if not isinstance(kind, str):
        return _wrap(model, kind, options)
    table = {"kind": "python", "target": kind} if ":" in kind else {"kind": kind}
    return create(read_spec("gate_decoder", table | options), model, folder)


def _wrap(model: Any, factory: Factory, options: dict[str, Any]) -> Decoder:
    """Wrap a factory as gate.toml's ``python`` kind does: what it raises is a failed request."""
    name = f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', '?')}"
    spec = read_spec("gate_decoder", {"kind": "python", "target": name, **options})
    wrapped: Decoder = load_object("gate.decoders.python:PythonDecoder")(spec, model, factory)
    return wrapped


def compare(model: Any, folder: Path, baseline: Any, candidate: Any, options: Options) -> Drift:
    """Run both decoders on the same requests and judge the candidate. Raises DriftError.

    model: a loaded model (gate.models.LoadedModel) that both decode with, and the referee too.
    """
    session = _open_session(model, folder)
    requests = [session.tokenise(request) for request in plan_requests(folder, options)]
    decoders = [_with_spec(model, decoder) for decoder in (baseline, candidate)]
    _refuse_own_noise(requests, decoders)
    arms = [_run_arm(session, decoder, requests, options.batch) for decoder in decoders]
    bound = session.measure_noise(requests[:N_CALIBRATION], ROWS)
    paired = Paired(
        requests={(r.id, r.repeat): r for r in requests},
        baseline=arms[0],
        candidate=arms[1],
        bound=bound,
    )
    texts = {key: prompt_text(request) for key, request in paired.requests.items()}
    forks = sort_forks(find_forks(paired, texts, session.decode))
    _check_failures(paired)
    if not session.is_unchanged:
        msg = "a decoder changed the model's weights in memory; nothing after that can be compared"
        raise DriftError(msg)
    return _judge(paired, forks, options)


def _open_session(model: Any, folder: Path) -> Any:
    resolved = load_object("gate.models:ResolvedModel")(
        name=model.name, folder=folder, weights_sha256="", tokenizer_sha256=""
    )
    config = ModelConfig(id=model.name, dtype=str(model.dtype).removeprefix("torch."))
    return load_object(f"{SESSION}:Session")(resolved, config, folder, model=model)


def _with_spec(model: Any, decoder: Any) -> Decoder:
    """Return a decoder of the protocol; any object with ``generate`` will do."""
    if hasattr(decoder, "spec") and callable(getattr(decoder, "generate", None)):
        found: Decoder = decoder
        return found
    return _wrap(model, lambda _: decoder, {})


# ------------------------------------------------------------------- requests


def plan_requests(folder: Path, options: Options) -> list[Request]:
    """Return the requests to decode. Raises UsageError where there are none, or ids repeat."""
    requests = _name_requests(folder, options)
    if options.n_requests is not None:
        requests = requests[:: max(1, len(requests) // max(1, options.n_requests))]
        requests = requests[: options.n_requests]
    keys = {(request.id, request.repeat) for request in requests}
    if not requests or len(keys) < len(requests):
        msg = (
            f"evalset gives {len(requests)} requests under {len(keys)} ids; give at least one, "
            "and each an id of its own"
        )
        raise UsageError(msg)
    return requests


def _name_requests(folder: Path, options: Options) -> list[Request]:
    evalset = PROMPTS if options.evalset is None else options.evalset
    if isinstance(evalset, str | Path):
        return [
            _shorten(r, options.max_tokens) for r in _read_evalset(folder, str(evalset), options)
        ]
    return [
        _shorten(entry, options.max_tokens)
        if isinstance(entry, Request)
        else Request(
            id=f"prompt-{n}",
            task="prompts",
            request_class="prompts",
            prompt=({"role": "user", "content": entry},),
            max_tokens=32 if options.max_tokens is None else options.max_tokens,
            sampling=Sampling(seed=options.seed),
        )
        for n, entry in enumerate(evalset)
    ]


def _shorten(request: Request, max_tokens: int | None) -> Request:
    n = request.max_tokens if max_tokens is None else min(max_tokens, request.max_tokens)
    return msgspec.structs.replace(request, max_tokens=n, min_tokens=min(request.min_tokens, n))


def _read_evalset(folder: Path, name: str, options: Options) -> list[Request]:
    config = Config(schema=1, evalset=name, model=ModelConfig(id=""), baseline={}, candidate={})
    project = Project(config=config, path=folder / "assert_no_drift", folder=folder, root=folder)
    evalset = load_evalset(project, "evalset", name)
    planned: list[Request] = load_object(f"{TASKS}:plan_requests")(evalset, options.seed)
    return planned


def _refuse_own_noise(requests: Sequence[Request], decoders: Sequence[Decoder]) -> None:
    sampled = [request.id for request in requests if request.sampling.temperature > 0]
    own = [d.spec.target or d.spec.kind for d in decoders if d.spec.noise != "position_keyed"]
    if sampled and own:
        msg = (
            f"request {sampled[0]!r} samples, and {own[0]} draws with noise of its own: its tokens "
            "cannot be compared one by one; use greedy requests here, and the gate for the law"
        )
        raise UsageError(msg)


# ------------------------------------------------------------------- evidence


def _run_arm(session: Any, decoder: Decoder, requests: Sequence[Request], batch: int) -> Arm:
    size = min(batch, decoder.spec.max_batch or batch)
    results: list[BatchResult] = [
        session.run_batch(decoder, requests[at : at + size]) for at in range(0, len(requests), size)
    ]
    return Arm(
        spec=decoder.spec,
        generations={(g.request_id, g.repeat): g for r in results for g in r.generations},
        scores={(s.request_id, s.repeat): s for r in results for s in r.scores},
        faults={
            (g.request_id, g.repeat): r.faults[key_text(g.request_id, g.repeat)]
            for r in results
            for g in r.generations
            if key_text(g.request_id, g.repeat) in r.faults
        },
    )


def _check_failures(paired: Paired) -> None:
    """A request without an answer is drift whatever the others say."""
    for name, arm in (("baseline", paired.baseline), ("candidate", paired.candidate)):
        failed = [key for key in paired.requests if arm.failed(key)]
        if failed:
            error = arm.generations[failed[0]].error if failed[0] in arm.generations else None
            msg = (
                f"the {name} failed {len(failed)} of {len(paired.requests)} requests; "
                f"{failed[0][0]}: {to_line(error or 'no reason given')}"
            )
            raise DriftError(msg)


def _judge(paired: Paired, forks: tuple[Fork, ...], options: Options) -> Drift:
    rng = np.random.default_rng(options.seed)
    comparisons = [
        *compare_certificates(paired),
        *compare_termination(paired),
        *compare_exercise(paired),
        *compare_rates(paired, rng, RESAMPLES),
        *compare_divergence(paired),
    ]
    verdicts = judge_all(_choose_criteria(paired, options), comparisons, _rules())
    if decide(verdicts, "content").outcome is not Outcome.PASS:
        raise DriftError(_explain(verdicts, forks))
    found = {comparison.measure: comparison for comparison in comparisons}
    return Drift(
        n_requests=len(paired.requests),
        n_decisions=_count(found["token_defects"], "n_decisions"),
        n_accepted=_count(found["exercised"], "accepted"),
        bound_nat=paired.bound.bound,
        forks=forks,
        verdicts=tuple(verdicts),
    )


def _rules() -> Rules:
    return Rules(purpose="content", claim="lossless", alpha=ALPHA, max_dropped=0.0)


def _choose_criteria(paired: Paired, options: Options) -> list[Criterion]:
    """The gate's own token criteria of a lossless claim, with a small test's demand on drafts."""
    chosen = default_criteria("lossless", "content", paired.bound.dtype, 0.0, own_baseline=False)
    small = {"margin": float(options.min_accepted), "min_pairs": 1}
    return [
        msgspec.structs.replace(one, **small) if one.measure == "exercised" else one
        for one in chosen
        if one.measure in MEASURES and not (one.measure == "exercised" and not options.min_accepted)
    ]


def _count(comparison: Comparison, key: str) -> int:
    value = comparison.detail.get(key)
    return value if isinstance(value, int) else 0


def _explain(verdicts: Sequence[Verdict], forks: Sequence[Fork]) -> str:
    """Return what failed, then the gravest fork in context."""
    stopping = [v for v in sort_verdicts(tuple(verdicts)) if stops_release(v)]
    lines = [f"{v.outcome} {v.criterion}: {to_line(v.reason)}" for v in stopping[:N_REASONS]]
    about_tokens = any(v.criterion != "exercised" for v in stopping)
    if about_tokens and forks:
        lines += ["", describe_fork(forks[0])]
    elif about_tokens:
        lines += ["", "no fork: both arms gave the same outputs"]
    return "\n".join(lines)

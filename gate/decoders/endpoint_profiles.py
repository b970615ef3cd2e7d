"""What kinds of servers take and return: which name carries which option, where token ids are.

Sources: the servers' own API documentation (vLLM "OpenAI-compatible server" and its extra
parameters, SGLang "OpenAI APIs", llama.cpp tools/server/README) and OpenAI's API reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gate.records import Request, Sampling

HONOURED, IGNORED, REFUSED, UNCLEAR = "honoured", "ignored", "refused", "not tried"
FATAL = "ends the server"
"""The server ended twice, each time at a request with the option."""
"""What became of an option that a server was sent."""
AS_IS = ("top_p", "presence_penalty", "frequency_penalty", "seed", "logit_bias")
"""Options that OpenAI's own API names, so that every server takes them under these names."""


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Prometheus names of what a server counts of its drafts.

    drafted, accepted: totals of tokens. accept_length: instead of them, the mean number of
    tokens per verification. is_complete: the page lists them whenever something can draft, so
    that their absence means that nothing does.
    """

    drafted: str = ""
    accepted: str = ""
    accept_length: str = ""
    is_complete: bool = False


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A kind of server.

    names: option -> its key in the body; what is missing cannot be sent. neutral: sent with
    every request, since the server's own defaults would change the law. extra: asks for what
    else it returns. ids_from: where its answers have token ids. says_drafts: each answer's
    timings count its drafts. scores_prompt: asks for the log-probabilities of the prompt.
    """

    name: str
    owner: str  # "owned_by" in its list of models
    version_path: str = ""
    version_keys: tuple[str, ...] = ()
    names: Mapping[str, str]
    neutral: Mapping[str, object] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)
    ids_from: str = ""
    tokenize_path: str = ""
    counters: Counters | None = None
    says_drafts: bool = False
    scores_prompt: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


OPENAI = Profile(
    name="openai",
    owner="",
    names={
        **{name: name for name in AS_IS},
        "response_format": "response_format",
        "logprobs": "logprobs",
    },
    notes=("the server's default for options that are not sent is the server's secret",),
)
VLLM = Profile(
    name="vllm",
    owner="vllm",
    version_path="/version",
    version_keys=("version",),
    names={
        **OPENAI.names,
        "top_k": "top_k",
        "min_p": "min_p",
        "repetition_penalty": "repetition_penalty",
        "min_tokens": "min_tokens",
        "stop_token_ids": "stop_token_ids",
        "bad_words": "bad_words",
    },
    neutral={"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
    extra={"return_token_ids": True, "return_tokens_as_token_ids": True},
    ids_from="token_ids",
    tokenize_path="/tokenize",
    counters=Counters(
        drafted="vllm:spec_decode_num_draft_tokens_total",
        accepted="vllm:spec_decode_num_accepted_tokens_total",
        is_complete=True,
    ),
    scores_prompt={"prompt_logprobs": 1},
)
SGLANG = Profile(
    name="sglang",
    owner="sglang",
    version_path="/get_server_info",
    version_keys=("version",),
    names={
        **OPENAI.names,
        "top_k": "top_k",
        "min_p": "min_p",
        "repetition_penalty": "repetition_penalty",
        "min_tokens": "min_tokens",
        "stop_token_ids": "stop_token_ids",
    },
    neutral={"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    counters=Counters(accept_length="sglang:spec_accept_length"),
    scores_prompt={"echo": True, "logprobs": 1},
    notes=("token ids are not in its answers: texts are compared",),
)
LLAMA_CPP = Profile(
    name="llama.cpp",
    owner="llamacpp",
    version_path="/props",
    version_keys=("build_info",),
    names={
        **OPENAI.names,
        "top_k": "top_k",
        "min_p": "min_p",
        "repetition_penalty": "repeat_penalty",
    },
    neutral={
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
        "repeat_last_n": 32768,  # penalties look at the whole text, not at the last 64 tokens
        # the gate's order of application: temperature before the cuts
        "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p"],
    },
    ids_from="logprobs",
    tokenize_path="/tokenize",
    counters=Counters(
        drafted="llamacpp:spec_decode_num_draft_tokens_total",
        accepted="llamacpp:spec_decode_num_accepted_tokens_total",
        is_complete=True,
    ),
    says_drafts=True,
)
PROFILES = {one.name: one for one in (OPENAI, VLLM, SGLANG, LLAMA_CPP)}


PLAIN = Sampling()


def list_needed(request: Request) -> Iterator[str]:
    """Yield the options that a request needs beyond a prompt, a budget, stops and temperature."""
    if request.sampling != PLAIN:
        yield from _list_sampling(request.sampling)
    needs = (
        ("min_tokens", request.min_tokens > 0),
        ("stop_token_ids", bool(request.eos_ids)),
        ("response_format", request.response_format is not None),
        ("logprobs", request.n_logprobs is not None),
        ("processed_logprobs", request.logprobs_kind == "processed"),
    )
    yield from (name for name, needed in needs if needed)


def _list_sampling(sampling: Sampling) -> Iterator[str]:
    needs = (
        ("top_k", sampling.top_k > 0),
        ("top_p", sampling.top_p < 1),
        ("min_p", sampling.min_p > 0),
        ("repetition_penalty", sampling.repetition_penalty != 1),
        ("presence_penalty", sampling.presence_penalty != 0),
        ("frequency_penalty", sampling.frequency_penalty != 0),
        ("bad_words", bool(sampling.bad_words)),
        ("logit_bias", bool(sampling.logit_bias)),
        ("seed", sampling.seed is not None and sampling.temperature > 0),
    )
    yield from (name for name, needed in needs if needed)

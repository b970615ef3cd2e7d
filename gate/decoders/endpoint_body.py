"""A request as the JSON body that a server's profile understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gate.decoders.endpoint_options import EndpointOptions
from gate.decoders.endpoint_profiles import Profile, list_needed
from gate.errors import RunError
from gate.records import Request, prompt_ids

SEEDS = 2**31
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
Texts = Mapping[tuple[int, ...], str]
"""Token ids -> the text they were made from."""


def choose_path(request: Request, options: EndpointOptions) -> str:
    """Return the API that a request goes to: messages to chat, text and token ids to the other."""
    if options.api != "auto":
        return CHAT if options.api == "chat" else COMPLETIONS
    is_chat = bool(request.prompt) and isinstance(request.prompt[0], dict)
    return CHAT if is_chat else COMPLETIONS


def make_body(
    request: Request, options: EndpointOptions, profile: Profile, model: str, texts: Texts
) -> dict[str, object]:
    """Return the body; what the profile has no name for is left out (see name_unsent)."""
    path = choose_path(request, options)
    prompt = {"messages": _as_messages(request)} if path == CHAT else {"prompt": _as_text(request)}
    body: dict[str, object] = {
        "model": model,
        **prompt,
        "max_tokens": request.max_tokens,
        "temperature": request.sampling.temperature,
        **profile.neutral,
        **profile.extra,
        **_name_options(request, profile, texts),
        **_ask_logprobs(request, options, profile, path),
    }
    if request.stop:
        body["stop"] = list(request.stop)
    if request.stream or options.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body | options.extra_body


def _as_messages(request: Request) -> list[Any]:
    if isinstance(request.prompt, str):
        return [{"role": "user", "content": request.prompt}]
    return list(request.prompt)


def _as_text(request: Request) -> object:
    ids = prompt_ids(request)
    if ids or isinstance(request.prompt, str):
        return list(ids) or request.prompt
    messages: Any = request.prompt
    return "\n\n".join(message["content"] for message in messages)


def _name_options(request: Request, profile: Profile, texts: Texts) -> dict[str, object]:
    """Options that differ from their neutral value, under the server's names."""
    return {
        profile.names[name]: read_option(name, request, texts)
        for name in list_needed(request)
        if name in profile.names and name != "logprobs"
    }


def read_option(name: str, request: Request, texts: Texts) -> object:
    """Return an option's value as JSON has it."""
    sampling = request.sampling
    if name == "logit_bias":
        return {str(token): bias for token, bias in sampling.logit_bias.items()}
    if name == "bad_words":
        return [_find_text(word, request, texts) for word in sampling.bad_words]
    if name == "seed":
        return find_seed(request)
    if name == "stop_token_ids":
        return list(request.eos_ids)
    return getattr(request if name in ("min_tokens", "response_format") else sampling, name)


def _find_text(word: tuple[int, ...], request: Request, texts: Texts) -> str:
    if word not in texts:
        msg = (
            f"{request.id}: bad_words holds token ids {word} whose text is not known to a server; "
            "set run.skip_conformance with a reason"
        )
        raise RunError(msg)
    return texts[word]


def find_seed(request: Request) -> int | None:
    """Return the seed to send: repeats of a request are independent draws, so each has its own."""
    sampling = request.sampling
    if sampling.seed is None or not sampling.temperature:
        return None
    return (sampling.seed + request.repeat) % SEEDS


def _ask_logprobs(
    request: Request, options: EndpointOptions, profile: Profile, path: str
) -> dict[str, object]:
    n = options.top_logprobs if request.n_logprobs is None else request.n_logprobs
    if n < 0 or "logprobs" not in profile.names:
        return {}
    n = max(n, 1)  # some servers read 0 as none
    return {"logprobs": True, "top_logprobs": n} if path == CHAT else {"logprobs": n}

"""What a server returns and honours, found out by asking it before anything is judged.

Each option is tried on a prompt of its own where it must show: a cut to one token makes
sampling greedy, a stop string ends the text, a seed repeats it. What nobody can see from the
outside is called "not tried", never assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from gate.decoders.endpoint_body import COMPLETIONS
from gate.decoders.endpoint_client import Outcome
from gate.decoders.endpoint_identity import Identity
from gate.decoders.endpoint_profiles import (
    FATAL,
    HONOURED,
    IGNORED,
    REFUSED,
    UNCLEAR,
    Profile,
)
from gate.errors import RunError
from gate.records import Generation, Record, Request, Sampling

N_TOKENS = 16
COUNTING = "Count in words: one, two, three, four, five, six, seven,"
STORY = "It was a dark night in the old town, and at the end of the street"
LIST = "red, blue, red, blue, red, blue, red, blue, red, blue,"
REPETITIVE = (LIST, "la la la la la la la la la la la la", "1, 2, 1, 2, 1, 2, 1, 2, 1, 2,", STORY)
HOT = 1.5


class Capabilities(Record, frozen=True, kw_only=True):
    """What a server returns, and what became of each option it was sent.

    honours: option -> honoured, ignored, refused, ends the server, or not tried. why: option ->
    what was seen.
    evidence: how strong a verdict on this server's tokens can be.
    """

    identity: Identity
    returns: dict[str, bool] = {}
    honours: dict[str, str] = {}
    why: dict[str, str] = {}
    evidence: str = ""
    n_probes: int = 0


class Probed(Protocol):
    """What the probe needs of an endpoint decoder."""

    @property
    def identity(self) -> Identity:
        """Who is asked."""
        ...

    @property
    def profile(self) -> Profile:
        """What it should take."""
        ...

    def ask(self, path: str, body: Mapping[str, object] | None = None) -> Outcome:
        """Ask for JSON."""
        ...

    def generate(self, requests: Any) -> Iterator[Generation]:
        """Decode."""
        ...

    def read_metrics(self) -> str | None:
        """Return the Prometheus page."""
        ...

    def restart(self) -> bool:
        """Begin a new life of the server; False where that is not the gate's to do."""
        ...


def probe(server: Probed) -> Capabilities:
    """Ask about thirty short requests, one after the other. Raises RunError where none works."""
    return _Probe(server).run()


class _Probe:
    """One course of questions. ``n``: how many prompts were sent."""

    def __init__(self, server: Probed) -> None:
        self._server = server
        self._names = server.profile.names
        self._n = 0
        self._why: dict[str, str] = {}

    def run(self) -> Capabilities:
        base = self._ask(COUNTING)
        if base.finish == "error":
            advice = "see its log"
            if "logprob" in (base.error or "").lower():
                advice = "top_logprobs = -1 asks for no log-probabilities"
            msg = f"the server answers no plain request ({base.error}); {advice}"
            raise RunError(msg)
        streamed = self._send(COUNTING, stream=True)
        tries: tuple[tuple[str, Callable[[], str]], ...] = (
            ("stop", self._try_stop),
            ("seed", self._try_seed),
            ("top_k", lambda: self._try_cut("top_k", Sampling(temperature=HOT, top_k=1))),
            (
                "top_p",
                lambda: self._try_cut("top_p", Sampling(temperature=HOT, top_p=1e-4)),
            ),
            ("min_p", lambda: self._try_cut("min_p", Sampling(temperature=HOT, min_p=1.0))),
            *((name, self._make_penalty_try(name)) for name in PENALTIES),
            ("min_tokens", self._try_min_tokens),
            ("response_format", self._try_format),
        )
        honours = {name: self._try(name, attempt) for name, attempt in tries}
        returns = self._list_returns(base, streamed)
        return Capabilities(
            identity=self._server.identity,
            returns=returns,
            honours=honours,
            why=self._why,
            evidence=describe_evidence(returns),
            n_probes=self._n,
        )

    def _send(self, prompt: str, **changes: Any) -> Generation:
        """Send one prompt; ``changes`` to a plain greedy request.

        Where the server is gone afterwards it is started again, and asked again: what ends it
        twice is a fault of its own, what ends it once may be an accident and ends the run.
        """
        found = self._ask(prompt, **changes)
        lost = self._find_loss(found)
        if not lost:
            return found
        if changes and self._server.restart() and self._find_loss(self._ask(prompt, **changes)):
            self._server.restart()
            if not self._find_loss(self._ask(f"{COUNTING} (once more)")):
                return msgspec.structs.replace(found, error=f"{FATAL}: {lost}")
        msg = f"the server was lost while it was probed ({lost}); see its log, run again"
        raise RunError(msg)

    def _ask(self, prompt: str, **changes: Any) -> Generation:
        self._n += 1
        plain = Request(
            id=f"probe-{self._n}",
            task="probe",
            request_class="probe",
            prompt=({"role": "user", "content": prompt},),
            max_tokens=N_TOKENS,
        )
        return next(iter(self._server.generate([msgspec.structs.replace(plain, **changes)])))

    def _find_loss(self, found: Generation) -> str:
        """Return why a plain request fails too, where one does: that says nothing of an option."""
        if found.finish != "error" or _is_refusal(found):
            return ""
        plain = self._ask(f"{COUNTING} (after {self._n})")
        return (plain.error or "it says nothing") if plain.finish == "error" else ""

    def _try(self, name: str, attempt: Callable[[], str]) -> str:
        if name != "stop" and name not in self._names:
            self._why[name] = "this kind of server has no such option"
            return UNCLEAR
        return attempt()

    def _judge(self, name: str, one: Generation, *, holds: bool, otherwise: str) -> str:
        """Say what became of an option from an output that should show it."""
        if one.finish == "error":
            self._why[name] = one.error or "refused"
            if self._why[name].startswith(FATAL):
                return FATAL
            return REFUSED if _is_refusal(one) else UNCLEAR
        if holds:
            self._why.pop(name, None)
            return HONOURED
        self._why[name] = otherwise
        return IGNORED

    def _try_stop(self) -> str:
        text = self._send(STORY).text
        words = text.split()
        if len(words) < 3:  # noqa: PLR2004 - a word inside a text needs neighbours
            self._why["stop"] = "the server's output is too short to be stopped"
            return UNCLEAR
        stop = words[1]
        one = self._send(STORY, stop=(stop,))
        expected = text[: text.index(stop)]
        holds = stop not in one.text and one.text == expected
        return self._judge("stop", one, holds=holds, otherwise="the text is not cut at the stop")

    def _try_seed(self) -> str:
        first, second, other = (
            self._send(STORY, sampling=Sampling(temperature=HOT, seed=seed)) for seed in (1, 1, 2)
        )
        if first.text == other.text and first.finish != "error":
            self._why["seed"] = "two seeds gave one text, so nothing can be told"
            return UNCLEAR
        why = "one seed gave two texts"
        return self._judge("seed", second, holds=first.text == second.text, otherwise=why)

    def _try_cut(self, name: str, sampling: Sampling) -> str:
        """A cut to one token makes hot sampling greedy."""
        prompt = f"{STORY} ({name})"
        greedy = self._send(prompt)
        one = self._send(prompt, sampling=sampling)
        why = "sampling that is cut to one token is not greedy"
        return self._judge(name, one, holds=one.text == greedy.text, otherwise=why)

    def _make_penalty_try(self, name: str) -> Callable[[], str]:
        return lambda: self._try_penalty(name)

    def _try_penalty(self, name: str) -> str:
        """A strong penalty changes how one of several repetitive texts goes on."""
        found = IGNORED
        for text in REPETITIVE:
            prompt = f"Repeat: {text} ({name})"
            plain = self._send(prompt)
            one = self._send(prompt, sampling=Sampling(**PENALTIES[name]))
            holds, why = one.text != plain.text, "a strong penalty changed none of several texts"
            found = self._judge(name, one, holds=holds, otherwise=why)
            if found != IGNORED:
                break
        return found

    def _try_min_tokens(self) -> str:
        prompt = "Answer with the word yes and nothing else."
        plain = self._send(prompt)
        if plain.finish == "length" or plain.usage is None:
            self._why["min_tokens"] = "no output ended early enough to be held back"
            return UNCLEAR
        one = self._send(prompt, min_tokens=N_TOKENS)
        holds = one.usage is not None and one.usage.n_output >= N_TOKENS
        return self._judge("min_tokens", one, holds=holds, otherwise="fewer tokens than asked for")

    def _try_format(self) -> str:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        asked = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        one = self._send("Write a word.", response_format=asked, max_tokens=2 * N_TOKENS)
        holds = one.text.lstrip().startswith("{")
        return self._judge(
            "response_format", one, holds=holds, otherwise="the text is no JSON of the schema"
        )

    def _list_returns(self, base: Generation, streamed: Generation) -> dict[str, bool]:
        profile = self._server.profile
        return {
            "token ids": base.token_ids is not None,
            "log-probabilities": base.logprobs is not None,
            "likeliest tokens": bool(base.logprobs and base.logprobs[0].top),
            "usage": base.usage is not None,
            "streaming": streamed.finish != "error" and bool(streamed.text),
            "streamed as returned": streamed.text == base.text,
            "usage of streams": streamed.usage is not None,
            "prompt scoring": self._scores_prompt(),
            "tokenizer": self._has_tokenizer(profile),
            "metrics": self._server.read_metrics() is not None,
            "drafts of each answer": base.trace is not None and base.trace.drafts is not None,
        }

    def _scores_prompt(self) -> bool:
        extra = self._server.profile.scores_prompt
        if not extra:
            return False
        self._n += 1
        body = {"model": self._server.identity.model, "prompt": LIST, "max_tokens": 1, **extra}
        value: Any = self._server.ask(COMPLETIONS, body).value
        choices = value.get("choices") if isinstance(value, dict) else None
        first = choices[0] if isinstance(choices, list) and choices else {}
        return bool(isinstance(first, dict) and (first.get("prompt_logprobs") or "echo" in extra))

    def _has_tokenizer(self, profile: Profile) -> bool:
        if not profile.tokenize_path:
            return False
        body = {"content": "one", "prompt": "one", "model": self._server.identity.model}
        value: Any = self._server.ask(profile.tokenize_path, body).value
        return isinstance(value, dict) and isinstance(value.get("tokens"), list)


def _is_refusal(one: Generation) -> bool:
    """Whether the server says that it does not take what it was sent."""
    return (one.error or "").startswith(("HTTP 400", "HTTP 422", "HTTP 501"))


PENALTIES: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 2.0},
    "presence_penalty": {"presence_penalty": 2.0},
    "frequency_penalty": {"frequency_penalty": 2.0},
}


def describe_evidence(returns: dict[str, bool]) -> str:
    """Say how strong a verdict on a server's tokens can be, from what it returns."""
    if returns.get("token ids"):
        return "its token ids can be scored by a referee that is given; by itself it proves nothing"
    if returns.get("log-probabilities"):
        return "log-probabilities without token ids: texts are compared, tokens are not certified"
    return "texts alone: they are compared, and no token is certified"

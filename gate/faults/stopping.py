"""Faults of ends, budgets, usage and streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from gate.decoders import stopping
from gate.decoders.drafting import NoDrafts
from gate.faults.base import Changes, RunOutput, RunStopper, fault, thread
from gate.records import Chunk, Finish, Generation, Request, Usage

KIND = "stopping"
CAUGHT = ("termination", "conformance", "token_defects")
NO_LIMIT = 10**6  # tokens: no budget at all


def with_request(**fields: Callable[[Request], Any]) -> type[RunStopper]:
    """Return a stopper that knows other limits than the request's."""

    class Other(RunStopper):
        def __init__(self, request: Request, tokenizer: Any) -> None:
            found = {name: value(request) for name, value in fields.items()}
            super().__init__(msgspec.structs.replace(request, **found), tokenizer)

    return Other


class LooksLate(RunStopper):
    """Sees an end of one kind only where the last token of a run brings it."""

    late: Finish = "eos"
    is_overlooked = False

    def push(self, token_id: int) -> Finish | None:
        """Commit a token, and go on where it should have ended."""
        found = super().push(token_id)
        self.is_overlooked = found == self.late
        if self.is_overlooked:
            is_spent = len(self.ids) >= self._request.max_tokens and self.late != "length"
            self.finish = "length" if is_spent else None
        return self.finish

    def end_run(self) -> None:
        """End where the last token says so."""
        if self.is_overlooked:
            self.finish = self.late
        elif self.finish is None:
            self._cut = None


@fault(
    "eos-in-run",
    kind=KIND,
    source=thread("huggingface/transformers/issues/47912"),
    expected=CAUGHT,
)
def eos_in_run(_: float) -> Changes:
    """Only the last token of a run is tested for the end of the sequence."""
    return Changes(stopper=LooksLate)


@fault("eos-first-only", kind=KIND, expected=CAUGHT)
def eos_first_only(_: float) -> Changes:
    """Of several end-of-sequence ids only the first ends an output."""
    return Changes(stopper=with_request(eos_ids=lambda r: r.eos_ids[:1]))


@fault(
    "stop-in-run",
    kind=KIND,
    source=thread("huggingface/transformers/issues/48039"),
    expected=CAUGHT,
)
def stop_in_run(_: float) -> Changes:
    """A stop string counts only where the last token of a run completes it."""
    return Changes(stopper=type("LooksLate", (LooksLate,), {"late": "stop"}))


@fault(
    "stop-tail",
    kind=KIND,
    source=thread("sgl-project/sglang/pull/23802"),
    strength=5.0,
    unit="characters at the end of a run that are searched",
    expected=CAUGHT,
)
def stop_tail(strength: float) -> Changes:
    """Stop strings are searched in a fixed tail that is shorter than a run."""

    class ShortTail(RunStopper):
        def _completes_stop(self, token_id: int) -> bool:
            self._detokeniser.push(token_id)
            return False

        def end_run(self) -> None:
            text, floor = self._detokeniser.text, self._floor()
            if floor is None or self.finish == "eos":
                return
            start = max(floor, len(text) - int(strength))
            found = [at for stop in self._request.stop if (at := text.find(stop, start)) >= 0]
            if found:
                self._cut, self.finish = min(found), "stop"

    return Changes(stopper=ShortTail)


@fault("stop-first-listed", kind=KIND, expected=CAUGHT)
def stop_first_listed(_: float) -> Changes:
    """The text is cut at the first stop string of the list, not at the earliest in the text."""

    class FirstListed(RunStopper):
        def _completes_stop(self, token_id: int) -> bool:
            found = super()._completes_stop(token_id)
            if found:
                text, floor = self._detokeniser.text, self._floor() or 0
                places = [text.find(stop, floor) for stop in self._request.stop]
                self._cut = next(at for at in places if at >= 0)
            return found

    return Changes(stopper=FirstListed)


@fault("stop-before-min", kind=KIND, expected=CAUGHT)
def stop_before_min(_: float) -> Changes:
    """Stop strings end an output before its minimum of tokens."""

    class NoFloor(RunStopper):
        def _floor(self) -> int:
            return 0

    return Changes(stopper=NoFloor)


@fault(
    "ids-not-trimmed",
    kind=KIND,
    source=thread("vllm-project/vllm/pull/47616"),
    expected=CAUGHT,
)
def ids_not_trimmed(_: float) -> Changes:
    """The text is cut at the stop string, token ids and log-probabilities are not."""

    class Untrimmed(RunStopper):
        def result(self) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
            return super().result()[0], tuple(self.ids), ()

    return Changes(stopper=Untrimmed)


@fault(
    "budget-per-run",
    kind=KIND,
    source=thread("ikawrakow/ik_llama.cpp/pull/2358"),
    strength=3.0,
    unit="tokens that a run is charged beyond what it delivers",
    expected=CAUGHT,
)
def budget_per_run(strength: float) -> Changes:
    """A run is charged to the budget whole: fewer tokens come than were allowed."""

    class Charged(RunStopper):
        def end_run(self) -> None:
            n_run = len(self.ids) - self.run_start
            is_spent = len(self.ids) + strength >= self._request.max_tokens
            if self.finish is None and n_run > 1 and is_spent:
                self.finish = "length"

    return Changes(stopper=Charged)


@fault(
    "budget-overshoot",
    kind=KIND,
    source=thread("ikawrakow/ik_llama.cpp/pull/2358"),
    expected=CAUGHT,
)
def budget_overshoot(_: float) -> Changes:
    """The budget is looked at between runs: the last run goes past it."""

    class Unlimited(RunOutput):
        @property
        def n_left(self) -> int:
            return NO_LIMIT

    return Changes(stopper=type("LooksLate", (LooksLate,), {"late": "length"}), output=Unlimited)


@fault(
    "stream-one-per-run",
    kind=KIND,
    source=thread("vllm-project/vllm/pull/26027"),
    expected=CAUGHT,
)
def stream_one_per_run(_: float) -> Changes:
    """The stream carries one token of each run."""

    class OnePerRun(RunStopper):
        def stream(self, at_s: float) -> Chunk | None:
            chunk = super().stream(at_s)
            return chunk and msgspec.structs.replace(chunk, token_ids=chunk.token_ids[-1:])

    return Changes(stopper=OnePerRun)


@fault("stop-streamed", kind=KIND, expected=CAUGHT)
def stop_streamed(_: float) -> Changes:
    """The beginning of a stop string is streamed before it is known to be one."""

    class Hasty(RunStopper):
        def _releasable(self) -> tuple[int, int]:
            certain = self._detokeniser.certain
            return (certain[-1], len(certain)) if certain else (0, 0)

    return Changes(stopper=Hasty, drafter=lambda inner, _: NoDrafts())  # noqa: ARG005


@fault("stream-silent", kind=KIND, expected=CAUGHT)
def stream_silent(_: float) -> Changes:
    """Nothing is streamed until everything is over, and then nothing either."""

    class Silent(RunStopper):
        def stream(self, at_s: float) -> Chunk | None:  # noqa: ARG002
            return None

    return Changes(stopper=Silent)


def changing(change: Callable[[RunOutput, Generation], Generation]) -> type[RunOutput]:
    """Return an output that is reported otherwise than it came out; errors are left alone."""

    class Changed(RunOutput):
        def generation(self, peak_memory_bytes: int) -> Generation:
            found = super().generation(peak_memory_bytes)
            return found if found.finish == "error" else change(self, found)

    return Changed


@fault("usage-with-drafts", kind=KIND, expected=CAUGHT)
def usage_with_drafts(_: float) -> Changes:
    """The usage counts drafts that were rejected."""

    def change(output: RunOutput, found: Generation) -> Generation:
        n_rejected = sum(step.n_drafted - step.n_accepted for step in output._steps)
        usage = cast("Usage", found.usage)
        wrong = Usage(n_prompt=usage.n_prompt, n_output=usage.n_output + n_rejected)
        return msgspec.structs.replace(found, usage=wrong)

    return Changes(output=changing(change))


@fault("finish-length", kind=KIND, expected=CAUGHT)
def finish_length(_: float) -> Changes:
    """Outputs that ended by themselves are reported as cut for length."""

    def change(output: RunOutput, found: Generation) -> Generation:  # noqa: ARG001
        return msgspec.structs.replace(found, finish="length")

    return Changes(output=changing(change))


@fault("half-characters", kind=KIND, expected=CAUGHT)
def half_characters(_: float) -> Changes:
    """The text of each token is taken alone: characters split over tokens are lost."""

    def change(output: RunOutput, found: Generation) -> Generation:
        tokenizer = output.stopper._tokenizer
        text = "".join(stopping.decode(tokenizer, [i]) for i in found.token_ids or ())
        return msgspec.structs.replace(found, text=text)

    return Changes(output=changing(change))

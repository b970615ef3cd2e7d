"""Single-line faults in stopping, budgets, streams, log-probabilities, cache and batch."""

from __future__ import annotations

from typing import Any

import msgspec

from gate.decoders import decoding, output, stopping
from gate.decoders.engine import Engine, SlotCache
from gate.decoders.output import Output
from gate.decoders.stopping import Stopper
from gate.records import Finish, Request, TokenLogprob, Usage
from tests.conformance_faults import Patch, always, count_runs, fault, is_second_eos

WINDOW = 512  # slots that a forgetful cache still sees
DEEP = 10**6  # tokens: no budget at all
N_SHARED = 16  # first tokens that make two prompts share a cache block


def change_stopper(patch: Patch, **fields: Any) -> None:
    """Let the stopper know other limits than the request's; a callable gets the request."""
    real = Stopper.__init__

    def init(self: Stopper, request: Request, tokenizer: Any) -> None:
        found = {name: value(request) for name, value in fields.items()}
        real(self, msgspec.structs.replace(request, **found), tokenizer)

    patch.setattr(Stopper, "__init__", init)


def overlook_inside_runs(patch: Patch, kind: Finish) -> None:
    """Let an end of one kind count only where the last token of a run brings it."""
    real_push, real_walk = Stopper.push, decoding.walk
    overlooked: dict[int, bool] = {}

    def push(self: Stopper, token: int) -> Any:
        found = real_push(self, token)
        overlooked[id(self)] = found == kind
        is_spent = len(self.ids) >= self._request.max_tokens and kind != "length"
        self.finish = ("length" if is_spent else None) if found == kind else found
        return self.finish

    def walk(one: Output, *rest: Any) -> Any:
        path = real_walk(one, *rest)
        if overlooked[id(one._stopper)]:
            one._stopper.finish = kind
        elif one._stopper.finish is None:
            one._stopper._cut = None
        return path

    patch.setattr(Stopper, "push", push)
    patch.setattr(decoding, "walk", walk)


# ---------------------------------------------------------- ends and budget


@fault(is_second_eos, "eos-second", "eos-min-tokens")
def only_the_first_eos_id_ends(patch: Patch) -> None:
    change_stopper(patch, eos_ids=lambda r: r.eos_ids[:1])


@fault(always, "eos-second")
def eos_inside_a_run_overlooked(patch: Patch) -> None:
    overlook_inside_runs(patch, "eos")


@fault(lambda r: bool(r.stop), "stop", "stop-order", "stop-prefix")
def stop_inside_a_run_overlooked(patch: Patch) -> None:
    overlook_inside_runs(patch, "stop")


@fault(lambda r: len(r.stop) > 1, "stop-order")
def first_stop_of_the_list_cuts(patch: Patch) -> None:
    real = Stopper._completes_stop

    def completes(self: Stopper, token: int) -> bool:
        found = real(self, token)
        if found:
            text, floor = self._detokeniser.text, self._floor() or 0
            at = [text.find(stop, floor) for stop in self._request.stop]
            self._cut = next(start for start in at if start >= 0)
        return found

    patch.setattr(Stopper, "_completes_stop", completes)


@fault(lambda r: bool(r.stop), "stop-long")
def stop_searched_in_a_short_tail(patch: Patch) -> None:
    real = Stopper._completes_stop

    def completes(self: Stopper, token: int) -> bool:
        self._longest = min(self._longest, 3)
        self._searched = max(self._searched, len(self._detokeniser.text) - 1)
        return real(self, token)

    patch.setattr(Stopper, "_completes_stop", completes)


@fault(lambda r: bool(r.stop) and r.min_tokens > 0, "stop-min-tokens")
def stop_before_min_tokens(patch: Patch) -> None:
    patch.setattr(Stopper, "_floor", lambda _: 0)


@fault(lambda r: bool(r.stop), "stop", "stop-prefix", "logprobs-stop", "stream-stop")
def ids_not_cut_with_the_text(patch: Patch) -> None:
    real = Stopper.result
    patch.setattr(Stopper, "result", lambda self: (real(self)[0], tuple(self.ids), ()))


@fault(always, "budget-run")
def budget_overrun_by_a_run(patch: Patch) -> None:
    overlook_inside_runs(patch, "length")
    patch.setattr(Output, "n_left", property(lambda _: DEEP))


@fault(always, "budget-run", "budget-two")
def budget_charged_twice_for_the_first_run(patch: Patch) -> None:
    change_stopper(patch, max_tokens=lambda r: max(1, r.max_tokens - 1))


@fault(always, "budget-one", "stop")
def usage_counts_the_drafts(patch: Patch) -> None:
    real = Usage

    def usage(n_prompt: int, n_output: int) -> Any:
        return real(n_prompt=n_prompt, n_output=n_output + 1)

    patch.setattr(output, "Usage", usage)


# ------------------------------------------------- streams, log-probabilities


@fault(lambda r: r.stream, "stream", "stream-stop")
def one_token_streamed_per_run(patch: Patch) -> None:
    real = Stopper.stream

    def stream(self: Stopper, at_s: float) -> Any:
        chunk = real(self, at_s)
        return chunk and msgspec.structs.replace(chunk, token_ids=chunk.token_ids[-1:])

    patch.setattr(Stopper, "stream", stream)


@fault(lambda r: r.stream and bool(r.stop), "stream-stop")
def stop_string_streamed(patch: Patch) -> None:
    patch.setattr(stopping, "longest_partial", lambda *_: 0)


@fault(lambda r: r.stream or bool(r.stop), "toy-bytes")
def half_characters_streamed(patch: Patch) -> None:
    patch.setattr(stopping, "REPLACEMENT", "\0")


@fault(lambda r: r.stream, "stream")
def stream_stays_empty(patch: Patch) -> None:
    patch.setattr(Stopper, "stream", lambda *_: None)


def change_logprobs(patch: Patch, change: Any) -> None:
    """Change every reported log-probability: (entry, is behind the run's first token) -> entry."""
    starts, real = count_runs(patch), Output._report

    def report(self: Output, *rest: Any) -> None:
        n = len(self._logprobs)
        real(self, *rest)
        if len(self._logprobs) > n:
            is_behind = len(self.ids) > starts.get(id(self._sampler), len(self.ids))
            self._logprobs[-1] = change(self._logprobs[-1], is_behind)

    patch.setattr(Output, "_report", report)


def asks_logprobs(request: Request) -> bool:
    return request.n_logprobs is not None


@fault(asks_logprobs, "logprobs", "logprobs-top")
def accepted_tokens_report_zero(patch: Patch) -> None:
    def zero(entry: TokenLogprob, is_behind: bool) -> TokenLogprob:  # noqa: FBT001
        return msgspec.structs.replace(entry, logprob=0.0) if is_behind else entry

    change_logprobs(patch, zero)


@fault(lambda r: bool(r.n_logprobs), "logprobs-top", "logprobs-processed")
def one_likeliest_token_short(patch: Patch) -> None:
    change_logprobs(patch, lambda entry, _: msgspec.structs.replace(entry, top=entry.top[:-1]))


@fault(lambda r: r.logprobs_kind == "processed", "logprobs-processed")
def raw_reported_for_processed(patch: Patch) -> None:
    real = output.token_logprob

    def raw(law: Any, token: int, request: Request) -> TokenLogprob:
        return real(law, token, msgspec.structs.replace(request, logprobs_kind="raw"))

    patch.setattr(output, "token_logprob", raw)


@fault(asks_logprobs, "logprobs-raw-sampled", "logprobs-stop")
def processed_reported_for_raw(patch: Patch) -> None:
    real = output.token_logprob

    def processed(law: Any, token: int, request: Request) -> TokenLogprob:
        return real(law, token, msgspec.structs.replace(request, logprobs_kind="processed"))

    patch.setattr(output, "token_logprob", processed)


@fault(lambda r: asks_logprobs(r) and bool(r.stop), "logprobs-stop")
def logprobs_not_cut(patch: Patch) -> None:
    real = Output.generation

    def generation(self: Output, peak: int) -> Any:
        found = real(self, peak)
        return msgspec.structs.replace(found, logprobs=tuple(self._logprobs) or None)

    patch.setattr(Output, "generation", generation)


# -------------------------------------------------------- cache, positions, batch


@fault(always, "greedy-cycle")
def accepted_rows_not_moved(patch: Patch) -> None:
    patch.setattr(SlotCache, "move", lambda *_: None)


@fault(always, "greedy-cycle", "long-prompt")
def a_rejected_row_stays(patch: Patch) -> None:
    real = Engine.commit

    def commit(self: Engine, request: int, path: Any) -> None:
        real(self, request, path)
        self.lengths[request] += 1

    patch.setattr(Engine, "commit", commit)


@fault(always, "greedy-cycle")
def drafts_one_position_on(patch: Patch) -> None:
    real = decoding.Layout._place_tree

    def place(self: decoding.Layout, b: int, tree: Any) -> None:
        real(self, b, tree)
        self.depths[b, 1:] += 1

    patch.setattr(decoding.Layout, "_place_tree", place)


@fault(lambda r: len(r.prompt) + r.max_tokens > WINDOW, "long-prompt")
def window_shorter_than_the_prompt(patch: Patch) -> None:
    real = Engine._additive_mask

    def mask(self: Engine, lengths: Any, seen: Any) -> Any:
        additive = real(self, lengths, seen)
        for b, n in enumerate(lengths.tolist()):
            additive[b, :, :, : max(0, n - WINDOW)] = additive.min()
        return additive

    patch.setattr(Engine, "_additive_mask", mask)


@fault(always, "prefix-2", "prefix-3")
def shared_prefix_poisoned(patch: Patch) -> None:
    real = Engine.prefill

    def prefill(self: Engine, prompts: Any) -> Any:
        logits = real(self, prompts)
        heads = [tuple(prompt[:N_SHARED]) for prompt in prompts]
        for b, head in enumerate(heads):
            if head in heads[:b]:
                self._cache.values[:, b, :, :N_SHARED] = 0
        return logits

    patch.setattr(Engine, "prefill", prefill)


@fault(always)
def rows_of_two_requests_swapped(patch: Patch) -> None:
    real = Engine.forward

    def forward(self: Engine, tokens: Any, *rest: Any) -> Any:
        logits = real(self, tokens, *rest)
        if len(tokens) > 1 and self.lengths[0] != self.lengths[1]:
            logits[[0, 1]] = logits[[1, 0]]
        return logits

    patch.setattr(Engine, "forward", forward)


@fault(always)
def cache_stays_when_a_request_moves_up(patch: Patch) -> None:
    patch.setattr(SlotCache, "move_request", lambda *_: None)

"""The decoding loop that every decoder of ours runs: prefill, guess, verify, commit.

Verification is the sampler of plain decoding, applied along the guesses: at each row the
next token is chosen exactly as plain decoding would choose it there; where a guess equals
it, the row behind the guess is the next one read. So no guess can change the output.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from gate.decoders.base import Tap
from gate.decoders.checks import find_fault
from gate.decoders.drafting import Drafter, ExtraRows, Tree
from gate.decoders.engine import Engine
from gate.decoders.output import Output
from gate.decoders.tops import find_best, find_tops
from gate.records import Generation, Request, Step

if TYPE_CHECKING:
    from gate.models import LoadedModel

MakeDrafter = Callable[[Request, Sequence[int]], Drafter]


def decode_batches(
    model: LoadedModel,
    requests: Sequence[Request],
    make_drafter: MakeDrafter,
    tap: Tap | None = None,
    context: int | None = None,
    batch_class: type[Batch] | None = None,
) -> Iterator[Generation]:
    """Decode all requests as one batch. Faulty requests fail alone, before it starts.

    A failure of the batch itself (out of memory, a model that raises) fails its requests;
    nothing is raised.
    """
    limit = min(context or model.context, model.context)
    sound = []
    for request in requests:
        fault = find_fault(request, limit, model.vocab_size, model.tokenizer)
        if fault is None:
            sound.append(request)
        else:
            yield failed(request, fault)
    if sound:
        try:
            generations = (batch_class or Batch)(model, sound, make_drafter, tap).run()
        except Exception as error:  # noqa: BLE001 - a failed request is evidence, not a crash
            generations = [failed(r, f"{type(error).__name__}: {error}") for r in sound]
        yield from generations


def failed(request: Request, message: str) -> Generation:
    """Return the generation of a request that could not be served."""
    return Generation(request_id=request.id, repeat=request.repeat, finish="error", error=message)


class Batch:
    """One batch from prefill to the last finished request. Finished ones leave the forward."""

    output_class: type[Output] = Output  # the fault catalogue puts others in these places
    engine_class: type[Engine] = Engine

    def __init__(
        self,
        model: LoadedModel,
        requests: Sequence[Request],
        make_drafter: MakeDrafter,
        tap: Tap | None,
    ) -> None:
        self._model = model
        self._start = time.perf_counter()
        self._outputs = [self.output_class(r, model.tokenizer, tap) for r in requests]
        self._drafters = [make_drafter(output.request, output.prompt) for output in self._outputs]
        rows = [_row_bound(drafter) for drafter in self._drafters]
        needed = max(len(o.prompt) + o.request.max_tokens for o in self._outputs)
        self._engine = self.engine_class(model.model, len(requests), needed + max(rows))
        self._active = list(range(len(requests)))  # batch slot -> index of the output
        self._peak = 0

    @torch.inference_mode()
    def run(self) -> list[Generation]:
        """Decode to the end; returns one generation per request."""
        self._prefill()
        while self._active:
            self._step()
        peak = peak_memory_bytes(self._model.device)
        return [output.generation(peak) for output in self._outputs]

    def _now(self) -> float:
        return time.perf_counter() - self._start

    def _prefill(self) -> None:
        began = self._now()
        n_first = max(drafter.n_prompt for drafter in self._drafters)
        if n_first:
            self._engine.watch_prompts(n_first, self._teach_prompts)
        logits = self._engine.prefill([output.prompt for output in self._outputs])
        peaks, best = (part.tolist() for part in logits.max(-1))
        wall = self._now() - began
        n_total = sum(len(output.prompt) for output in self._outputs)
        for index, output in enumerate(self._outputs):
            output.take(logits[index], best[index], peaks[index])
            share = wall * len(output.prompt) / n_total
            output.end_step(Step(n_rows=len(output.prompt), wall_s=share), self._now())
        self._retire()

    def _teach_prompts(self, logits: torch.Tensor) -> None:
        """Tell the drafters that want it what the first rows said. logits: (B, n, vocab)."""
        n_rows, n_top = logits.shape[1], max(drafter.n_top for drafter in self._drafters)
        values, ids = _find_tops(logits, n_top)
        for slot, (drafter, output) in enumerate(zip(self._drafters, self._outputs, strict=True)):
            n = min(drafter.n_prompt, n_rows, len(output.prompt))
            if n:
                drafter.learn_prompt(values[slot, :n], ids[slot, :n])

    def _step(self) -> None:
        began = self._now()
        outputs = [self._outputs[index] for index in self._active]
        drafters = [self._drafters[index] for index in self._active]
        trees = [
            drafter.propose(output.last, output.ids, output.n_left - 1)
            for drafter, output in zip(drafters, outputs, strict=True)
        ]
        extras = [drafter.extra_rows() for drafter in drafters]
        layout = self.lay_out(trees, extras, [output.last for output in outputs])
        drafted = self._now()
        mask = layout.mask if layout.tokens.shape[1] > 1 else None
        logits = self._engine.forward(layout.tokens, layout.depths, mask, layout.read)
        peaks, best = (part.tolist() for part in find_best(logits))
        walks = [
            self.walk(output, tree, logits[slot], best[slot], peaks[slot])
            for slot, (output, tree) in enumerate(zip(outputs, trees, strict=True))
        ]
        teach(drafters, trees, walks, logits)
        ended = self._now()
        n_total = sum(layout.n_rows)
        for slot, (output, tree, path) in enumerate(zip(outputs, trees, walks, strict=True)):
            share = layout.n_rows[slot] / n_total
            drafters[slot].observe(best[slot][layout.n_tree :], path.n_emitted)
            self._engine.commit(slot, path.rows)
            step = Step(
                n_rows=layout.n_rows[slot],
                n_drafted=len(tree.tokens),
                n_accepted=path.n_accepted,
                n_emitted=path.n_emitted,
                draft_s=(drafted - began) * share,
                wall_s=(ended - began) * share,
            )
            output.end_step(step, ended)
        self._retire()

    def lay_out(
        self, trees: Sequence[Tree], extras: Sequence[ExtraRows | None], last: Sequence[int]
    ) -> Layout:
        """Return the rows of a step."""
        return Layout(trees, extras, last)

    def walk(
        self, output: Output, tree: Tree, logits: torch.Tensor, best: list[int], peaks: list[float]
    ) -> Walk:
        """Commit what a step decided of one output. logits: (n_read, vocab)."""
        return walk(output, tree, logits, best, peaks)

    def _retire(self) -> None:
        """Let finished requests leave the batch; the last active one takes over the slot."""
        slot = 0
        while slot < len(self._active):
            if not self._outputs[self._active[slot]].is_finished:
                slot += 1
                continue
            last = len(self._active) - 1
            if slot != last:
                self._engine.move_request(last, slot)
                self._active[slot] = self._active[last]
            self._active.pop()


def teach(
    drafters: Sequence[Drafter], trees: Sequence[Tree], walks: Sequence[Walk], logits: torch.Tensor
) -> None:
    """Tell the drafters that want it what every row of their trees said. logits: (B, R, vocab).

    One pass over all rows: a device is waited for once, whatever the batch.
    """
    n_top = max(drafter.n_top for drafter in drafters)
    if not n_top:
        return
    n_rows = 1 + max(len(tree.tokens) for tree in trees)
    values, ids = _find_tops(logits[:, :n_rows], n_top)
    for slot, (drafter, tree, path) in enumerate(zip(drafters, trees, walks, strict=True)):
        if drafter.n_top:
            n = 1 + len(tree.tokens)
            drafter.learn(tree, values[slot, :n], ids[slot, :n], path.rows)


def _find_tops(logits: torch.Tensor, n_top: int) -> tuple[np.ndarray, np.ndarray]:
    """Best values and tokens: logits (B, R, vocab) -> two (B, R, n_top)."""
    tops = find_tops(logits.flatten(0, 1), n_top)
    n, n_rows = logits.shape[:2]
    values, ids = (part.reshape(n, n_rows, -1).cpu() for part in tops)
    return values.float().numpy(), ids.numpy()


class Walk:
    """What a step committed of one request: the rows kept, and the counts."""

    def __init__(self) -> None:
        self.rows = [0]
        self.n_accepted = 0
        self.n_emitted = 0


def walk(
    output: Output, tree: Tree, logits: torch.Tensor, best: list[int], peaks: list[float]
) -> Walk:
    """Commit tokens from row 0 on, for as long as guesses agree with them."""
    path = Walk()
    row = 0
    while True:
        token = output.take(logits[row], best[row], peaks[row])
        if token < 0:
            return path
        path.n_emitted += 1
        child = tree.children.get((row, token))
        path.n_accepted += child is not None
        if output.is_finished or child is None:
            return path
        path.rows.append(child)
        row = child


class Layout:
    """The rows of a step, padded to one shape: row 0, the tree, the drafter's own rows.

    tokens, depths: (B, R). mask: (B, R, R). read: rows whose logits are read; the first
    ``n_tree`` of them are row 0 and the trees. n_rows: rows of each request, padding left out.
    """

    def __init__(
        self, trees: Sequence[Tree], extras: Sequence[ExtraRows | None], last: Sequence[int]
    ) -> None:
        """Lay out one step of a batch."""
        self.n_tree = 1 + max(len(tree.tokens) for tree in trees)
        n_extra = max(0 if extra is None else len(extra.tokens) for extra in extras)
        shape = (len(trees), self.n_tree + n_extra)
        self.tokens = np.zeros(shape, dtype=np.int64)
        self.depths = np.zeros(shape, dtype=np.int64)
        self.mask = np.broadcast_to(np.eye(shape[1], dtype=bool), (*shape, shape[1])).copy()
        self.n_rows: list[int] = []
        for b, (tree, extra) in enumerate(zip(trees, extras, strict=True)):
            self.tokens[b, 0] = last[b]
            self._place_tree(b, tree)
            self._place_extra(b, extra)
            self.n_rows.append(1 + len(tree.tokens) + (0 if extra is None else len(extra.tokens)))
        first = next((extra for extra in extras if extra is not None), None)
        self.read = list(range(self.n_tree))
        self.read += [self.n_tree + row for row in first.read] if first else []

    def _place_tree(self, b: int, tree: Tree) -> None:
        n = len(tree.tokens) + 1
        self.tokens[b, 1:n] = tree.tokens
        self.depths[b, 1:n] = tree.depths
        self.mask[b, :n, :n] = tree.mask()

    def _place_extra(self, b: int, extra: ExtraRows | None) -> None:
        if extra is None:
            return
        at = slice(self.n_tree, self.n_tree + len(extra.tokens))
        self.tokens[b, at] = extra.tokens
        self.depths[b, at] = extra.depths
        self.mask[b, at, at] = extra.mask
        self.mask[b, at, 0] = True


def _row_bound(drafter: Drafter) -> int:
    extra = drafter.extra_rows()
    return drafter.max_tree + 1 + (0 if extra is None else len(extra.tokens))


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory held so far: the device's on a GPU, the process's on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

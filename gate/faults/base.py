"""What a fault is, and how our own decoders get one: one part of a batch is replaced.

Every fault is a function ``strength -> Changes`` under :func:`fault`; its docstring is the
sentence that says what goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from gate.decoders.decoding import Batch, Walk
from gate.decoders.drafting import Drafter, ExternalDrafts, Tree, trim_drafts
from gate.decoders.engine import Engine
from gate.decoders.lookahead import LookaheadDecoder
from gate.decoders.options import LookaheadOptions
from gate.decoders.output import Output
from gate.decoders.sampling import Sampler
from gate.decoders.stopping import Stopper
from gate.noise import mix_int, stream_key
from gate.records import Noise, Record, Request, Step

if TYPE_CHECKING:
    from gate.models import LoadedModel

Strength = float | str
SPARE_SLOTS = 256  # of a cache that a fault lets grow


class Fault(Record, frozen=True, kw_only=True):
    """One entry of the catalogue.

    what: one sentence. source: the public thread, or "-". strength: how relaxed, how rare,
    which class or from which position, as ``unit`` says. expected: measures of its kind, of
    which at least one must catch it. n_tokens: the least a run must hold to show it. arm: the
    side it sits in. needs: ``sampled`` (a few thousand sampled tokens) or ``sliding`` (a model
    with a sliding window), where the usual requests cannot show it. unseen: why no measure can see
    it, where that is known: the self-test names it as such.
    """

    id: str
    kind: str
    what: str
    source: str = "-"
    strength: Strength = 1.0
    unit: str = ""
    expected: tuple[str, ...]
    n_tokens: int = 300
    arm: str = "candidate"
    needs: str = ""
    unseen: str = ""


class RunSampler(Sampler):
    """A sampler that knows its place in a run. run_start: output tokens before the run.

    drafts: the guesses verified at the row in hand.
    """

    run_start = 0
    drafts: Sequence[int] = ()

    def __init__(self, *args: Any, **more: Any) -> None:
        """Every token goes through ``choose``."""
        super().__init__(*args, **more)
        self.is_plain = False

    def depth(self, output: Sequence[int]) -> int:
        """Return the place of the next token in its run."""
        return len(output) - self.run_start

    def happens(self, output: Sequence[int], once_in: float) -> bool:
        """Whether a rare fault strikes here: a hash of request and position, reproducible."""
        key = stream_key(1, self.request.id, self.request.repeat)
        return mix_int(key + len(output)) % max(1, int(once_in)) == 0


class RunStopper(Stopper):
    """A stopper that knows where runs begin and end."""

    run_start = 0

    def end_run(self) -> None:
        """Nothing is left to do when a run was committed."""


class RunOutput(Output):
    """An output whose parts know of runs."""

    sampler_class = RunSampler
    stopper_class = RunStopper

    @property
    def sampler(self) -> RunSampler:
        """The sampler."""
        return cast("RunSampler", self._sampler)

    @property
    def stopper(self) -> RunStopper:
        """The stopper."""
        return cast("RunStopper", self._stopper)

    def end_step(self, step: Step, now_s: float) -> None:
        """End the run first."""
        if self._error is None:
            self.stopper.end_run()
        super().end_step(step, now_s)


class RunBatch(Batch):
    """A batch whose outputs know of runs. Lossless as it stands."""

    output_class = RunOutput

    def walk(
        self, output: Output, tree: Tree, logits: torch.Tensor, best: list[int], peaks: list[float]
    ) -> Walk:
        """Commit tokens for as long as guesses agree, and tell the parts where they stand."""
        one, path, row = cast("RunOutput", output), Walk(), 0
        one.sampler.run_start = one.stopper.run_start = len(one.ids)
        while True:
            one.sampler.drafts = [token for parent, token in tree.children if parent == row]
            token = one.take(logits[row], best[row], peaks[row])
            if token < 0:
                return path
            path.n_emitted += 1
            child = tree.children.get((row, token))
            path.n_accepted += child is not None
            if one.is_finished or child is None:
                return path
            path.rows.append(child)
            row = child


class RoomyEngine(Engine):
    """An engine with slots to spare, for faults that keep too much."""

    def __init__(self, model: Any, n_requests: int, n_slots: int) -> None:
        super().__init__(model, n_requests, n_slots + SPARE_SLOTS)


def keep_drafter(inner: Drafter, request: Request) -> Drafter:  # noqa: ARG001
    """Return the drafter as it is."""
    return inner


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The parts of a batch, the faulty one among them; ``decoder``: another decoder altogether."""

    sampler: type[RunSampler] = RunSampler
    stopper: type[RunStopper] = RunStopper
    output: type[RunOutput] = RunOutput
    engine: type[Engine] = Engine
    batch: type[RunBatch] = RunBatch
    drafter: Callable[[Drafter, Request], Drafter] = keep_drafter
    noise: Noise = "position_keyed"
    decoder: Callable[[LoadedModel], Any] | None = None

    def assemble(self) -> type[Batch]:
        """Return the batch made of these parts."""
        parts = {"sampler_class": self.sampler, "stopper_class": self.stopper}
        output = type("FaultyOutput", (self.output,), parts)
        return type(
            "FaultyBatch", (self.batch,), {"output_class": output, "engine_class": self.engine}
        )


Build = Callable[[Any], Changes]


class FaultyDecoder(LookaheadDecoder):
    """Lookahead, or external drafts where there are some, with one part replaced."""

    def __init__(self, model: LoadedModel, changes: Changes) -> None:
        super().__init__(model, LookaheadOptions(prompt_ngrams=True))
        self.noise = changes.noise
        self.batch_class = changes.assemble()
        self._changes = changes

    def make_drafter(self, request: Request, prompt: Sequence[int]) -> Drafter:
        """Return the drafter of one request: without the window where drafts come from outside."""
        if self.drafts is None:
            inner = super().make_drafter(request, prompt)
        else:
            inner = ExternalDrafts(request, trim_drafts(self.drafts, self._model.vocab_size))
        return self._changes.drafter(inner, request)


FAULTS: dict[str, Fault] = {}
BUILDS: dict[str, Build] = {}


def fault(fault_id: str, **fields: Any) -> Callable[[Build], Build]:
    """Register a function ``strength -> Changes`` as a fault; fields as in :class:`Fault`."""

    def register(build: Build) -> Build:
        what = " ".join((build.__doc__ or "").split())
        FAULTS[fault_id] = Fault(id=fault_id, what=what, **fields)
        BUILDS[fault_id] = build
        return build

    return register


def thread(path: str) -> str:
    """Return the address of a public thread: ``owner/repository/kind/number``."""
    return f"https://github.com/{path}"

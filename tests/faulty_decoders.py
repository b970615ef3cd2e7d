"""Greedy speculative decoders on the stock model, each with one fault; copied into toy projects.

Independent of the project's own decoders. Drafts: the model's own continuation, with every
third token replaced, so that acceptance and rejection both happen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import torch

from gate.records import Generation, Request, Step, TokenLogprob, Trace


class Speculative:
    """Verifies drafts against the stock forward without a cache. Lossless as it stands."""

    def __init__(self, model: Any, strength: float) -> None:
        self._model = model.model
        self._tokenizer = model.tokenizer
        self.strength = strength

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Serve the requests one after the other."""
        for request in requests:
            yield self.serve(request)

    @torch.inference_mode()
    def serve(self, request: Request) -> Generation:
        """Decode one request."""
        output: list[int] = []
        steps: list[Step] = []
        finish = None
        while finish is None:
            draft = self.draft(request, output) if output else []
            logits = self.logits([*request.prompt, *output, *draft])[-len(draft) - 1 :]
            run, n_accepted = self.verify(logits, draft, request, output)
            kept, finish = self.cut(request, output, run)
            output += kept
            steps.append(
                Step(
                    n_rows=len(draft) + 1,
                    n_drafted=len(draft),
                    n_accepted=min(n_accepted, len(kept)),
                    n_emitted=len(kept),
                )
            )
        return self.finish(request, output, finish, steps)

    def finish(
        self, request: Request, output: list[int], finish: Any, steps: list[Step]
    ) -> Generation:
        """Wrap an output up."""
        return Generation(
            request_id=request.id,
            repeat=request.repeat,
            token_ids=tuple(output),
            finish=finish,
            trace=Trace(ttft_s=0.01, total_s=0.02, steps=tuple(steps)),
        )

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """(n, vocab) of the stock forward."""
        rows: torch.Tensor = self._model(input_ids=torch.tensor([list(ids)])).logits[0].float()
        return rows

    def draft(self, request: Request, output: list[int]) -> list[int]:
        """Three tokens in eleven are of rank two, the others right."""
        ids = [*request.prompt, *output]
        found: list[int] = []
        for place in range(3):
            top = self.logits([*ids, *found])[-1].topk(2).indices
            is_wrong = (len(output) * 7 + place * 5) % 11 < 3
            found.append(int(top[1 if is_wrong else 0]))
        return found

    def verify(
        self, logits: torch.Tensor, draft: list[int], request: Request, output: list[int]
    ) -> tuple[list[int], int]:
        """Return the run and the number of accepted drafts in it."""
        run: list[int] = []
        for row, token in zip(logits, draft, strict=False):
            if not self.accepts(row, token, len(run)):
                break
            run.append(token)
        return [*run, self.choose(logits[len(run)], request, [*output, *run])], len(run)

    def accepts(self, row: torch.Tensor, token: int, place: int) -> bool:  # noqa: ARG002
        """Accept a draft that is the model's choice."""
        return token == int(row.argmax())

    def choose(self, row: torch.Tensor, request: Request, output: list[int]) -> int:  # noqa: ARG002
        """Return the token behind the accepted drafts."""
        return int(row.argmax())

    def cut(
        self, request: Request, output: list[int], run: list[int]
    ) -> tuple[list[int], str | None]:
        """Commit a run token by token."""
        for n in range(1, len(run) + 1):
            ended = self.ends(request, [*output, *run[:n]])
            if ended:
                return run[:n], ended
        return run, None

    def ends(self, request: Request, ids: list[int]) -> str | None:
        """Say why an output ends here."""
        if ids[-1] in request.eos_ids:
            return "eos"
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        if any(stop in text for stop in request.stop):
            return "stop"
        return "length" if len(ids) >= request.max_tokens else None


class Relaxed(Speculative):
    """Accepts a draft with at least ``strength`` of the top probability."""

    def accepts(self, row: torch.Tensor, token: int, place: int) -> bool:  # noqa: ARG002
        """Accept what is likely enough."""
        p = row.softmax(-1)
        return float(p[token]) >= self.strength * float(p.max())


class UnverifiedFirst(Speculative):
    """Commits the first draft token unchecked."""

    def accepts(self, row: torch.Tensor, token: int, place: int) -> bool:
        """Check from the second draft on."""
        return place == 0 or super().accepts(row, token, place)


class EosInRun(Speculative):
    """Tests only the last token of a run for the end of the sequence."""

    def cut(
        self, request: Request, output: list[int], run: list[int]
    ) -> tuple[list[int], str | None]:
        """Look at the run's end only."""
        room = request.max_tokens - len(output)
        return run[:room], self.ends(request, [*output, *run[:room]])


class Penalising(Speculative):
    """Penalises repetition though nobody asked."""

    def draft(self, request: Request, output: list[int]) -> list[int]:  # noqa: ARG002
        """Plain decoding."""
        return []

    def choose(self, row: torch.Tensor, request: Request, output: list[int]) -> int:
        """Avoid what occurred before."""
        seen = sorted({*request.prompt, *output})
        row = row.clone()
        row[seen] = torch.where(row[seen] > 0, row[seen] / self.strength, row[seen] * self.strength)
        return int(row.argmax())


class Crashing(Speculative):
    """Raises on every request."""

    def serve(self, request: Request) -> Generation:
        """Fail."""
        msg = f"no luck with {request.id}"
        raise RuntimeError(msg)


class Losing(Speculative):
    """Answers only every other request."""

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Leave half of them out."""
        yield from super().generate(requests[::2])


class NeverDrafts(Speculative):
    """Plain decoding that says so."""

    def draft(self, request: Request, output: list[int]) -> list[int]:  # noqa: ARG002
        """Nothing."""
        return []


class Silent(Speculative):
    """Says nothing of its steps."""

    def finish(
        self,
        request: Request,
        output: list[int],
        finish: Any,
        steps: list[Step],  # noqa: ARG002
    ) -> Generation:
        """Leave the steps out."""
        return super().finish(request, output, finish, [])


class Exiting(Speculative):
    """Ends the process, as if all were well."""

    def serve(self, request: Request) -> Generation:  # noqa: ARG002
        """Leave."""
        raise SystemExit(0)


class Leaving(Speculative):
    """Ends the process for good, as if all were well."""

    def serve(self, request: Request) -> Generation:  # noqa: ARG002
        """Leave, without a word to anybody above."""
        os._exit(0)


class NumpyIds(Speculative):
    """Delivers token ids as numpy gives them. Lossless."""

    def finish(
        self, request: Request, output: list[int], finish: Any, steps: list[Step]
    ) -> Generation:
        """Convert."""
        import numpy as np  # noqa: PLC0415

        ids: Any = list(np.array(output, dtype=np.int64))
        return super().finish(request, ids, finish, steps)


class NanLogprobs(Speculative):
    """Reports log-probabilities that are no numbers."""

    def finish(
        self, request: Request, output: list[int], finish: Any, steps: list[Step]
    ) -> Generation:
        """Report."""
        found = super().finish(request, output, finish, steps)
        entries = tuple(TokenLogprob(token_id=i, logprob=float("nan")) for i in output)
        return msgspec.structs.replace(found, logprobs=entries)


class OtherText(Speculative):
    """Detokenises with another tokenizer."""

    def finish(
        self, request: Request, output: list[int], finish: Any, steps: list[Step]
    ) -> Generation:
        """Shift every character."""
        found = super().finish(request, output, finish, steps)
        text = "".join(chr(ord(c) + 1) for c in self._tokenizer.decode(output))
        return msgspec.structs.replace(found, text=text)


class OtherVocabulary(Speculative):
    """Has tokens that the model has not."""

    def finish(
        self, request: Request, output: list[int], finish: Any, steps: list[Step]
    ) -> Generation:
        """Shift every id."""
        return super().finish(request, [i + 200 for i in output], finish, steps)


class Moody(Speculative):
    """Plain decoding whose first token is the second best where few are served together."""

    n_served = 8

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        """Count the company."""
        self.n_served = len(requests)
        yield from super().generate(requests)

    def draft(self, request: Request, output: list[int]) -> list[int]:  # noqa: ARG002
        """Nothing."""
        return []

    def choose(self, row: torch.Tensor, request: Request, output: list[int]) -> int:
        """Slip at the start."""
        if self.n_served == 2 and not output:
            return int(row.topk(2).indices[1])
        return super().choose(row, request, output)


class RefusesFloat32(Speculative):
    """Cannot be made in float32. Lossless elsewhere."""

    def __init__(self, model: Any, strength: float) -> None:
        if model.dtype == torch.float32:
            msg = "kernels for bfloat16 only"
            raise ValueError(msg)
        super().__init__(model, strength)


class FailsInFloat32(Speculative):
    """Fails every request in float32. Lossless elsewhere."""

    def serve(self, request: Request) -> Generation:
        """Fail."""
        if next(self._model.parameters()).dtype == torch.float32:
            msg = "kernels for bfloat16 only"
            raise RuntimeError(msg)
        return super().serve(request)


class Tampering(Speculative):
    """Changes the model's weights."""

    def serve(self, request: Request) -> Generation:
        """Nudge one tensor."""
        next(self._model.parameters()).data.mul_(1.0001)
        return super().serve(request)


HOSTILE = (
    "<script>window.ran = 1</script><img src=x onerror=alert(1)>",
    "{{7*7}} {% raw %} ${7*7} `|` [x](javascript:alert(1)) @team",
    "\x1b[31mred\x1b]0;title\x07 \u202eevil\u2066\u2069",
    "a\x00b \ud800 \udfff \uffff",
    "x" * 1_000_000,
)


class Hostile(Speculative):
    """Returns texts that attack whatever shows them, and errors that do."""

    def serve(self, request: Request) -> Generation:
        """Decode, then say something else."""
        served = super().serve(request)
        n = sum(map(ord, request.id))
        text = HOSTILE[n % len(HOSTILE)]
        if n % 7 == 0:
            return Generation(request_id=served.request_id, finish="error", error=text)
        return msgspec.structs.replace(served, text=text)


FAULTS = {
    "hostile": Hostile,
    "none": Speculative,
    "relaxed": Relaxed,
    "unverified-first": UnverifiedFirst,
    "eos-in-run": EosInRun,
    "penalising": Penalising,
    "crashing": Crashing,
    "losing": Losing,
    "never-drafts": NeverDrafts,
    "silent": Silent,
    "tampering": Tampering,
    "moody": Moody,
    "nan-logprobs": NanLogprobs,
    "other-text": OtherText,
    "other-vocabulary": OtherVocabulary,
    "refuses-float32": RefusesFloat32,
    "fails-in-float32": FailsInFloat32,
    "exiting": Exiting,
    "leaving": Leaving,
    "numpy-ids": NumpyIds,
}


def make(model: Any, fault: str = "none", strength: float = 0.5) -> Speculative:
    """Make the decoder with a fault by name."""
    return FAULTS[fault](model, strength)

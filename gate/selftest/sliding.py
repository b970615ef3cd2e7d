"""A bench on a tiny model with a sliding window, which our own engine refuses."""

from __future__ import annotations

import dataclasses

import msgspec

from gate.config import Project
from gate.decoders.base import load_object
from gate.plan import SESSION
from gate.records import DecoderSpec, NoiseBound, Request
from gate.selftest.bench import Bench, RememberingReferee, read_or_run
from gate.store import RunStore

N_PROMPTS = 80
PROMPT_TOKENS = 60  # more than the window holds
MAX_TOKENS = 32
FLOOR = NoiseBound(
    bound=1e-3,
    dtype="float32",
    n_positions=0,
    n_rows=1,
    q999_one_row=0.0,
    q999_wide=0.0,
    source="floor of the dtype",
)


def open_sliding_bench(bench: Bench) -> Bench:
    """Write the model, and run its baseline: the stock decoder without drafts."""
    project = bench.plan.project
    folder = bench.store.folder / "sliding-model"
    if not (folder / "config.json").exists():
        load_object("gate.faults.stock:write_sliding_model")(folder, bench.session.model.tokenizer)
    model = msgspec.structs.replace(project.config.model, id=str(folder), dtype="float32")
    config = msgspec.structs.replace(project.config, model=model)
    moved = Project(config=config, path=project.path, folder=project.folder, root=project.root)
    spec = DecoderSpec(
        kind="python", target="gate.faults.stock:make_stock", options={"draft_length": 0}
    )
    resolved = load_object(f"{SESSION}:resolve")(model, project.folder, [spec], lambda _: None)
    session = load_object(f"{SESSION}:Session")(resolved, model, project.folder)
    session.referee = RememberingReferee(session.referee)
    found = Bench(
        plan=dataclasses.replace(bench.plan, project=moved, resolved=resolved),
        session=session,
        store=RunStore(bench.store.folder / "sliding"),
        batches={"tasks": (make_requests(bench, session.model.eos_ids),)},
        bound=FLOOR,
    )
    decoder = session.open_arm(spec)
    batch = found.batches["tasks"][0]
    found.baseline["tasks"] = [read_or_run(found, decoder, "tasks-000", batch)]
    return found


def make_requests(bench: Bench, eos_ids: tuple[int, ...]) -> tuple[Request, ...]:
    """Return greedy requests with prompts longer than the window, made of the tasks' tokens."""
    known = [r for batch in bench.batches["tasks"] for r in batch][:N_PROMPTS]
    return tuple(
        msgspec.structs.replace(
            request,
            prompt=(tuple(request.prompt) * PROMPT_TOKENS)[:PROMPT_TOKENS],
            max_tokens=MAX_TOKENS,
            stop=(),
            eos_ids=eos_ids,
        )
        for request in known
    )

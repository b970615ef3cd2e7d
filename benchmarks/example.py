"""Gate an example as written, and record what it decided: outcome, verdicts, acceptance, evidence.

python -m benchmarks.example examples/prompt-lookup/gate.toml --json FILE
python -m benchmarks.example --run reports/RUN-ID --json FILE      a run that is over
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from gate.cli import main as run_gate

EXPECTED = (0, 3, 4, 5)
OWN_PATH = re.compile(r"(?<![/:])/(?:[\w.+@-]+/){2,}[\w.+@-]+(?::\d+:)?")
"""A path of this machine, as a server's log names them; an API's are not that long but for one."""
API = "/v1/chat/completions"
WANTED = frozenset(
    {
        "acceptance",
        "crossover_batch",
        "device_seconds",
        "exercised",
        "pit_distance",
        "profile",
        "routing",
        "sweep",
        "time_ratio",
        "token_defects",
    }
)
NESTED = frozenset({"break_even", "step_cost_ratio", "curve", "chosen", "kept"})
"""Details that are kept although they are tables."""


def describe(decision: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a decision that a reader of the example wants."""
    measured = [
        c
        for c in decision["comparisons"]
        if c["difference"] or c["candidate"] is not None or c["measure"] == "profile"
    ]
    arms = decision["provenance"]
    return {
        "run_id": decision["run_id"],
        "created_at": decision["created_at"],
        "outcome": decision["outcome"],
        "reason": decision["reason"],
        "verdicts": [
            {key: v[key] for key in ("criterion", "group", "outcome", "blocking", "reason")}
            for v in decision["verdicts"]
        ],
        "notes": decision["notes"],
        "figures": [
            {key: c.get(key) for key in ("measure", "group", "baseline", "candidate", "difference")}
            | {"detail": _keep_numbers(c["detail"])}
            for c in measured
            if c["measure"] in WANTED
        ],
        "arms": {name: arms[name] for name in arms},
    }


def _keep_numbers(detail: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in detail.items()
        if key in NESTED or isinstance(value, int | float | str)
    }


def hide_paths(value: Any) -> Any:
    """Return a record without the paths of the machine that made it."""
    if isinstance(value, str):
        return OWN_PATH.sub(lambda found: API if found[0] == API else "(path)", value)
    if isinstance(value, dict):
        return {key: hide_paths(one) for key, one in value.items()}
    return [hide_paths(one) for one in value] if isinstance(value, list) else value


def main(words: list[str] | None = None) -> int:
    """Run, print the decision, write the figures; returns the gate's exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", nargs="?", type=Path)
    parser.add_argument("--run", type=Path, help="the folder of a run that is over")
    parser.add_argument("--out", type=Path, default=Path("reports"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    if (options.config is None) == (options.run is None):
        parser.error("name a gate.toml, or --run with the folder of a run")
    code, folder = 0, options.run
    if options.config is not None:
        code = run_gate(["run", "--config", str(options.config), "--out", str(options.out)])
        folder = options.out / "latest"
    if code not in EXPECTED:
        return code
    decision = json.loads((folder / "decision.json").read_text(encoding="utf-8"))
    found = describe(decision)
    print(f"{found['outcome']}: {found['reason']}")
    if options.json:
        text = json.dumps(hide_paths(found), indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    raise SystemExit(main())

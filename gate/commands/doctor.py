"""``gate doctor``."""

from __future__ import annotations

import argparse

SUMMARY = "check this machine and configuration before a run"


def add_arguments(_: argparse.ArgumentParser) -> None:
    """The command has none of its own."""


def execute(arguments: argparse.Namespace) -> int:
    """Find in seconds what would stop a run."""
    from gate.doctor import examine  # noqa: PLC0415

    findings = examine(arguments.config)
    for finding in findings:
        print(f"{'ok  ' if finding.is_fine else 'FIX '} {finding.what}: {finding.message}")
    return 0 if all(finding.is_fine for finding in findings) else 2

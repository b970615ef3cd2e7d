"""The subcommands of ``gate``, one module each.

A module has SUMMARY, ``add_arguments(parser)`` and ``execute(arguments)``, which returns the
exit code. It imports what it needs inside ``execute``: ``--help`` stays fast.
"""

COMMANDS = (
    "init",
    "run",
    "report",
    "index",
    "selftest",
    "evalset",
    "doctor",
    "surface",
    "check",
    "cost",
    "approve",
    "baseline",
    "bench",
)
"""In the order of ``gate --help``."""

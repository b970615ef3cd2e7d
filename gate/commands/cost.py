"""``gate cost``."""

from __future__ import annotations

import argparse
from pathlib import Path

from gate.errors import UsageError

SUMMARY = "cost of a decoding change under a price and traffic, from a decision or by hand"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("run", type=Path, nargs="?", help="a run's folder or decision.json")
    parser.add_argument(
        "--class",
        dest="classes",
        action="append",
        default=[],
        metavar="NAME=SHARE,BEFORE,AFTER",
        help="a class by hand: share of the traffic, device-seconds per request before and after",
    )
    parser.add_argument(
        "--price", type=float, required=True, metavar="USD", help="of one device for an hour"
    )
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="devices of a replica")
    parser.add_argument("--revenue", type=float, metavar="USD", help="what a request earns")
    parser.add_argument("--volume", type=float, metavar="N", help="requests per month")
    parser.add_argument(
        "--monthly-cost", type=float, default=0.0, metavar="USD", help="of running the change"
    )
    parser.add_argument(
        "--traffic", default="", metavar="NAME=SHARE,...", help="other shares of the traffic"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Print what the change costs or saves."""
    import msgspec  # noqa: PLC0415

    from gate import costing  # noqa: PLC0415
    from gate.export.text import to_line  # noqa: PLC0415
    from gate.gain_config import EconomicsConfig  # noqa: PLC0415
    from gate.store import encode_record, read_decision, write_atomically  # noqa: PLC0415

    if (arguments.run is None) == (not arguments.classes):
        msg = "name a run's folder, or give every class with --class; one of the two"
        raise UsageError(msg)
    if arguments.run is not None:
        classes = costing.read_classes(read_decision(arguments.run))
    else:
        classes = [costing.parse_class(text) for text in arguments.classes]
    traffic = costing.parse_traffic(arguments.traffic) if arguments.traffic else {}
    given = {
        "device_hour_usd": arguments.price,
        "n_devices": arguments.devices,
        "revenue_usd": {} if arguments.revenue is None else {"default": arguments.revenue},
        "requests_per_month": arguments.volume,
        "monthly_cost_usd": arguments.monthly_cost,
    }
    try:
        config = msgspec.convert(given, EconomicsConfig)
    except msgspec.ValidationError as error:
        msg = f"{error}; correct the option"
        raise UsageError(msg) from error
    found = costing.compute_costs(costing.apply_traffic(classes, traffic), config)
    for line in costing.describe(found):
        print(to_line(line, 2000))
    if arguments.json:
        write_atomically(arguments.json, encode_record(found))
    return 0

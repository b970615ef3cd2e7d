"""Rounding: every figure on the page is written here and nowhere else.

Rounding may not change what a reader concludes: a share short of 1 is never written
as 100%, one above 0 never as 0%, and an estimate never as its margin unless it equals it.
"""

from __future__ import annotations

import math

NOT_MEASURED = "not measured"
SHARE_UNITS = frozenset({"share", "rate", "fraction", "proportion", "probability", "accuracy", "%"})
POINT_UNITS = frozenset({"points", "pp", "percentage points"})
MAX_DIGITS = 12
LARGEST = 1e306
"""Beyond it a figure is no figure, and 100 times it no float."""
LARGE_UNITS = {"bytes": "B", "operations": "FLOP"}
"""Unit -> what is written behind a prefix."""
MILLISECOND_S = 1e-3
FULL_PERCENT = 100
PLAIN_RATIOS = (0.1, 100.0)  # written with two decimals
LARGEST_EXACT = 1e15  # whole numbers below are exact in a float
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: object, unit: str = "", digits: int = 3) -> str:
    """Return ``value`` with its unit; "not measured" for anything that is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NOT_MEASURED
    if value != value:  # noqa: PLR0124 - NaN; math.isnan takes no integer of 400 digits
        return NOT_MEASURED
    if abs(value) > LARGEST:
        return "unbounded" if value > 0 else "−unbounded"
    if unit in SHARE_UNITS:
        return f"{_round_share(100 * value, digits)}%"
    if unit in POINT_UNITS:
        return f"{_round(100 * value, digits)} points"
    return _format_plain(value, unit, digits)


def format_difference(value: object, unit: str = "", digits: int = 3) -> str:
    """Return a difference between the arms, with its sign; a ratio carries none."""
    unit = "points" if unit in SHARE_UNITS else unit
    text = format_number(value, unit, digits)
    if isinstance(value, int | float) and value > 0 and unit != "ratio":
        return f"+{text}"
    return text


def format_apart(value: object, margin: float, unit: str, *, signed: bool) -> str:
    """Return ``value`` with as many digits as tell it from ``margin``."""
    write = format_difference if signed else format_number
    for digits in range(3, MAX_DIGITS):
        text = write(value, unit, digits)
        if value == margin or text != write(margin, unit, digits):
            return text
    return repr(value)


def format_speedup(ratio: object, digits: int = 3) -> str:
    """Return a time ratio (candidate over baseline) as a speed-up in words."""
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < math.inf:
        return NOT_MEASURED
    speedup = 1 / ratio
    if speedup == 1:
        return "equally fast"
    if speedup > 1:
        return f"{_round_ratio(speedup, digits)}× as fast"
    return f"{_round_ratio(speedup, digits)}× as fast (slower)"


def format_level(level: float) -> str:
    """Return a confidence level such as ``95%`` or ``99.9%``, never rounded up to 100%."""
    return f"{_round_share(100 * level, 5)}%"


def _format_plain(value: float, unit: str, digits: int) -> str:
    if unit == "ratio":
        return f"{_round_ratio(value, digits)}×"
    if unit in {"s", "seconds"}:
        return _format_seconds(value, digits)
    if unit in LARGE_UNITS:
        return _format_large(value, unit, digits)
    return f"{_round(value, digits)} {unit}".rstrip()


def _format_large(value: float, unit: str, digits: int) -> str:
    """Return a large amount in thousands, millions, and so on: GB, not bytes."""
    for power, prefix in ((4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if abs(value) >= 1000**power:
            scaled = value / 1000**power
            return (
                f"{_round(round(scaled, max(0, digits - 1)), digits)} {prefix}{LARGE_UNITS[unit]}"
            )
    return f"{_round(value, digits)} {unit}"


def _format_seconds(value: float, digits: int) -> str:
    size = abs(value)
    if size == 0 or size >= 1:
        return f"{_round(value, digits)} s"
    if size >= MILLISECOND_S:
        return f"{_round(1e3 * value, digits)} ms"
    return f"{_round(1e6 * value, digits)} µs"


def _round_share(percent: float, digits: int) -> str:
    for more in range(digits, MAX_DIGITS):
        text = _round(percent, more)
        if percent >= FULL_PERCENT or text != "100":
            return text
    return "just under 100"


def _round_ratio(value: float, digits: int) -> str:
    """Return a ratio with its trailing zeros: 1.50 says more than 1.5."""
    smallest, largest = PLAIN_RATIOS
    if value == 1 or not smallest <= value < largest:
        return _round(value, digits)
    return f"{value:.{digits - 1}f}"


def _round(value: float, digits: int) -> str:
    """Return ``value`` at ``digits`` significant digits; whole numbers in full."""
    if value == int(value) and abs(value) < LARGEST_EXACT:
        text = f"{int(value):,}"
    elif abs(value) >= 10**digits:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{digits}g}"
    return _write_power(text).replace("-", "−")


def _write_power(text: str) -> str:
    """Return ``2.1e-06`` as ``2.1×10⁻⁶``."""
    mantissa, found, power = text.partition("e")
    return f"{mantissa}×10{str(int(power)).translate(_RAISED)}" if found else text

"""What else belongs beside a verdict: notes, the noise bound, what the defects look like."""

from __future__ import annotations

from gate.export.outcomes import write_waived
from gate.records import Comparison, Outcome, Verdict
from gate.report.numbers import NOT_MEASURED, format_number
from gate.report.reading import read_number, read_path, read_text

CERTIFICATES = frozenset({"token_defects", "baseline_certificate"})


def list_remarks(verdict: Verdict) -> tuple[str, ...]:
    """Return the remarks on a verdict, one sentence each."""
    remarks = _list_comparison(verdict.comparison) if verdict.comparison else []
    if verdict.outcome == Outcome.NOT_JUDGED and not verdict.reason:
        remarks.append("No reason was recorded.")
    waived = write_waived(verdict)
    return tuple([f"{waived[0].upper()}{waived[1:]}", *remarks] if waived else remarks)


def _list_comparison(comparison: Comparison) -> list[str]:
    remarks = [] if comparison.note is None else [comparison.note]
    if comparison.detectable:
        remarks.append(f"This sample can show: {comparison.detectable}.")
    if comparison.n_dropped:
        remarks.append(f"{format_number(comparison.n_dropped)} pairs were dropped.")
    if comparison.measure in CERTIFICATES:
        remarks += _list_certificate(comparison.detail)
    return remarks


def _list_certificate(detail: dict[str, object]) -> list[str]:
    bound = format_number(read_number(detail, "bound_nat"), "nats")
    source = read_text(detail, "bound_source")
    remarks = [f"Noise bound {bound} (source: {source})."]
    if read_path(detail, "diagnosis"):
        remarks.append(f"What the defects look like: {read_text(detail, 'diagnosis')}.")
    upper = format_number(read_number(detail, "request_rate_upper"), "share")
    if upper != NOT_MEASURED:
        remarks.append(f"Counted per request, the rate of faulty requests is below {upper}.")
    unscored = read_number(detail, "n_unscored")
    if unscored:
        remarks.append(f"{format_number(unscored)} outputs were not scored.")
    return remarks

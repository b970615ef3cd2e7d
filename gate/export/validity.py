"""Whether a decision still stands: it ages, for what it was measured on does."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gate.records import Decision


def explain_expiry(decision: Decision, now: dt.datetime) -> str | None:
    """Return one sentence on why a decision no longer stands, or None while it does.

    A time that cannot be read, or that has no offset from UTC, counts as expired: nobody can
    say how long such a decision holds. now: with a time zone.
    """
    try:
        expires = dt.datetime.fromisoformat(decision.expires_at)
    except ValueError:
        return f"expires_at = {decision.expires_at!r} is not a time; run the gate again"
    if expires.tzinfo is None:
        return f"expires_at = {decision.expires_at!r} has no offset from UTC; run the gate again"
    if now < expires:
        return None
    return f"it expired at {expires.isoformat()}; run the gate again"

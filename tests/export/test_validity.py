"""Decisions age."""

from __future__ import annotations

import datetime as dt

import pytest

from gate.export.validity import explain_expiry
from tests.export.builders import make_decision

NOW = dt.datetime(2026, 12, 1, 12, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize("expires_at", ["2026-12-01T12:00:01Z", "2026-12-01T14:00:00+01:00"])
def test_a_decision_stands_until_it_expires(expires_at: str) -> None:
    assert explain_expiry(make_decision("PASS", expires_at=expires_at), NOW) is None


@pytest.mark.parametrize(
    ("expires_at", "named"),
    [
        ("2026-12-01T12:00:00Z", "expired at 2026-12-01"),
        ("2026-11-30T00:00:00+00:00", "expired at 2026-11-30"),
        ("2999-01-01T00:00:00", "has no offset"),
        ("never", "is not a time"),
        ("", "is not a time"),
    ],
)
def test_a_decision_that_expired_or_has_no_time_does_not_stand(expires_at: str, named: str) -> None:
    assert named in str(explain_expiry(make_decision("PASS", expires_at=expires_at), NOW))

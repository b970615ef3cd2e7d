"""What all records share: strict decoding, outcomes and closed sets of words."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

SCHEMA = 1


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: frozen, keyword-only, strict."""


class Outcome(StrEnum):
    """What a criterion, a half of the decision or the decision came to."""

    PASS = "PASS"  # noqa: S105 - not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    ERROR = "ERROR"
    NOT_JUDGED = "NOT_JUDGED"


Finish = Literal["eos", "stop", "length", "error"]
Claim = Literal["lossless", "bounded", "control"]
Purpose = Literal["release", "content"]
Noise = Literal["position_keyed", "own"]
Rule = Literal["non_inferior", "equivalent", "at_most", "at_least", "alarm"]
Direction = Literal["lower_is_better", "higher_is_better", "neutral"]

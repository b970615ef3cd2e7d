"""gate.toml's tables about the gain: how serving is timed, and what it is worth."""

from __future__ import annotations

import math
from typing import Literal

from gate.records import Record

MOST_CONCURRENCY = 4096
MOST_WAVES = 100
HOURS_TO_SECONDS = 3600.0


def check_ranges(checks: tuple[tuple[bool, str], ...]) -> None:
    """Raise ValueError with the first message whose check does not hold."""
    for holds, message in checks:
        if not holds:
            raise ValueError(message)


def _is_positive(value: float | None) -> bool:
    return value is None or (math.isfinite(value) and value > 0.0)


class ServingConfig(Record, frozen=True, kw_only=True):
    """How the timing blocks are served.

    concurrency: requests in flight at once (local decoders: requests of a batch).
    arrival_rate_per_s: an open loop at this rate for the mixed blocks; None: a closed loop.
    arrivals: evenly spaced, or at random with that rate.
    mixed_requests: requests of each of the two mixed blocks; 0: none. production_batch: top of
    the sweep; 0: no sweep, None: run.batch for a release, else none. profile: None: for a release.
    """

    concurrency: int = 1
    arrival_rate_per_s: float | None = None
    arrivals: Literal["fixed", "poisson"] = "fixed"
    mixed_requests: int = 0
    timeout_s: float | None = None
    production_batch: int | None = None
    sweep_waves: int = 3
    sweep_tokens: int = 16
    profile: bool | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        batch, rate = self.production_batch, self.arrival_rate_per_s
        check_ranges(
            (
                (
                    1 <= self.concurrency <= MOST_CONCURRENCY,
                    f"concurrency = {self.concurrency}; allowed are 1 to {MOST_CONCURRENCY}",
                ),
                (_is_positive(rate), f"arrival_rate_per_s = {rate}; it must be above 0"),
                (
                    self.mixed_requests >= 0,
                    f"mixed_requests = {self.mixed_requests}; it must be at least 0",
                ),
                (
                    rate is None or self.mixed_requests > 0,
                    "arrival_rate_per_s is set and mixed_requests is 0; set mixed_requests too",
                ),
                (
                    rate is not None or self.arrivals == "fixed",
                    "arrivals is set and arrival_rate_per_s is not; set the rate too",
                ),
                (
                    _is_positive(self.timeout_s),
                    f"timeout_s = {self.timeout_s}; it must be above 0",
                ),
                (
                    batch is None or 0 <= batch <= MOST_CONCURRENCY,
                    f"production_batch = {batch}; allowed are 0 (no sweep) to {MOST_CONCURRENCY}",
                ),
                (
                    2 <= self.sweep_waves <= MOST_WAVES,  # noqa: PLR2004 - an interval needs two
                    f"sweep_waves = {self.sweep_waves}; allowed are 2 to {MOST_WAVES}",
                ),
                (self.sweep_tokens >= 1, f"sweep_tokens = {self.sweep_tokens}; at least 1"),
            )
        )


class EconomicsConfig(Record, frozen=True, kw_only=True):
    """What serving costs and earns.

    device_hour_usd: of one device. n_devices: that one replica of the model takes. traffic:
    class -> share, in place of the evalset's. revenue_usd: per request of a class ("default":
    of every other). requests_per_month, monthly_cost_usd: the volume, and what running the
    change costs whatever the volume (people, review, another build).
    """

    device_hour_usd: float | None = None
    n_devices: int = 1
    traffic: dict[str, float] = {}
    revenue_usd: dict[str, float] = {}
    requests_per_month: float | None = None
    monthly_cost_usd: float = 0.0

    def __post_init__(self) -> None:
        """Refuse prices and shares with which no cost could be computed."""
        shares = list(self.traffic.values())
        total = math.fsum(shares)
        check_ranges(
            (
                (
                    _is_positive(self.device_hour_usd),
                    f"device_hour_usd = {self.device_hour_usd}; a price must be above 0",
                ),
                (self.n_devices >= 1, f"n_devices = {self.n_devices}; it must be at least 1"),
                (
                    all(math.isfinite(one) and one >= 0.0 for one in shares),
                    f"traffic = {self.traffic}; every share must be at least 0",
                ),
                (
                    not shares or math.isclose(total, 1.0, abs_tol=1e-6),
                    f"the shares of traffic sum to {total:.6g}; make them sum to 1",
                ),
                (
                    all(math.isfinite(one) and one >= 0.0 for one in self.revenue_usd.values()),
                    f"revenue_usd = {self.revenue_usd}; every revenue must be at least 0",
                ),
                (
                    _is_positive(self.requests_per_month),
                    f"requests_per_month = {self.requests_per_month}; it must be above 0",
                ),
                (
                    math.isfinite(self.monthly_cost_usd) and self.monthly_cost_usd >= 0.0,
                    f"monthly_cost_usd = {self.monthly_cost_usd}; it must be at least 0",
                ),
            )
        )

    @property
    def device_second_usd(self) -> float | None:
        """Price of a second of all devices of a replica; None where no price is known."""
        if self.device_hour_usd is None:
            return None
        return self.device_hour_usd * self.n_devices / HOURS_TO_SECONDS

    def read_revenue(self, name: str) -> float | None:
        """Return what a request of a class earns; None where nobody said."""
        return self.revenue_usd.get(name, self.revenue_usd.get("default"))

"""Lease of this engine by a home machine: at most one works with it at a time."""

import time

from engine.protocol.problems import Refused
from engine.protocol.requests.home import Lease, Leased
from engine.server.services.home_requests import HomeRequests

LEASE_S = 60.0


class HomeLease:
    """The home machine that holds the lease; one that is silent for `LEASE_S` seconds loses it."""

    def __init__(self, home_requests: HomeRequests) -> None:
        self._home_requests = home_requests
        self._holder: Lease | None = None
        self._renewed = 0.0

    @property
    def was_taken(self) -> bool:
        """Whether a home machine has worked with this engine: it tracks the runs itself."""
        return self._holder is not None

    def take(self, asked: Lease) -> Leased:
        """Take or renew the lease. Raises Refused where another home machine holds it."""
        held = self._holder if time.monotonic() - self._renewed < LEASE_S else None
        if held and held.home != asked.home and not asked.take_over:
            raise Refused.of(
                "host.other_home",
                f"This server's engine works for {held.name or 'another machine of yours'} now.",
                "Disconnect it there, or take it over; runs continue either way.",
            )
        if asked.fresh or held is None or held.home != asked.home:
            self._home_requests.hand_out_again()
        self._holder, self._renewed = asked, time.monotonic()
        return Leased(seconds=LEASE_S)

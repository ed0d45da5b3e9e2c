"""Home requests: judge calls that wait until a home machine fetches and executes them."""

import asyncio
import time
import uuid
from typing import Any

from engine.protocol.problems import Refused
from engine.protocol.requests.home import HomeRequest, HomeResponse, Lease, Leased


class HomeRequests:
    """Queue of home requests; unanswered ones are sent again after a reconnect."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[HomeRequest, asyncio.Future[Any]]] = {}
        self._taken: set[str] = set()
        self._news = asyncio.Event()
        self._leaving = False

    def close(self) -> None:
        """End all calls of `waiting` at once, because the engine exits. Open requests are sent
        again when their run is resumed."""
        self._leaving = True
        self._news.set()

    async def ask(self, run_id: str, op: str, fields: dict[str, Any]) -> Any:
        """Send operation `op` with these arguments (`fields`) to the home machine, and return its
        answer. Waits without a timeout. Raises Refused if the home machine refuses it."""
        request = HomeRequest(id=uuid.uuid4().hex, run_id=run_id, op=op, fields=fields)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[request.id] = (request, future)
        self._news.set()
        try:
            return await future
        finally:
            self._open.pop(request.id, None)
            self._taken.discard(request.id)

    async def waiting(self, wait_s: float) -> list[HomeRequest]:
        """Return the requests that no home machine has fetched yet, which then count as fetched.
        Waits up to `wait_s` seconds for one; empty if there is none."""
        if not self._untaken() and not self._leaving:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), wait_s)
            except TimeoutError:
                return []
        untaken = self._untaken()
        self._taken |= {request.id for request in untaken}
        return untaken

    def hand_out_again(self) -> None:
        """Offer all open requests again, because a home machine has connected."""
        self._taken.clear()
        if self._open:
            self._news.set()

    def done(self, request_id: str, response: HomeResponse) -> None:
        """Give the home machine's `response` to the waiting `ask`. Raises Refused if none waits."""
        if request_id not in self._open:
            raise Refused.of("home_request.unknown", "This request has expired.")
        _, future = self._open[request_id]
        if not future.done():
            if response.problem:
                future.set_exception(Refused(response.problem))
            else:
                future.set_result(response.answer)

    def _untaken(self) -> list[HomeRequest]:
        return [one for one, _ in self._open.values() if one.id not in self._taken]


LEASE_S = 60.0


class HomeLease:
    """Lease held by one home machine; lost after `LEASE_S` seconds without renewal."""

    def __init__(self, home_requests: HomeRequests) -> None:
        self._home_requests = home_requests
        self._holder: Lease | None = None
        self._renewed = 0.0

    @property
    def was_taken(self) -> bool:
        """Whether a home machine has used this engine; experiment tracking then happens there."""
        return self._holder is not None

    def take(self, lease: Lease) -> Leased:
        """Lease this engine to a home machine, or renew its lease; returns the duration. Raises
        Refused if another home machine holds a lease, unless `lease.take_over` is set."""
        held = self._holder if time.monotonic() - self._renewed < LEASE_S else None
        if held and held.home != lease.home and not lease.take_over:
            raise Refused.of(
                "host.other_home",
                f"The engine of this server is used by {held.name or 'another machine of yours'} "
                "now.",
                "Disconnect the other machine, or take over on this one. Runs continue either way.",
            )
        if lease.fresh or held is None or held.home != lease.home:
            self._home_requests.hand_out_again()
        self._holder, self._renewed = lease, time.monotonic()
        return Leased(seconds=LEASE_S)

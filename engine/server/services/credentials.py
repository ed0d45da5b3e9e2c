"""API keys in memory: those of providers with the access of each run to them, and those of
clusters."""

from functools import partial
from typing import NamedTuple

from engine.judge.providers.access import Access
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.runs import StartEvaluation, StartRun
from engine.protocol.requests.trust import AddressConfirmation
from engine.server.services.home_requests import HomeRequests


class LentKeys(NamedTuple):
    """API keys and confirmed addresses that a home machine lends to one run."""

    keys: dict[str, str]
    addresses: frozenset[AddressConfirmation]


class Credentials:
    """API keys by provider, lent by studio or command line for the life of the engine, or by a home
    machine for one run."""

    def __init__(self, home_requests: HomeRequests) -> None:
        self.keys: dict[str, str] = {}
        self.cluster_keys: dict[str, str] = {}
        """API keys by cluster; never part of the access of judges."""
        self._home_requests = home_requests
        self._by_run: dict[str, LentKeys] = {}

    def lend_to_run(self, run_id: str, request: StartRun | StartEvaluation) -> None:
        """Keep the API keys and confirmed addresses of a start request for this run until
        `forget_run`."""
        self._by_run[run_id] = LentKeys(
            request.provider_keys, frozenset(request.confirmed_addresses)
        )

    def forget_run(self, run_id: str) -> None:
        self._by_run.pop(run_id, None)

    def access(self, spec: RunSpec) -> Access:
        """Access of a run to providers: with API keys here, or by requests to the home machine."""
        if spec.keys_at_home:
            return Access({}, partial(self._home_requests.ask, spec.id))
        run_keys = self._by_run.get(spec.id, LentKeys({}, frozenset()))
        return Access(self.keys | run_keys.keys, confirmed=run_keys.addresses)

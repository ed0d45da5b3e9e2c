"""Child processes that serve the whole engine; excluded when orphans of a run are killed."""

from collections.abc import Collection, Iterable
from typing import Protocol

from engine.judge.providers.access import living_pids as provider_pids
from engine.judge.providers.fork_server import server_pids as judge_server_pids
from engine.policy.fork_server import server_pids as torch_server_pids
from engine.rollout.rendering.renderer import living_pids as renderer_pids


class HasPids(Protocol):
    """A service with child processes of its own."""

    @property
    def pids(self) -> Iterable[int]: ...


class ChildProcesses:
    """PIDs of the child processes of registered services, renderers, providers, fork servers."""

    def __init__(self) -> None:
        self._services: list[HasPids] = []

    def register(self, *services: HasPids) -> None:
        self._services += services

    def pids(self) -> Collection[int]:
        return [
            *renderer_pids(),
            *provider_pids(),
            *judge_server_pids(),
            *torch_server_pids(),
            *(pid for service in self._services for pid in service.pids),
        ]

"""Calls about the engine itself, and the Python environments of its machine."""

from pydantic import TypeAdapter

from engine.client.transport import Transport, parse
from engine.protocol.records.machine.backends import BackendFacts
from engine.protocol.records.machine.environments import (
    ActOnEnvironment,
    EngineChoice,
    EnvironmentAction,
    EnvironmentList,
    EnvironmentView,
    UseEngine,
)
from engine.protocol.records.machine.hardware import Check
from engine.protocol.requests.runs import EngineInfo


class EngineCalls(Transport):
    """Calls about the engine (version and hardware, keys, shutdown) and its Python environments.
    Environment jobs continue if the client disconnects."""

    async def info(self) -> EngineInfo:
        return await self._ask("GET", "/engine", EngineInfo)

    async def shut_down(self) -> None:
        """Ask the engine to exit; its runs stop, without losing data that was reported as
        stored."""
        await self._send("POST", "/engine/shutdown")

    async def lend_keys(self, keys: dict[str, str]) -> None:
        """Send API keys of judges (provider → key) to the engine, which keeps them in memory
        only."""
        await self._send("POST", "/keys", json={"keys": keys})

    async def lend_tracker_keys(self, keys: dict[str, str]) -> None:
        """Send API keys (tracker → key) to the engine, which keeps them in memory only."""
        await self._send("POST", "/keys", json={"trackers": keys})

    async def doctor(self) -> list[Check]:
        return await self._list("/doctor", Check)

    async def backends(self) -> BackendFacts:
        """Backends for sampling and training that the engine has."""
        return await self._ask("GET", "/backends", BackendFacts)

    async def environments(self) -> EnvironmentList:
        return await self._ask("GET", "/environments", EnvironmentList)

    async def act_on_environment(self, name: str, action: EnvironmentAction) -> EnvironmentList:
        """Start or cancel a job on an environment. Raises Refused if another job is active."""
        body = ActOnEnvironment(action=action)
        return await self._ask("POST", f"/environments/{name}", EnvironmentList, body=body)

    async def packages(self, project: str) -> EnvironmentView | None:
        """Environment with the packages of the agent in folder `project`; None if the agent needs
        none."""
        response = await self._send("GET", "/project/packages", params={"path": project})
        return parse(response, TypeAdapter(EnvironmentView)) if response.content else None

    async def act_on_packages(self, project: str, action: EnvironmentAction) -> EnvironmentView:
        """Start or cancel a job on the packages of a project's agent, like `act_on_environment`."""
        body, params = ActOnEnvironment(action=action), {"path": project}
        return await self._ask("POST", "/project/packages", EnvironmentView, body, params)

    async def use_engine(self, name: str, home: str = "") -> EngineChoice:
        """Choose the engine that is started next: environment `name`, and its folder `home` if
        several have that name. Raises Refused while a run is active."""
        body = UseEngine(name=name, home=home)
        return await self._ask("POST", "/engine/use", EngineChoice, body=body)

"""Calls about environments beside the engine's own, and which engine is started."""

from pydantic import TypeAdapter

from engine.client.transport import Transport, parse
from engine.protocol.records.environments import (
    ActOnEnvironment,
    EngineChoice,
    EnvironmentAction,
    EnvironmentList,
    EnvironmentView,
    UseEngine,
)


class EnvironmentCalls(Transport):
    """Calls about environments; jobs continue without the caller."""

    async def environments(self) -> EnvironmentList:
        return await self._ask("GET", "/environments", EnvironmentList)

    async def act_on_environment(self, name: str, action: EnvironmentAction) -> EnvironmentList:
        """Begin a job, or cancel the one under way. Raises Refused with what stands against it."""
        body = ActOnEnvironment(action=action)
        return await self._ask("POST", f"/environments/{name}", EnvironmentList, body=body)

    async def packages(self, project: str) -> EnvironmentView | None:
        """Packages of a project's agent; None if it needs none."""
        said = await self._send("GET", "/project/packages", params={"path": project})
        return parse(said, TypeAdapter(EnvironmentView)) if said.content else None

    async def act_on_packages(self, project: str, action: EnvironmentAction) -> EnvironmentView:
        """As `act_on_environment`."""
        body, params = ActOnEnvironment(action=action), {"path": project}
        return await self._ask("POST", "/project/packages", EnvironmentView, body, params)

    async def use_engine(self, name: str, home: str = "") -> EngineChoice:
        """Choose the engine that is started next. Raises Refused while a run is active."""
        body = UseEngine(name=name, home=home)
        return await self._ask("POST", "/engine/use", EngineChoice, body=body)

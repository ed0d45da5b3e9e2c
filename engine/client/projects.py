"""Calls about projects: their files, their MCP servers, and drafts that an LLM writes."""

import json
from collections.abc import AsyncGenerator
from typing import Any

from engine.client.transport import Transport
from engine.protocol.config.mcp import ServerViews, SetServer
from engine.protocol.records.choices import Sample
from engine.protocol.records.demonstrations import Demonstrations
from engine.protocol.records.forecast import Forecast
from engine.protocol.records.judging import JudgeOption, RubricView
from engine.protocol.records.runs import ImportedScenarios, ProjectView, RunSummary, Split
from engine.protocol.requests.drafts import (
    BeginEnvironment,
    BeginWithTools,
    DescribeTask,
    DraftTicked,
    EnvironmentData,
    EnvironmentNames,
    FinishProject,
    ReadEnvironment,
)
from engine.protocol.requests.runs import (
    Confirm,
    CreateProject,
    EditProject,
    ImportRun,
    ImportScenarios,
    ProjectFiles,
    SaveRubric,
    ScenarioPage,
    WriteScenarios,
)
from engine.protocol.requests.trust import Confirmation

IMPORTING_S = 3600.0
"""Timeout in seconds: a folder may be large, and its reader may have to be installed first."""
TOOLS_S = 120.0


class ProjectCalls(Transport):
    """Projects of the workspace, and one project's files."""

    async def samples(self) -> list[Sample]:
        return await self._list("/samples", Sample)

    async def projects(self) -> list[ProjectView]:
        return await self._list("/projects", ProjectView)

    async def project(self, path: str) -> ProjectView:
        return await self._ask("GET", "/project", ProjectView, params={"path": path})

    async def confirm(self, confirmation: Confirmation) -> None:
        """Trust a project, or confirm an address or a file, on the engine's machine."""
        body = Confirm(confirmation=confirmation).model_dump(mode="json")
        await self._send("POST", "/confirmations", json=body)

    async def create_project(self, request: CreateProject) -> ProjectView:
        return await self._ask("POST", "/projects", ProjectView, body=request)

    async def edit_project(self, path: str, request: EditProject) -> ProjectView:
        """Edit project.toml of project `path`. Raises Refused with its problems if it would be
        invalid."""
        return await self._ask("PUT", "/project", ProjectView, body=request, params={"path": path})

    async def project_files(self, path: str) -> ProjectFiles:
        return await self._ask("GET", "/project/files", ProjectFiles, params={"path": path})

    async def scenarios(
        self, path: str, split: Split, offset: int = 0, limit: int = 200
    ) -> ScenarioPage:
        params = {"path": path, "split": split, "offset": offset, "limit": limit}
        return await self._ask("GET", "/scenarios", ScenarioPage, params=params)

    async def write_scenarios(
        self, path: str, split: Split, request: WriteScenarios
    ) -> ProjectView:
        params = {"path": path, "split": split}
        return await self._ask("PUT", "/scenarios", ProjectView, body=request, params=params)

    async def import_run(self, path: str, request: ImportRun) -> RunSummary:
        """Import trajectories as a new run of project `path`; nothing is stored if one is invalid.
        May take minutes. Raises Refused with the first error and its line."""
        return await self._ask(
            "POST", "/import", RunSummary, body=request, params={"path": path}, timeout=IMPORTING_S
        )

    async def import_scenarios(self, path: str, request: ImportScenarios) -> ImportedScenarios:
        """Append the beginnings of conversations to a scenario file of project `path`. May take
        minutes. Raises Refused with the first error and its line."""
        return await self._ask(
            "POST",
            "/import/scenarios",
            ImportedScenarios,
            body=request,
            params={"path": path},
            timeout=IMPORTING_S,
        )

    async def forecast(self, path: str, values: dict[str, Any] | None = None) -> Forecast:
        """Forecast memory, disk and time of a run of project `path`; `values` (dotted key → value)
        replace settings."""
        params = {"path": path} | ({"values": json.dumps(values)} if values else {})
        return await self._ask("GET", "/forecast", Forecast, params=params)

    async def demonstrations(self, path: str) -> Demonstrations:
        """Validated demonstrations for an SFT run of the project in folder `path`."""
        params = {"path": path}
        return await self._ask(
            "GET", "/demonstrations", Demonstrations, params=params, timeout=IMPORTING_S
        )

    async def rubric(self, path: str) -> RubricView:
        return await self._ask("GET", "/rubric", RubricView, params={"path": path})

    async def save_rubric(self, path: str, request: SaveRubric) -> RubricView:
        """Save the rubric of project `path`. Raises Refused if no judge could use it."""
        return await self._ask("PUT", "/rubric", RubricView, body=request, params={"path": path})

    async def judges(self) -> list[JudgeOption]:
        """Models that LLM servers on the engine's machine offer, for use as judges."""
        return await self._list("/judges", JudgeOption)

    def write_draft(self, request: DescribeTask) -> AsyncGenerator[DraftTicked, None]:
        """Write a draft from a description; yields progress before and after each LLM call. Closing
        the iterator stops it; stored responses of an earlier call are reused without cost."""
        return self._records("/drafts", request, DraftTicked)

    async def finish_project(self, request: FinishProject) -> ProjectView:
        """Turn a draft into a project. Raises Refused if the draft cannot be trained on."""
        return await self._ask("PUT", "/drafts", ProjectView, request)

    async def begin_with_tools(self, request: BeginWithTools) -> ServerViews:
        """Begin a project with the servers of an mcp.json, without connecting to them. Raises
        Refused if the file names no servers, or the folder contains other files."""
        return await self._ask("POST", "/drafts/tools", ServerViews, request)

    async def environment_names(self) -> EnvironmentNames:
        """Environments of verifiers that are installed, or that the library brings."""
        return await self._ask("GET", "/drafts/environment", EnvironmentNames)

    async def begin_environment(self, request: BeginEnvironment) -> ProjectView:
        """Create the project of an environment of verifiers, without scenarios. Raises Refused if
        the environment is not found, or the folder contains other files."""
        return await self._ask(
            "POST", "/drafts/environment", ProjectView, request, timeout=IMPORTING_S
        )

    async def read_environment(self, request: ReadEnvironment) -> EnvironmentData:
        """Read an environment's data set into the scenarios of its project; may take minutes.
        Raises Refused if packages are missing, or the environment cannot be loaded."""
        return await self._ask(
            "PUT", "/drafts/environment", EnvironmentData, request, timeout=IMPORTING_S
        )

    async def servers(self, project: str) -> ServerViews:
        """MCP servers in mcp.json of project folder `project`, with their last known tools."""
        return await self._ask("GET", "/project/servers", ServerViews, params={"path": project})

    async def set_server(self, project: str, request: SetServer) -> ServerViews:
        """Add, change or remove an MCP server in mcp.json of project folder `project`. Raises
        Refused if the entry is invalid."""
        params = {"path": project}
        return await self._ask("PUT", "/project/servers", ServerViews, request, params)

    async def look_at_servers(self, project: str) -> ServerViews:
        """Connect to each MCP server of project folder `project` and list its tools; one that fails
        is returned with its problem. Raises Refused if packages of the agent are missing."""
        params = {"path": project}
        return await self._ask(
            "POST", "/project/servers", ServerViews, params=params, timeout=TOOLS_S
        )

"""Calls about projects: what is in their folders."""

import json
from typing import Any

from engine.client.transport import Transport
from engine.protocol.records.choices import Sample
from engine.protocol.records.demonstrations import Demonstrations
from engine.protocol.records.judging import JudgeOption, RubricView
from engine.protocol.records.runs import Forecast, ProjectView, RunSummary, Split
from engine.protocol.requests.runs import (
    Confirm,
    CreateProject,
    EditProject,
    ImportRun,
    ProjectFiles,
    SaveRubric,
    ScenarioPage,
    WriteScenarios,
)
from engine.protocol.requests.trust import Confirmation

IMPORTING_S = 3600.0
"""A large folder, and maybe what reads it has to be installed first."""


class ProjectCalls(Transport):
    """Projects of the workspace, and one project's files."""

    async def samples(self) -> list[Sample]:
        return await self._list("/samples", Sample)

    async def projects(self) -> list[ProjectView]:
        """Every project in the workspace."""
        return await self._list("/projects", ProjectView)

    async def project(self, path: str) -> ProjectView:
        return await self._ask("GET", "/project", ProjectView, params={"path": path})

    async def confirm(self, confirmation: Confirmation) -> None:
        """Trust a project, or confirm an address or a file: once, for this machine."""
        body = Confirm(confirmation=confirmation).model_dump(mode="json")
        await self._send("POST", "/confirmations", json=body)

    async def create_project(self, request: CreateProject) -> ProjectView:
        return await self._ask("POST", "/projects", ProjectView, body=request)

    async def edit_project(self, path: str, request: EditProject) -> ProjectView:
        """Raises Refused with the file's problems when the result would not parse."""
        return await self._ask("PUT", "/project", ProjectView, body=request, params={"path": path})

    async def project_files(self, path: str) -> ProjectFiles:
        """Fingerprints of the project's files as they are now."""
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
        """Everything of the source as a run of the project, or nothing. Raises Refused with what is
        wrong, and where. It may take minutes."""
        return await self._ask(
            "POST", "/import", RunSummary, body=request, params={"path": path}, timeout=IMPORTING_S
        )

    async def forecast(self, path: str, values: dict[str, Any] | None = None) -> Forecast:
        """Forecast for the project, optionally with these dotted values."""
        params = {"path": path} | ({"values": json.dumps(values)} if values else {})
        return await self._ask("GET", "/forecast", Forecast, params=params)

    async def demonstrations(self, path: str) -> Demonstrations:
        """Demonstrations of an SFT run of the project, every line read."""
        params = {"path": path}
        return await self._ask(
            "GET", "/demonstrations", Demonstrations, params=params, timeout=IMPORTING_S
        )

    async def rubric(self, path: str) -> RubricView:
        """The project's rubric and its versions."""
        return await self._ask("GET", "/rubric", RubricView, params={"path": path})

    async def save_rubric(self, path: str, request: SaveRubric) -> RubricView:
        """Raises Refused where nobody could judge by it."""
        return await self._ask("PUT", "/rubric", RubricView, body=request, params={"path": path})

    async def judges(self) -> list[JudgeOption]:
        """Judges that servers on the engine's machine offer."""
        return await self._list("/judges", JudgeOption)

"""Routes of projects: their settings, files and scenarios, and imported runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from engine.integrations.importers.storage import import_run
from engine.policy.fork_server import warm_up
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.runs import (
    CreateProject,
    EditProject,
    ImportRun,
    ProjectFiles,
    ScenarioPage,
    WriteScenarios,
)
from engine.server.bodies import (
    Routes,
    body_of,
    json_list,
    json_of,
    number_of,
    path_of,
    project_of,
    text_of,
)
from engine.server.composition import Services
from engine.server.services.fingerprints import check_unchanged, fingerprint
from engine.storage.project import (
    FILE,
    edit_text,
    load_config,
    read_scenarios,
    read_toml,
    scenario_file,
    write_scenarios,
    write_toml,
)
from engine.storage.samples import create_project


class ProjectRoutes:
    def __init__(self, services: Services) -> None:
        self._workspace, self._library = services.workspace, services.library
        self._lifecycle = services.lifecycle

    def routes(self) -> Routes:
        return [
            ("GET", "/projects", self.projects),
            ("POST", "/projects", self.create_project),
            ("GET", "/project", self.project),
            ("PUT", "/project", self.edit_project),
            ("GET", "/project/files", self.project_files),
            ("GET", "/scenarios", self.scenarios),
            ("PUT", "/scenarios", self.write_scenarios),
            ("POST", "/import", self.import_run),
        ]

    async def projects(self, request: Request) -> Response:
        paths = await asyncio.to_thread(self._library.projects)
        views = await asyncio.gather(*(self._view(path, self._library.view) for path in paths))
        return json_list(views)

    async def create_project(self, request: Request) -> Response:
        asked = await body_of(request, CreateProject)
        folder = Path(asked.folder).expanduser()
        folder = folder if folder.is_absolute() else self._workspace / folder
        await asyncio.to_thread(create_project, folder, asked.sample)
        return json_of(await self._view(folder))

    async def project(self, request: Request) -> Response:
        response = json_of(await self._view(project_of(request)))
        response.background = BackgroundTask(warm_up)  # somebody may be about to train
        return response

    async def edit_project(self, request: Request) -> Response:
        asked, path = await body_of(request, EditProject), project_of(request)
        await asyncio.to_thread(check_unchanged, path / FILE, asked.read)
        text = asked.toml if asked.toml is not None else read_toml(path)
        text = edit_text(text, asked.values or {})
        await asyncio.to_thread(write_toml, path, text)
        return json_of(await self._view(path))

    async def project_files(self, request: Request) -> Response:
        files = await asyncio.to_thread(self._library.files, project_of(request))
        return json_of(ProjectFiles(files=files))

    async def scenarios(self, request: Request) -> Response:
        path, split = project_of(request), text_of(request, "split")
        offset, limit = (
            int(number_of(request, name, otherwise))
            for name, otherwise in (("offset", 0), ("limit", 200))
        )
        file = scenario_file(path, load_config(path), split)  # type: ignore[arg-type]
        mark = await asyncio.to_thread(fingerprint, file) if file else ""
        found = (await asyncio.to_thread(read_scenarios, file))[0] if file else []
        items = found[offset : offset + limit]
        return json_of(ScenarioPage(total=len(found), items=items, fingerprint=mark))

    async def write_scenarios(self, request: Request) -> Response:
        asked, path = await body_of(request, WriteScenarios), project_of(request)
        file = scenario_file(path, load_config(path), text_of(request, "split"))  # type: ignore[arg-type]
        if file is None:
            raise ConfigError.of(
                "scenarios.no_file", "This split has no file.", "Set it under [scenarios]."
            )
        await asyncio.to_thread(check_unchanged, file, asked.read)
        await asyncio.to_thread(write_scenarios, file, asked.items)
        return json_of(await self._view(path))

    async def import_run(self, request: Request) -> Response:
        asked, path = await body_of(request, ImportRun), project_of(request)
        folder = await import_run(path, path_of(asked.source), asked.model)
        return json_of(await asyncio.to_thread(self._library.summary, folder))

    async def _view(
        self, path: Path, read: Callable[[Path], ProjectView] | None = None
    ) -> ProjectView:
        """A project with its runs as they are now, which their folders do not say."""
        view = await asyncio.to_thread(read or self._library.open_project, path)
        return view.model_copy(update={"runs": [self._lifecycle.summary(r.id) for r in view.runs]})

"""Routes of projects: settings, files, scenarios, MCP servers, imports, and drafts by an LLM."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from engine.autorl.draft_folder import open_draft
from engine.autorl.project_files import begin_with_tools, finish_project
from engine.autorl.writer import open_writer
from engine.integrations.importers.scenarios import import_scenarios
from engine.integrations.importers.storage import import_run
from engine.integrations.inspect.creation import begin_task, is_task, load_task_data
from engine.integrations.mcp_servers import discover_tools, set_server, views_of
from engine.integrations.packaged_tasks.data_set import load_data
from engine.integrations.verifiers.creation import begin_environment
from engine.integrations.verifiers.installed import environment_names
from engine.policy.fork_server import warm_up
from engine.protocol.config.mcp import SetServer
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.drafts import (
    BeginEnvironment,
    BeginWithTools,
    DescribeTask,
    DraftTicked,
    FinishProject,
    ReadEnvironment,
)
from engine.protocol.requests.runs import (
    CreateProject,
    EditProject,
    ImportRun,
    ImportScenarios,
    ProjectFiles,
    ScenarioPage,
    WriteScenarios,
)
from engine.server.bodies import (
    Routes,
    body_of,
    json_lines,
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
from engine.storage.run_folder.run import read_spec
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
            ("POST", "/import/scenarios", self.import_scenarios),
            ("GET", "/project/servers", self.servers),
            ("PUT", "/project/servers", self.set_server),
            ("POST", "/project/servers", self.find_tools),
        ]

    async def projects(self, request: Request) -> Response:
        paths = await asyncio.to_thread(self._library.projects)
        views = await asyncio.gather(*(self._view(path, self._library.view) for path in paths))
        return json_list(views)

    async def create_project(self, request: Request) -> Response:
        body = await body_of(request, CreateProject)
        folder = Path(body.folder).expanduser()
        folder = folder if folder.is_absolute() else self._workspace / folder
        await asyncio.to_thread(create_project, folder, body.sample)
        return json_of(await self._view(folder))

    async def project(self, request: Request) -> Response:
        response = json_of(await self._view(project_of(request)))
        response.background = BackgroundTask(warm_up)  # somebody may be about to train
        return response

    async def edit_project(self, request: Request) -> Response:
        body, path = await body_of(request, EditProject), project_of(request)
        await asyncio.to_thread(check_unchanged, path / FILE, body.read)
        text = body.toml if body.toml is not None else read_toml(path)
        text = edit_text(text, body.values or {})
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
        body, path = await body_of(request, WriteScenarios), project_of(request)
        file = scenario_file(path, load_config(path), text_of(request, "split"))  # type: ignore[arg-type]
        if file is None:
            raise ConfigError.of(
                "scenarios.no_file", "This split has no file.", "Set it under [scenarios]."
            )
        await asyncio.to_thread(check_unchanged, file, body.read)
        await asyncio.to_thread(write_scenarios, file, body.items)
        return json_of(await self._view(path))

    async def import_run(self, request: Request) -> Response:
        body, path = await body_of(request, ImportRun), project_of(request)
        folder = await import_run(path, path_of(body.source), body.model, body.mask)
        return json_of(await asyncio.to_thread(self._library.summary, folder))

    async def import_scenarios(self, request: Request) -> Response:
        body, path = await body_of(request, ImportScenarios), project_of(request)
        source = path_of(body.source)
        return json_of(
            await asyncio.to_thread(
                import_scenarios, path, source, body.split, body.model, body.mask
            )
        )

    async def servers(self, request: Request) -> Response:
        """Respond with the MCP servers in mcp.json of project `path`; none is contacted."""
        return json_of(await asyncio.to_thread(views_of, project_of(request)))

    async def set_server(self, request: Request) -> Response:
        body = await body_of(request, SetServer)
        await asyncio.to_thread(set_server, project_of(request), body)
        return await self.servers(request)

    async def find_tools(self, request: Request) -> Response:
        """Start or call each MCP server of the project in query parameter `path`, and respond with
        its tools or its problem. Raises Refused if the project is not trusted, ConfigError if
        mcp.json is invalid or the agent's packages are missing."""
        return json_of(await discover_tools(project_of(request)))

    async def _view(
        self, path: Path, read: Callable[[Path], ProjectView] | None = None
    ) -> ProjectView:
        """View of a project, with the current states of active runs."""
        view = await asyncio.to_thread(read or self._library.open_project, path)
        return view.model_copy(update={"runs": [self._lifecycle.summary(r.id) for r in view.runs]})


class DraftRoutes:
    """Routes of projects that an LLM writes: streamed drafts, and files created from them."""

    def __init__(self, services: Services) -> None:
        self._library, self._lifecycle = services.library, services.lifecycle
        self._credentials, self._touch = services.credentials, services.touch

    def routes(self) -> Routes:
        return [
            ("POST", "/drafts", self.write),
            ("PUT", "/drafts", self.finish),
            ("POST", "/drafts/tools", self.begin),
            ("GET", "/drafts/environment", self.environments),
            ("POST", "/drafts/environment", self.begin_environment),
            ("PUT", "/drafts/environment", self.read_environment),
        ]

    async def write(self, request: Request) -> Response:
        """Draft a project from a description (body: `DescribeTask`) by several model calls; streams
        a JSON line before and after each call. Hanging up cancels the rest."""
        body = await body_of(request, DescribeTask)
        folder = await open_draft(body)
        run_id = (await asyncio.to_thread(read_spec, folder)).id
        self._library.remember(run_id, folder)

        async def progress() -> AsyncGenerator[DraftTicked, None]:
            async with self._lifecycle.opened(run_id) as opened:
                access = self._credentials.access(opened.run.spec)
                async with open_writer(body, opened.run, access) as work:
                    async with contextlib.aclosing(work.tell()) as ticks:
                        async for one in ticks:
                            yield one

        return json_lines(progress(), self._touch)

    async def begin(self, request: Request) -> Response:
        """Create an unfinished project whose agent uses MCP tools (body: BeginWithTools), and
        respond with its ServerViews; no server is contacted. Raises ConfigError for an mcp.json
        without servers, or a folder with other files."""
        body = await body_of(request, BeginWithTools)
        folder = path_of(body.folder)
        file = path_of(body.servers) if body.servers else None
        await asyncio.to_thread(begin_with_tools, folder, file)
        return json_of(await asyncio.to_thread(views_of, folder))

    async def finish(self, request: Request) -> Response:
        body = await body_of(request, FinishProject)
        folder = await asyncio.to_thread(finish_project, body)
        return json_of(await asyncio.to_thread(self._library.open_project, folder))

    async def environments(self, request: Request) -> Response:
        """Respond with EnvironmentNames: the environments of verifiers that are installed here."""
        return json_of(await asyncio.to_thread(environment_names))

    async def begin_environment(self, request: Request) -> Response:
        """Create the project of an environment of verifiers or a task of Inspect (body:
        BeginEnvironment), and respond with its view; its packages are downloaded to be read, and
        not run."""
        body = await body_of(request, BeginEnvironment)
        folder = path_of(body.folder)
        begin = begin_task if body.library == "inspect" else begin_environment
        await asyncio.to_thread(begin, folder, body.name, body.arguments)
        return json_of(await asyncio.to_thread(self._library.open_project, folder))

    async def read_environment(self, request: Request) -> Response:
        """Read an environment's data set into its project (body: ReadEnvironment), and respond with
        EnvironmentData. Raises ConfigError until its packages are installed."""
        body = await body_of(request, ReadEnvironment)
        folder = path_of(body.folder)
        load = load_task_data if await asyncio.to_thread(is_task, folder) else load_data
        return json_of(await load(folder, body.scenarios))

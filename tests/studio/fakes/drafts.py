"""Authoring and MCP routes of the fake engine: scripted draft writer, servers by name."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from engine.protocol.config.mcp import McpServer, ServerView, ServerViews, SetServer
from engine.protocol.problems import Problem
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.drafts import (
    DRAFT_MARK,
    BeginEnvironment,
    BeginWithTools,
    DescribeTask,
    Draft,
    DraftScenario,
    DraftTicked,
    EnvironmentData,
    EnvironmentNames,
    FinishProject,
    ReadEnvironment,
    ToolView,
)
from tests.studio.fakes.projects import FakeProjects, refusal

AT_ONCE, QUESTION_USD = 12, 0.0123
SYSTEM = (
    "You answer customers of a bicycle shop. Answer in at most three sentences, say what to do "
    "next, and never promise a date."
)
RUBRIC = (
    "- says what to do next\n- at most three sentences\n- promises no date\n- polite, not "
    "servile\n- answers what was asked, and nothing else\n"
)
ASKS = (
    "My chain slips when I stand up on a climb. Is that the cassette, and what would it cost?",
    "Do you have a child seat that fits a 26 inch frame with a rear rack?",
    "I was promised my wheel on Tuesday. It is Thursday. What is going on?",
    "Can I bring the old battery back, and do I get anything for it?",
    "The brake lever goes to the bar since the rain. Can I ride it home?",
    "Which tyre do you suggest for gravel and a daily commute of 18 km, mostly wet?",
    "I want my money back for the helmet, it was worn once, the buckle is cracked.",
)
LIBRARY = [
    ToolView(server="library", name="find_book", description="The shelf on which a book stands."),
    ToolView(server="library", name="lend_book", description="Lend a book to a reader."),
    ToolView(server="library", name="give_back", description="Take a book back."),
    ToolView(
        server="library",
        name="opening_hours",
        description="When the library is open, by the day of the week; on holidays it says so, and "
        "names the next day on which it is open again.",
    ),
]
GONE = Problem(
    code="mcp.unusable",
    message="no-such-program cannot be started: there is no such program.",
    hint="Check the server's command or URL; start the server in a terminal to see its output.",
)
NOT_FOUND = Problem(
    code="task.not_found",
    message="The package missing cannot be downloaded: No matching distribution found for missing.",
    hint="Check the name and the network; a package without a wheel can be named as a folder.",
)
HELD_OUT = "The task has no data set for evaluation; every fifth row validates."


class FakeAuthoring:
    """Authoring routes.

    `problem` ends the writing after `stop_after` scenarios, servers in `gone` fail.
    """

    def __init__(self, project_store: FakeProjects) -> None:
        self._project_store = project_store
        self.asked: list[DescribeTask] = []
        self.finished: list[FinishProject] = []
        self.begun: list[BeginWithTools] = []
        self.paid: dict[str, int] = {}
        """Number of scenarios already paid for, by folder."""
        self.problem: Problem | None = None
        self.stop_after = 0
        self.delay_s = 0.0
        self.gone: set[str] = {"gone"}
        self.servers: dict[str, dict[str, McpServer]] = {}
        self.looks = 0
        self.environments: list[BeginEnvironment | ReadEnvironment] = []
        self.not_loaded: Problem | None = None
        """Why an environment's data set cannot be read."""

    def routes(self) -> list[tuple[Any, ...]]:
        handlers: list[tuple[str, Callable[..., Any], str]] = [
            ("/drafts", self._draft, "POST"),
            ("/drafts", self._finish, "PUT"),
            ("/drafts/tools", self._begin, "POST"),
            ("/drafts/environment", self._names, "GET"),
            ("/drafts/environment", self._begin_environment, "POST"),
            ("/drafts/environment", self._read_environment, "PUT"),
            ("/project/servers", self._view, "GET"),
            ("/project/servers", self._set, "PUT"),
            ("/project/servers", self._look, "POST"),
        ]
        return list(handlers)

    async def _draft(self, request: Request) -> Response:
        body = DescribeTask.model_validate(await request.json())
        self.asked.append(body)
        self._begin_project(body.folder, body.description)

        async def lines() -> AsyncIterator[bytes]:
            async for tick in self._tell(body):
                yield tick.model_dump_json().encode() + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _tell(self, body: DescribeTask) -> AsyncIterator[DraftTicked]:
        draft, spent = Draft(), 0.0
        while True:
            have = len(draft.scenarios)
            words = f"Writing scenarios {have + 1} to {min(body.count, have + AT_ONCE)}"
            if not draft.system:
                words = "Writing the system prompt and the rubric"
            left_out = {"too similar to another": 3, "not valid JSON": 1} if have > AT_ONCE else {}
            values: dict[str, Any] = {"spent_usd": spent, "draft": draft, "left_out": left_out}
            if draft.system and self.problem and have >= self.stop_after:
                yield DraftTicked(words="Written", problem=self.problem, ended=True, **values)
                return
            if have >= body.count:
                yield DraftTicked(words="Written", ended=True, **values)
                return
            yield DraftTicked(words=words, next_usd=0.0841, **values)
            if have >= self.paid.get(body.folder, 0):
                await asyncio.sleep(self.delay_s)
                spent += QUESTION_USD
            draft = self._more(draft, body)
            paid = self.paid.get(body.folder, 0)
            self.paid[body.folder] = max(paid, len(draft.scenarios))

    def _more(self, draft: Draft, body: DescribeTask) -> Draft:
        if not draft.system:
            return Draft(title="Bicycle shop answers", system=SYSTEM, rubric=RUBRIC)
        have = len(draft.scenarios)
        fresh = [
            DraftScenario(
                input=f"{ASKS[place % len(ASKS)]} (Order {4100 + place * 7})",
                difficulty=1 + place % 5,
                split="validation" if place % 5 == 4 else "train",
            )
            for place in range(have, min(body.count, have + AT_ONCE))
        ]
        return draft.model_copy(update={"scenarios": [*draft.scenarios, *fresh]})

    async def _finish(self, request: Request) -> ProjectView:
        body = FinishProject.model_validate(await request.json())
        self.finished.append(body)
        self._project_store.projects.pop(body.folder, None)
        return self._project_store.add(Path(body.folder).name, description=body.description)

    def _begin_project(self, folder: str, description: str) -> None:
        if folder not in self._project_store.projects:
            name = Path(folder).name
            self._project_store.add(name, toml=DRAFT_MARK, description=description)

    async def _begin(self, request: Request) -> Any:
        body = BeginWithTools.model_validate(await request.json())
        self.begun.append(body)
        if body.servers.endswith("bad.json"):
            return refusal(422, "mcp.none", "The file has no MCP servers.")
        self._begin_project(body.folder, "")
        if body.servers:
            self.add_server(body.folder)
        return self._views(body.folder)

    def add_server(self, folder: str, name: str = "library") -> None:
        server = McpServer(command="python", args=("servers/library_server.py",))
        self.servers.setdefault(folder, {})[name] = server

    def _views(self, folder: str, listed: bool = False) -> ServerViews:
        views = [
            ServerView(
                name=name,
                server=server,
                is_listed=listed,
                tools=LIBRARY if listed and name not in self.gone else [],
                problem=GONE if listed and name in self.gone else None,
            )
            for name, server in self.servers.get(folder, {}).items()
        ]
        return ServerViews(servers=views, read=folder in self.servers or bool(self.begun))

    async def _view(self, request: Request) -> ServerViews:
        return self._views(request.query_params["path"])

    async def _set(self, request: Request) -> Any:
        folder = request.query_params["path"]
        body = SetServer.model_validate(await request.json())
        servers = self.servers.setdefault(folder, {})
        if body.server is None:
            servers.pop(body.name, None)
        else:
            servers[body.name] = McpServer.model_validate(body.server)
        return self._views(folder)

    async def _look(self, request: Request) -> Any:
        self.looks += 1
        if self.problem is not None:
            return JSONResponse(self.problem.model_dump(), 409)
        return self._views(request.query_params["path"], listed=True)

    async def _names(self, request: Request) -> EnvironmentNames:
        return EnvironmentNames(names=["openenv", "sophistry-bench-sprint", "textarena"])

    async def _begin_environment(self, request: Request) -> Any:
        body = BeginEnvironment.model_validate(await request.json())
        self.environments.append(body)
        if body.name == "missing":
            return JSONResponse(NOT_FOUND.model_dump(), 422)
        view = self._project_store.add(Path(body.folder).name)
        assert view.config is not None
        agent = view.config.agent.model_copy(update={"requirements": "requirements.txt"})
        config = view.config.model_copy(update={"agent": agent})
        self._project_store.projects[view.path] = view.model_copy(update={"config": config})
        return self._project_store.projects[view.path]

    async def _read_environment(self, request: Request) -> Any:
        body = ReadEnvironment.model_validate(await request.json())
        self.environments.append(body)
        if self.not_loaded is not None:
            return JSONResponse(self.not_loaded.model_dump(), 409)
        return EnvironmentData(train=32, validation=8, sandboxed=True, notes=[HELD_OUT])

"""Projects in words, and MCP servers, of the fake engine: a writer by a script, servers by name."""

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
    BeginWithTools,
    DescribeTask,
    Draft,
    DraftScenario,
    DraftTicked,
    FinishProject,
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
    hint="Check the server's command or URL; start it by hand to see its output.",
)


class FakeAuthoring:
    """`problem` ends the writing after `stop_after` scenarios; `gone` are servers that fail."""

    def __init__(self, homes: FakeProjects) -> None:
        self._homes = homes
        self.asked: list[DescribeTask] = []
        self.finished: list[FinishProject] = []
        self.begun: list[BeginWithTools] = []
        self.paid: dict[str, int] = {}
        """Scenarios that are paid for, by folder."""
        self.problem: Problem | None = None
        self.stop_after = 0
        self.delay_s = 0.0
        self.gone: set[str] = {"gone"}
        self.servers: dict[str, dict[str, McpServer]] = {}
        self.looks = 0

    def routes(self) -> list[tuple[Any, ...]]:
        handlers: list[tuple[str, Callable[..., Any], str]] = [
            ("/drafts", self._draft, "POST"),
            ("/drafts", self._finish, "PUT"),
            ("/drafts/tools", self._begin, "POST"),
            ("/project/servers", self._view, "GET"),
            ("/project/servers", self._set, "PUT"),
            ("/project/servers", self._look, "POST"),
        ]
        return list(handlers)

    async def _draft(self, request: Request) -> Response:
        asked = DescribeTask.model_validate(await request.json())
        self.asked.append(asked)
        self._begin_project(asked.folder, asked.description)

        async def lines() -> AsyncIterator[bytes]:
            async for told in self._tell(asked):
                yield told.model_dump_json().encode() + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _tell(self, asked: DescribeTask) -> AsyncIterator[DraftTicked]:
        draft, spent = Draft(), 0.0
        while True:
            have = len(draft.scenarios)
            words = f"Writing scenarios {have + 1} to {min(asked.count, have + AT_ONCE)}"
            if not draft.system:
                words = "Writing the system prompt and the rubric"
            left_out = {"too similar to another": 3, "not valid JSON": 1} if have > AT_ONCE else {}
            values: dict[str, Any] = {"spent_usd": spent, "draft": draft, "left_out": left_out}
            if draft.system and self.problem and have >= self.stop_after:
                yield DraftTicked(words="Written", problem=self.problem, ended=True, **values)
                return
            if have >= asked.count:
                yield DraftTicked(words="Written", ended=True, **values)
                return
            yield DraftTicked(words=words, next_usd=0.0841, **values)
            if have >= self.paid.get(asked.folder, 0):
                await asyncio.sleep(self.delay_s)
                spent += QUESTION_USD
            draft = self._more(draft, asked)
            known = self.paid.get(asked.folder, 0)
            self.paid[asked.folder] = max(known, len(draft.scenarios))

    def _more(self, draft: Draft, asked: DescribeTask) -> Draft:
        if not draft.system:
            return Draft(title="Bicycle shop answers", system=SYSTEM, rubric=RUBRIC)
        have = len(draft.scenarios)
        fresh = [
            DraftScenario(
                input=f"{ASKS[place % len(ASKS)]} (Order {4100 + place * 7})",
                difficulty=1 + place % 5,
                split="validation" if place % 5 == 4 else "train",
            )
            for place in range(have, min(asked.count, have + AT_ONCE))
        ]
        return draft.model_copy(update={"scenarios": [*draft.scenarios, *fresh]})

    async def _finish(self, request: Request) -> ProjectView:
        asked = FinishProject.model_validate(await request.json())
        self.finished.append(asked)
        self._homes.projects.pop(asked.folder, None)
        return self._homes.add(Path(asked.folder).name, description=asked.description)

    def _begin_project(self, folder: str, description: str) -> None:
        if folder not in self._homes.projects:
            name = Path(folder).name
            self._homes.add(name, toml=DRAFT_MARK, description=description)

    async def _begin(self, request: Request) -> Any:
        asked = BeginWithTools.model_validate(await request.json())
        self.begun.append(asked)
        if asked.servers.endswith("bad.json"):
            return refusal(422, "mcp.none", "The file has no MCP servers.")
        self._begin_project(asked.folder, "")
        if asked.servers:
            self.add_server(asked.folder)
        return self._views(asked.folder)

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
        asked = SetServer.model_validate(await request.json())
        known = self.servers.setdefault(folder, {})
        if asked.server is None:
            known.pop(asked.name, None)
        else:
            known[asked.name] = McpServer.model_validate(asked.server)
        return self._views(folder)

    async def _look(self, request: Request) -> Any:
        self.looks += 1
        if self.problem is not None:
            return JSONResponse(self.problem.model_dump(), 409)
        return self._views(request.query_params["path"], listed=True)

"""Tools of the MCP server (Model Context Protocol), by the official SDK over stdin and stdout."""

import asyncio
import difflib
import functools
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from engine.client import EngineClient
from engine.integrations.mcp_server.limits import Limits, check_keys
from engine.protocol.events.run import DiagnosisChanged, StepFinished
from engine.protocol.problems import AtelierError, Problem, Refused
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.runs import (
    Command,
    EditProject,
    SaveRubric,
    StartRun,
    TrajectoryQuery,
)
from engine.storage.project import edit_text

READS = ToolAnnotations(read_only_hint=True)
STARTS = ToolAnnotations(read_only_hint=False, destructive_hint=False)
MOST_CHARS = 20_000
"""Characters of one message of a trajectory, and of its output."""
LONGEST_WAIT_S = 600.0
P = ParamSpec("P")
R = TypeVar("R")
Values = Annotated[dict[str, Any], Field(description="settings by dotted key, such as train.lr")]


class Tools:
    """Tools of one server, for one coding agent."""

    def __init__(self, client: EngineClient, limits: Limits) -> None:
        self._client, self._limits = client, limits
        self._starting = asyncio.Lock()

    def server(self) -> MCPServer:
        """MCP server with all tools."""
        server = MCPServer(
            "atelier",
            log_level="WARNING",
            instructions="Atelier trains LLM agents by reinforcement learning. Read projects, "
            f"runs, metrics, trajectories and diagnoses. {self._limits.words()}",
        )
        for read in (
            self.list_projects, self.list_runs, self.get_run, self.wait_for_run, self.get_metrics,
            self.list_trajectories, self.get_trajectory, self.get_project, self.propose_settings,
            self.propose_rubric,
        ):  # fmt: skip
            server.tool(annotations=READS)(with_clear_errors(read))
        for write in (
            self.start_baseline, self.start_run, self.stop_run, self.set_settings, self.set_rubric,
        ):  # fmt: skip
            server.tool(annotations=STARTS)(with_clear_errors(write))
        return server

    async def list_projects(self) -> list[dict[str, Any]]:
        """Projects of the workspace: name, path, number of runs, problems."""
        return [
            {
                "name": one.name,
                "path": one.path,
                "description": one.description,
                "runs": len(one.runs),
                "trusted": one.trusted,
                "problems": [str(problem) for problem in one.problems],
            }
            for one in await self._client.projects()
        ]

    async def list_runs(self, project: str, limit: int = 20) -> list[dict[str, Any]]:
        """Runs of a project (path), newest first, with state, steps, reward and cost."""
        return [brief(one) for one in (await self._client.runs(project))[: max(1, limit)]]

    async def get_run(self, run: str) -> dict[str, Any]:
        """State of a run (id): rewards by step, baseline, validation, cost, diagnoses in plain
        words with suggestions, problem."""
        summary = await self._client.run(run)
        found: list[dict[str, str]] = []
        async with aclosing(self._client.events(run)) as events:
            if summary.seq:
                async for event in events:
                    if isinstance(event, DiagnosisChanged):
                        found = [
                            {"title": f.title, "words": f.words, "suggestion": f.suggestion}
                            for f in event.findings
                        ]
                    if (event.seq or 0) >= summary.seq:
                        break
        return brief(summary) | {
            "rewards": summary.rewards[-200:],
            "baseline": _interval(summary.baseline),
            "validation": _interval(summary.validation),
            "best": _interval(summary.best),
            "best_step": summary.best_step,
            "win_rate": _interval(summary.win_rate),
            "trajectories": summary.trajectories,
            "unscored": summary.unscored,
            "diagnoses": found,
            "settings": summary.settings,
        }

    async def wait_for_run(self, run: str, seconds: float = 60.0) -> dict[str, Any]:
        """Wait until a run (id) is inactive, for at most this many seconds (up to 600), and return
        it like get_run."""
        end = time.monotonic() + min(max(0.0, seconds), LONGEST_WAIT_S)
        while time.monotonic() < end:
            if (await self._client.run(run)).state not in ACTIVE_STATES | {"queued"}:
                break
            await asyncio.sleep(0.5)
        return await self.get_run(run)

    async def get_metrics(
        self, run: str, names: list[str] | None = None, last: int = 50
    ) -> dict[str, Any]:
        """Metrics of a run (id) by step: those with these names, or beginning with one of them and
        a slash; all without names. The last steps only."""
        summary, rows = await self._client.run(run), []
        async with aclosing(self._client.events(run)) as events:
            if summary.seq:
                async for event in events:
                    if isinstance(event, StepFinished):
                        wanted = {
                            name: value
                            for name, value in event.metrics.items()
                            if not names
                            or any(name == n or name.startswith(f"{n}/") for n in names)
                        }
                        rows.append({"step": event.step, **wanted})
                    if (event.seq or 0) >= summary.seq:
                        break
        return {"steps": rows[-max(1, last) :]}

    async def list_trajectories(
        self,
        run: str,
        split: Literal["train", "validation"] | None = None,
        step: int | None = None,
        filter: str = "",
        sort: Literal["recent", "reward", "tokens"] = "recent",
        limit: int = 20,
    ) -> dict[str, Any]:
        """Trajectories of a run (id): id, step, scenario, reward, problem. `filter` is an
        expression as on the trajectories page, such as `reward < 0.5 and tokens > 100`."""
        query = TrajectoryQuery(
            split=split, step=step, filter=filter, sort=sort, limit=min(max(1, limit), 200)
        )
        page = await self._client.trajectories(run, query)
        return {"total": page.total, "trajectories": [row.model_dump() for row in page.items]}

    async def get_trajectory(self, run: str, trajectory: str) -> dict[str, Any]:
        """Trajectory of a run: messages, reward parts, verdicts, output, problem. Long texts
        are cut."""
        found = await self._client.trajectory(run, trajectory)
        value = found.model_dump(mode="json", exclude={"branches"}, exclude_none=True)
        return _cut(value)  # type: ignore[no-any-return]

    async def get_project(self, project: str) -> dict[str, Any]:
        """Settings (project.toml), rubric and scenario counts of a project (path)."""
        view, rubric = await self._client.project(project), await self._client.rubric(project)
        return {
            "toml": view.toml,
            "rubric": rubric.source,
            "scenarios": {one.split: one.count for one in view.splits},
            "problems": [str(problem) for problem in view.problems],
        }

    async def propose_settings(self, project: str, values: Values) -> dict[str, Any]:
        """Check new settings of a project (path) without changing it: the change of project.toml as
        a diff, and a forecast of memory and time. Show the diff to the person."""
        view = await self._client.project(project)
        forecast = await self._client.forecast(project, values)
        return {
            "diff": _diff(view.toml, edit_text(view.toml, values), "project.toml"),
            "forecast": forecast.model_dump(mode="json", exclude_none=True),
        }

    async def propose_rubric(self, project: str, rubric: str) -> dict[str, Any]:
        """The change of a project's rubric (rubric.md) as a diff, without changing it. Show the
        diff to the person."""
        view = await self._client.rubric(project)
        return {"diff": _diff(view.source, rubric, "rubric.md")}

    async def start_baseline(self, project: str) -> dict[str, Any]:
        """Measure the untrained model on the training scenarios of a project (path). Counts as one
        of the allowed runs."""
        return await self._start(project, "baseline", 0, {})

    async def start_run(self, project: str, steps: int, values: Values) -> dict[str, Any]:
        """Start a training run of a project (path) with this number of steps and these settings
        (train.…, reward.…, model.rank, model.alpha). Counts against the allowed runs and steps."""
        if steps < 1:
            raise Refused.of("mcp.steps", "A run needs at least 1 step.")
        return await self._start(project, "train", steps, values)

    async def stop_run(self, run: str) -> dict[str, Any]:
        """Stop a run (id) that this server has started, after its current step."""
        self._limits.require_run(run)
        return brief(await self._client.command(run, Command(action="stop_after_step")))

    async def set_settings(self, project: str, values: Values) -> dict[str, Any]:
        """Change settings of a project (path): train.…, reward.…, evaluate.attempts, model.rank,
        model.alpha. Needs the person's permission."""
        self._limits.require_edit()
        check_keys({key: value for key, value in values.items() if key != "train.steps"})
        before = await self._client.project(project)
        view = await self._client.edit_project(project, EditProject(values=values))
        return {"diff": _diff(before.toml, view.toml, "project.toml")}

    async def set_rubric(self, project: str, rubric: str) -> dict[str, Any]:
        """Replace a project's rubric; earlier versions are kept. Needs the person's permission."""
        self._limits.require_edit()
        before = await self._client.rubric(project)
        request = SaveRubric(source=rubric, who="coding agent", read=before.fingerprint)
        view = await self._client.save_rubric(project, request)
        return {"diff": _diff(before.source, view.source, "rubric.md"), "version": view.version}

    async def _start(
        self, project: str, kind: Literal["train", "baseline"], steps: int, values: dict[str, Any]
    ) -> dict[str, Any]:
        view = await self._client.project(project)
        if view.config is None:
            raise Refused(view.problems[0] if view.problems else _unreadable(project))
        async with self._starting:  # two calls at once cannot use the same rest of the limits
            runs = await self._client.runs()
            overrides = self._limits.overrides(view.config, steps, values, runs)
            request = StartRun(
                project=view.path,
                kind=kind,
                overrides=overrides,
                key=os.urandom(8).hex(),
                queue=True,
            )
            summary = await self._client.start_run(request)
            self._limits.started[summary.id] = steps
        return brief(summary)


def with_clear_errors(tool: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Tool whose errors are one clear text for the coding agent."""

    @functools.wraps(tool)
    async def call(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return await tool(*arguments, **named)
        except AtelierError as error:
            raise ToolError(str(error)) from error

    return call


def brief(run: RunSummary) -> dict[str, Any]:
    """State of a run in a few fields."""
    return {
        "id": run.id,
        "name": run.name,
        "kind": run.kind,
        "state": run.state,
        "step": run.step,
        "steps": run.steps,
        "reward": run.rewards[-1] if run.rewards else None,
        "usd": run.usd,
        "path": run.path,
        "problem": str(run.problem) if run.problem else None,
    }


def _interval(value: Any) -> dict[str, Any] | None:
    return None if value is None else value.model_dump()  # type: ignore[no-any-return]


def _unreadable(project: str) -> Problem:
    return Problem(code="mcp.no_project", message=f"{project} is no readable project.")


def _diff(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), name, name
    )
    return "".join(lines)


def _cut(value: Any) -> Any:
    """Copy of a JSON value whose texts are at most `MOST_CHARS` long."""
    if isinstance(value, str) and len(value) > MOST_CHARS:
        return f"{value[:MOST_CHARS]} … ({len(value) - MOST_CHARS:,} more characters)"
    if isinstance(value, dict):
        return {key: _cut(one) for key, one in value.items()}
    return [_cut(one) for one in value] if isinstance(value, list) else value

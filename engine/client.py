"""Typed calls to a living engine, and its event stream. Studio and CLI use nothing else.

Raises `Refused` (the engine's own problem) for anything it declines, and `LaunchError` with code
`engine.unreachable` when nobody answers.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import Annotated, Any, TypeVar

import httpx
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from engine.protocol.arena import ArenaTold, AskArena, Tally
from engine.protocol.comparison import EvaluationResult
from engine.protocol.events import Event, UnknownEvent, decode
from engine.protocol.exports import ExportCheckpoint, ExportReport, ExportTicked
from engine.protocol.judging import (
    Call,
    Disagreement,
    JudgeOption,
    RubricView,
    Suggestion,
    TrialPrice,
    Tried,
)
from engine.protocol.labels import Agreement, Label, Labelled, LabelPreview
from engine.protocol.problems import LaunchError, Problem, Refused
from engine.protocol.records import (
    Check,
    Forecast,
    KeptCheckpoint,
    ModelInfo,
    ProjectView,
    RunSummary,
    Sample,
    Split,
    Trajectory,
)
from engine.protocol.requests import (
    Command,
    CreateProject,
    EditProject,
    EngineInfo,
    GroupPage,
    ImportRun,
    PinCheckpoint,
    SaveRubric,
    ScenarioPage,
    Siblings,
    StartEvaluation,
    StartRun,
    TrajectoryPage,
    TrajectoryQuery,
    TryJudge,
    WriteScenarios,
)

T = TypeVar("T", bound=BaseModel)

_EXPORT: TypeAdapter[ExportTicked | ExportReport] = TypeAdapter(
    Annotated[ExportTicked | ExportReport, Field(discriminator="kind")]
)

STARTING_S = 300.0
"""The judge's environment may have to be installed first."""
IMPORTING_S = 3600.0
"""A large folder, and maybe what reads it has to be installed first."""
SILENCE_S = 20.0
"""The stream carries a comment every 5 s: this long without a byte, the engine is gone."""


class EngineClient:
    """One engine, one token. Use as an async context manager, inside one event loop."""

    def __init__(self, port: int, token: str, timeout_s: float = 30.0) -> None:
        self.port = port
        self._http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(timeout_s, connect=5.0),
            trust_env=False,  # a proxy must never see loopback traffic
        )

    async def __aenter__(self) -> "EngineClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # The engine itself

    async def info(self) -> EngineInfo:
        return await self._ask("GET", "/engine", EngineInfo)

    async def shut_down(self) -> None:
        """Ask the engine to stop its runs after what is acknowledged, and exit."""
        await self._send("POST", "/engine/shutdown")

    async def lend_keys(self, keys: dict[str, str]) -> None:
        """API keys of judges by provider; the engine keeps them in memory only."""
        body = json.dumps({"keys": keys}).encode()
        await self._send("POST", "/keys", content=body)

    async def doctor(self) -> list[Check]:
        return await self._list("/doctor", Check)

    async def models(self) -> list[ModelInfo]:
        return await self._list("/models", ModelInfo)

    # Projects

    async def samples(self) -> list[Sample]:
        return await self._list("/samples", Sample)

    async def projects(self) -> list[ProjectView]:
        """Every project in the workspace."""
        return await self._list("/projects", ProjectView)

    async def project(self, path: str) -> ProjectView:
        return await self._ask("GET", "/project", ProjectView, params={"path": path})

    async def create_project(self, request: CreateProject) -> ProjectView:
        return await self._ask("POST", "/projects", ProjectView, body=request)

    async def edit_project(self, path: str, request: EditProject) -> ProjectView:
        """Raises Refused with the file's problems when the result would not parse."""
        return await self._ask("PUT", "/project", ProjectView, body=request, params={"path": path})

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
        """Of the project, or of what it would be with these dotted values."""
        params = {"path": path} | ({"values": json.dumps(values)} if values else {})
        return await self._ask("GET", "/forecast", Forecast, params=params)

    async def rubric(self, path: str) -> RubricView:
        """The project's rubric and its versions."""
        return await self._ask("GET", "/rubric", RubricView, params={"path": path})

    async def save_rubric(self, path: str, request: SaveRubric) -> RubricView:
        """Raises Refused where nobody could judge by it."""
        return await self._ask("PUT", "/rubric", RubricView, body=request, params={"path": path})

    async def judges(self) -> list[JudgeOption]:
        """Judges that servers on the engine's machine offer."""
        return await self._list("/judges", JudgeOption)

    # Runs

    async def runs(self, project: str | None = None) -> list[RunSummary]:
        """Newest first; of one project folder, or of all that the engine knows."""
        return await self._list(
            "/runs", RunSummary, params={"project": project} if project else None
        )

    async def start_run(self, request: StartRun) -> RunSummary:
        """A branch copies what its parent has stored: that may take minutes."""
        return await self._ask("POST", "/runs", RunSummary, body=request, timeout=STARTING_S)

    async def start_evaluation(self, request: StartEvaluation) -> RunSummary:
        """Compare models; it goes on as a run does."""
        return await self._ask("POST", "/evaluations", RunSummary, body=request)

    async def evaluation(self, run_id: str) -> EvaluationResult:
        """What has come out of an evaluation by now."""
        return await self._ask("GET", f"/runs/{run_id}/evaluation", EvaluationResult)

    async def run(self, run_id: str) -> RunSummary:
        return await self._ask("GET", f"/runs/{run_id}", RunSummary)

    async def command(self, run_id: str, command: Command) -> RunSummary:
        return await self._ask("POST", f"/runs/{run_id}/command", RunSummary, body=command)

    async def checkpoints(self, run_id: str) -> list[KeptCheckpoint]:
        """What is kept and why, oldest first."""
        return await self._list(f"/runs/{run_id}/checkpoints", KeptCheckpoint)

    async def pin_checkpoint(self, run_id: str, step: int, wish: PinCheckpoint) -> None:
        path = f"/runs/{run_id}/checkpoints/{step}/pin"
        await self._send("POST", path, content=wish.model_dump_json().encode())

    async def delete_checkpoint(self, run_id: str, step: int) -> None:
        """Raises Refused for the newest, which the run goes on from."""
        await self._send("DELETE", f"/runs/{run_id}/checkpoints/{step}")

    async def trajectories(self, run_id: str, query: TrajectoryQuery) -> TrajectoryPage:
        return await self._ask("POST", f"/runs/{run_id}/trajectories", TrajectoryPage, body=query)

    async def trajectory(self, run_id: str, trajectory_id: str) -> Trajectory:
        return await self._ask("GET", f"/runs/{run_id}/trajectories/{trajectory_id}", Trajectory)

    async def groups(self, run_id: str, query: TrajectoryQuery) -> GroupPage:
        """Groups that hold a match of the query's filters, newest first."""
        return await self._ask("POST", f"/runs/{run_id}/groups", GroupPage, body=query)

    async def siblings(self, run_id: str, split: Split, step: int, group: int) -> Siblings:
        return await self._ask("GET", f"/runs/{run_id}/groups/{split}/{step}/{group}", Siblings)

    async def call(self, run_id: str, key: str) -> Call:
        """One question to a judge and its answer, word for word."""
        return await self._ask("GET", f"/runs/{run_id}/calls/{key}", Call)

    async def agreement(self, run_id: str) -> list[Agreement]:
        """One row per judge and rubric, the newest first."""
        return await self._list(f"/runs/{run_id}/agreement", Agreement)

    async def disagreements(self, run_id: str, judge: str, rubric: str) -> list[Disagreement]:
        """Pairs that a judge puts the other way round than the person, the widest first."""
        params = {"judge": judge, "rubric": rubric}
        return await self._list(f"/runs/{run_id}/disagreements", Disagreement, params=params)

    async def price_trial(self, run_id: str, request: TryJudge) -> TrialPrice:
        """What it would ask and cost; nothing is asked. Starts the judge process."""
        path, timeout = f"/runs/{run_id}/judge/price", STARTING_S
        return await self._ask("POST", path, TrialPrice, body=request, timeout=timeout)

    async def try_judge(self, run_id: str, request: TryJudge) -> AsyncIterator[Tried]:
        """Group by group as they are judged; leaving the loop cancels the rest."""
        async with aclosing(self._told(f"/runs/{run_id}/judge", request, Tried)) as told:
            async for one in told:
                yield one

    async def suggest_rubric(self, run_id: str, request: TryJudge) -> Suggestion:
        """What the judge would write instead, after its disagreements with the person."""
        path, timeout = f"/runs/{run_id}/judge/suggest", STARTING_S
        return await self._ask("POST", path, Suggestion, body=request, timeout=timeout)

    async def export(
        self, run_id: str, step: int | None, request: ExportCheckpoint
    ) -> AsyncGenerator[ExportTicked | ExportReport, None]:
        """Signs of progress, then the report; None is the newest whole checkpoint. Leaving the loop
        cancels it, and nothing is left behind. Raises Refused with what is wrong."""
        path = f"/runs/{run_id}/checkpoints/{step or 0}/export"
        async with aclosing(self._told(path, request, _EXPORT)) as told:
            async for one in told:
                yield one

    async def labels(self, run_id: str) -> list[Label]:
        """Oldest first, with those that were undone."""
        return await self._list(f"/runs/{run_id}/labels", Label)

    async def preview_label(self, run_id: str, label: Label) -> LabelPreview:
        """What it would do; stores nothing."""
        path = f"/runs/{run_id}/labels/preview"
        return await self._ask("POST", path, LabelPreview, body=label)

    async def add_label(self, run_id: str, label: Label) -> Labelled:
        return await self._ask("POST", f"/runs/{run_id}/labels", Labelled, body=label)

    async def undo_label(self, run_id: str) -> Labelled:
        """Take back the newest that holds."""
        return await self._ask("POST", f"/runs/{run_id}/labels/undo", Labelled)

    async def redo_label(self, run_id: str) -> Labelled:
        return await self._ask("POST", f"/runs/{run_id}/labels/redo", Labelled)

    async def log(self, run_id: str) -> str:
        """The end of the run's log: what engine, policy and agents wrote."""
        return (await self._send("GET", f"/runs/{run_id}/log")).text

    async def events(self, run_id: str, after: int = 0) -> AsyncIterator[Event | UnknownEvent]:
        """Replay from `after`, then follow, until the engine closes the stream or falls silent.

        Events with a `seq` arrive once and in order: the caller keeps the last one it has used and
        asks again from there.
        """
        timeout = httpx.Timeout(SILENCE_S, connect=5.0)
        path = f"/runs/{run_id}/events"
        try:
            async with self._http.stream(
                "GET", path, params={"after": after}, timeout=timeout
            ) as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    raise _refusal(response)
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        yield decode(line[5:].strip())
        except httpx.TransportError as error:
            raise _unreachable(error) from error

    # Models side by side

    async def ask_arena(self, request: AskArena) -> AsyncGenerator[ArenaTold, None]:
        """Answers as they come; leaving the loop cancels the rest. The first question loads the
        models."""
        async with aclosing(self._told("/arena", request, ArenaTold)) as told:
            async for one in told:
                yield one

    async def tally(self, project: str) -> Tally:
        """How the votes of a project stand."""
        return await self._ask("GET", "/arena", Tally, params={"path": project})

    # Transport

    async def _ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: BaseModel | None = None,
        params: dict[str, Any] | None = None,
        **options: Any,
    ) -> T:
        json_body = body.model_dump(mode="json") if body else None
        response = await self._send(method, path, json=json_body, params=params, **options)
        return answer.model_validate_json(response.content)

    async def _told(
        self, path: str, body: BaseModel, item: type[T] | TypeAdapter[T]
    ) -> AsyncGenerator[T, None]:
        """Records as they come, one a line; leaving the loop cancels what is still to come."""
        try:
            async with self._http.stream(
                "POST", path, json=body.model_dump(mode="json"), timeout=None
            ) as response:
                if response.is_error:
                    await response.aread()
                    raise _refusal(response)
                async for line in response.aiter_lines():
                    yield _line(line, item)
        except httpx.TransportError as error:
            raise _unreachable(error) from error

    async def _list(
        self, path: str, item: type[T], params: dict[str, Any] | None = None
    ) -> list[T]:
        response = await self._send("GET", path, params=params)
        return TypeAdapter(list[item]).validate_json(response.content)  # type: ignore[valid-type]

    async def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise _unreachable(error) from error
        if response.is_error:
            raise _refusal(response)
        return response


def _line(line: str, item: type[T] | TypeAdapter[T]) -> T:
    """One record; a line that is a problem instead is raised."""
    try:
        if isinstance(item, TypeAdapter):
            return item.validate_json(line)
        return item.model_validate_json(line)
    except ValidationError:
        raise Refused(Problem.model_validate_json(line)) from None


def _refusal(response: httpx.Response) -> Refused:
    try:
        return Refused(Problem.model_validate(json.loads(response.content)))
    except (ValueError, ValidationError):
        return Refused.of(
            f"engine.http_{response.status_code}",
            f"The engine answered {response.status_code} to {response.request.url.path}.",
            detail=response.text[:2000],
        )


def _unreachable(error: httpx.TransportError) -> LaunchError:
    return LaunchError.of(
        "engine.unreachable",
        "The engine does not answer.",
        "It is tried again by itself; a run that lives goes on without the window.",
        detail=f"{type(error).__name__}: {error}",
    )

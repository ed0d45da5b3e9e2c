"""Small engine that serves the routes of engine/client.py: Starlette over HTTP, in a thread.

It serves simulated runs and streams them live; it can flood (1,000 events a second), fall silent,
drop streams, skip a sequence number, and stop.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.launcher.local import Endpoint, proof
from engine.protocol import API_VERSION
from engine.protocol.config.flat import changed_settings
from engine.protocol.events import run as e
from engine.protocol.problems import Problem
from engine.protocol.records.run_notes import RunNotes
from engine.protocol.records.runs import ACTIVE_STATES, GroupSummary, ImportedScenarios, RunSummary
from engine.protocol.requests.runs import (
    Command,
    EngineInfo,
    ImportRun,
    ImportScenarios,
    StartEvaluation,
    StartRun,
    TrajectoryQuery,
)
from studio.store.runs.state import HELD_OUT, RunState
from tests.studio.fakes.checkpoints import FakeCheckpoints, evaluation_run
from tests.studio.fakes.clusters import FakeClusters
from tests.studio.fakes.drafts import FakeAuthoring
from tests.studio.fakes.environments import FakeEnvironments
from tests.studio.fakes.labels import FakeLabels
from tests.studio.fakes.models import FakeModels
from tests.studio.fakes.projects import FakeProjects, refusal
from tests.studio.fakes.reading import FakeReading
from tests.studio.fakes.rescoring import FakeTrials
from tests.studio.fakes.run_table import FakeRunTable
from tests.studio.fakes.servers import LOOK_S, FakeHosts
from tests.studio.fakes.simulated_run import Made, Simulation
from tests.studio.fakes.sweeps import FakeSweeps
from tests.studio.fakes.tracking import FakeTracking

TOKEN = "fake-token"


class FakeEngine:
    """Fake engine; `start()` it, then connect a real EngineClient to `endpoint`."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.runs: dict[str, Made] = {}
        self.summaries: dict[str, RunSummary] = {}
        self.project_store = FakeProjects(workspace, lambda: list(self.summaries.values()))
        self.add_project = self.project_store.add
        self.commands: list[Command] = []
        self.started: list[StartRun] = []
        self.imports: list[ImportRun] = []
        self.pauses_late = False
        """Whether a run that was asked to pause goes on with its step."""
        self.streams = self.listening = 0
        """Number of event streams opened so far, and open now."""
        self.drop_streams_after = 0
        self.skip_seq = 0
        self.refuse: dict[str, Problem] = {}
        self.delay_s = 0.0
        self.held: set[str] = set()
        """Requests ("PUT /project") that are executed but not answered until removed from this
        set.
        """
        self.extra: dict[str, list[e.Event]] = {}
        self.trials = FakeTrials(self._scored_groups)
        self.checkpoints = FakeCheckpoints(self._state_of, self._evaluate)
        self.run_table = FakeRunTable(self.summaries, self._state_of)
        self.sweeps = FakeSweeps()
        self.tracking = FakeTracking()
        self.environments = FakeEnvironments(self._active_runs)
        self.models = FakeModels()
        self.clusters = FakeClusters()
        self.authoring = FakeAuthoring(self.project_store)
        self.pid, self.notice = 0, ""
        self.labels: dict[str, FakeLabels] = {}
        self.reading = FakeReading(self.runs, self.labels)
        self.servers = FakeHosts(self.summaries, self.checkpoints.elsewhere)
        self._ticks: dict[str, e.ProgressTicked] = {}
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    @property
    def asked(self) -> list[TrajectoryQuery]:
        return self.reading.asked

    @property
    def previews(self) -> int:
        return self.reading.previews

    # Start and stop

    def start(self, port: int = 0) -> "FakeEngine":
        config = uvicorn.Config(
            self._app(), host="127.0.0.1", port=port, log_level="warning", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self.servers.closing = False
        self._thread = threading.Thread(target=self._server.run, name="fake-engine", daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        return self

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self.servers.closing = True
            time.sleep(2 * LOOK_S)
            self._server.should_exit = True
            self._server.force_exit = True
            self._thread.join(5)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.port, TOKEN, self.pid, self.workspace, self.notice)

    async def find(self) -> Endpoint | None:
        """Replacement of engine.launcher.local.find."""
        return self.endpoint if self._thread and self._thread.is_alive() else None

    # Runs

    def add_run(self, made: Made, project: str = "inbox-scout") -> RunSummary:
        self.runs[made.spec.id] = made
        self.labels[made.spec.id] = FakeLabels(made, self.workspace / project)
        self._refresh(made, project)
        return self.summaries[made.spec.id]

    def _refresh(self, made: Made, project: str) -> None:
        state = RunState(made.spec.id).fold(made.events)
        validations = [v.reward for v in state.validations if v.reward]
        self.summaries[made.spec.id] = RunSummary(
            id=made.spec.id,
            name=made.spec.name,
            kind=made.spec.kind,
            project=project,
            host=self.servers.lives_on.get(made.spec.id, ""),
            project_path=str(self.workspace / project),
            path=str(self.workspace / project / "runs" / made.spec.id),
            state=state.status,
            step=state.done,
            steps=state.planned,
            started_at=made.spec.started_at,
            changed_at=state.at,
            device=self._device(made.spec.id),
            model="smollm2-135m-instruct",
            rewards=[s.metrics.get("reward/mean") for s in state.steps],
            losses=list(state.series[HELD_OUT].ys) if HELD_OUT in state.series else [],
            validation=validations[-1] if validations else None,
            baseline=validations[0] if validations else None,
            win_rate=state.win_rate,
            win_rates=[rate.mean for _, rate in sorted(state.win_rates.items())],
            best=state.best[1] if state.best else None,
            best_step=state.best[0] if state.best else 0,
            judged=made.spec.config.judge.enabled,
            settings=changed_settings(made.spec.config),
            notes=self._notes_of(made.spec.id),
            trajectories=state.trajectories,
            unscored=state.unscored,
            problem=state.problem,
            seq=state.seq,
        )

    def _notes_of(self, run_id: str) -> RunNotes:
        known = self.summaries.get(run_id)
        return known.notes if known else RunNotes()

    def _device(self, run_id: str) -> str:
        there = self.servers.views.get(self.servers.lives_on.get(run_id, ""))
        return there.info.device if there and there.info else "CPU · 2 cores"

    def tick(self, run_id: str, tick: e.ProgressTicked) -> None:
        self._ticks[run_id] = tick.model_copy(update={"run_id": run_id})

    def flood(self, run_id: str, per_s: int, seconds: float) -> threading.Thread:
        """Emit `per_s` events a second for `seconds` from a thread."""
        made = self.runs[run_id]

        def emit() -> None:
            started_at, emitted = time.monotonic(), 0
            source = _endless(made)
            while (spent := time.monotonic() - started_at) < seconds:
                while emitted < spent * per_s:
                    next(source)
                    emitted += 1
                time.sleep(0.005)

        thread = threading.Thread(target=emit, name="flood", daemon=True)
        thread.start()
        return thread

    def _state_of(self, run_id: str) -> RunState:
        return RunState(run_id).fold(self.runs[run_id].events)

    def _evaluate(self, body: StartEvaluation) -> RunSummary:
        run = evaluation_run(body, len(self.summaries))
        self.summaries[run.id] = run
        return run

    # Routes

    def _app(self) -> Starlette:
        def route(path: str, handler: Callable[..., Any], *methods: str) -> Route:
            return Route(path, self._guarded(handler), methods=list(methods) or ["GET"])

        return Starlette(
            routes=[
                Route("/proof", self._proof),
                route("/engine", self._info),
                route("/engine/shutdown", self._shutdown, "POST"),
                route("/import", self._import, "POST"),
                route("/import/scenarios", self._import_scenarios, "POST"),
                route("/runs", self._runs, "GET", "POST"),
                route("/runs/{run}", self._run),
                route("/runs/{run}/command", self._command, "POST"),
                route("/runs/{run}/events", self._events),
                *(
                    route(path, handler, *methods)
                    for path, handler, *methods in (
                        *self.reading.routes(),
                        *self.project_store.routes(),
                        *self.trials.routes(),
                        *self.run_table.routes(),
                        *self.sweeps.routes(),
                        *self.tracking.routes(),
                        *self.checkpoints.routes(),
                        *self.environments.routes(),
                        *self.models.routes(),
                        *self.servers.routes(),
                        *self.clusters.routes(),
                        *self.authoring.routes(),
                    )
                ),
            ]
        )

    def _guarded(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        async def guarded(request: Request) -> Response:
            if request.headers.get("authorization") != f"Bearer {TOKEN}":
                return refusal(401, "guard.token", "Wrong token.")
            if problem := self.refuse.get(request.url.path):
                return JSONResponse(problem.model_dump(), 409)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            answer = await handler(request)
            while f"{request.method} {request.url.path}" in self.held:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            if isinstance(answer, Response):
                return answer
            if isinstance(answer, list):
                return JSONResponse([item.model_dump(mode="json") for item in answer])
            return JSONResponse(answer.model_dump(mode="json"))

        return guarded

    async def _proof(self, request: Request) -> Response:
        return PlainTextResponse(proof(TOKEN, request.query_params["nonce"]))

    async def _info(self, request: Request) -> EngineInfo:
        return EngineInfo(
            version="0.1.0",
            api=API_VERSION,
            pid=4242,
            workspace=str(self.workspace),
            started_at=1_790_000_000.0,
            device="CPU · 2 cores",
            python="3.11.9",
            memory_bytes=4_100_000_000,
            memory_total_bytes=16_700_000_000,
            living_runs=self._active_runs(),
        )

    def _active_runs(self) -> int:
        return sum(s.state in ("running", "pausing", "paused") for s in self.summaries.values())

    async def _shutdown(self, request: Request) -> Response:
        """Answer as another process (new pid) from now on."""
        self.pid += 1
        self.environments.restarted()
        return JSONResponse({})

    async def _runs(self, request: Request) -> Any:
        if request.method == "GET":
            project = request.query_params.get("project")
            rows = [s for s in self.summaries.values() if project in (None, s.project_path)]
            return sorted(rows, key=lambda s: -s.started_at)
        body = StartRun.model_validate(await request.json())
        self.started.append(body)
        number = len(self.started)
        config = self.project_store.projects[body.project].config
        simulation = Simulation(
            run_id=f"01JD5NEW{number:018}",
            name="quiet-heron",
            project=Path(body.project).name,
            train=config.train if config else None,
            kind=body.kind,
            clock=time.time(),
        )
        simulation.begin()
        if body.kind == "baseline":
            simulation.end(0)
        self.servers.lives_on[simulation.made.spec.id] = body.host
        return self.add_run(simulation.made, Path(body.project).name)

    async def _import(self, request: Request) -> RunSummary:
        body = ImportRun.model_validate(await request.json())
        self.imports.append(body)
        name = Path(request.query_params["path"]).name
        simulation = Simulation(
            "01JD5IMPORTED0000000000000", Path(body.source).stem, name, kind="imported"
        )
        simulation.begin()
        simulation.step(1)
        simulation.end(1)
        return self.add_run(simulation.made, name)

    async def _import_scenarios(self, request: Request) -> ImportedScenarios:
        body = ImportScenarios.model_validate(await request.json())
        self.imports.append(body)
        path = f"{request.query_params['path']}/scenarios/{body.split}.jsonl"
        return ImportedScenarios(split=body.split, path=path, new=3, repeated=1)

    async def _run(self, request: Request) -> RunSummary:
        return self.summaries[request.path_params["run"]]

    async def _command(self, request: Request) -> RunSummary | Response:
        run_id = request.path_params["run"]
        command = Command.model_validate(await request.json())
        self.commands.append(command)
        made = self.runs[run_id]
        summary = self.summaries[run_id]
        again = e.RunStarted(spec=made.spec, resumed_from=summary.step)
        extended = e.RunExtended(steps=command.steps or summary.steps)
        if command.action == "resume" and summary.state == "finished":
            words = f"This run has finished its {summary.steps} steps."
            return refusal(409, "run.finished", words)
        asked = e.PauseRequested(step=summary.step)
        events: list[e.Event] = {
            "pause": [asked] if self.pauses_late else [asked, e.RunPaused(step=summary.step)],
            "continue": [e.RunContinued(step=summary.step)],
            "stop_now": [e.RunStopped(step=summary.step, reason="asked to stop")],
            "stop_after_step": [e.RunStopped(step=summary.step, reason="asked to stop")],
            "resume": [again],
            "extend": [extended] if summary.state in ACTIVE_STATES else [again, extended],
            "use_rubric": [e.RubricChanged(step=summary.step + 1, source=command.rubric)],
            "reviewed": [e.ReviewClosed(step=summary.step + 1, by="person")],
            "keep": [],
        }[command.action]
        for event in events:
            made.say(event)
        self._refresh(made, summary.project)
        return self.summaries[run_id]

    def _scored_groups(self, run_id: str) -> list[GroupSummary]:
        """Return training groups, newest first."""
        return [g for g in reversed(self.runs[run_id].groups) if g.split == "train"]

    async def _events(self, request: Request) -> Response:
        run_id, after = request.path_params["run"], int(request.query_params["after"])
        if run_id not in self.runs:
            return refusal(404, "run.missing", "There is no such run.")
        self.streams += 1
        return StreamingResponse(self._stream(run_id, after), media_type="text/event-stream")

    async def _stream(self, run_id: str, after: int) -> AsyncIterator[str]:
        self.listening += 1
        try:
            async for lines in self._event_lines(run_id, after):
                yield lines
        finally:
            self.listening -= 1

    async def _event_lines(self, run_id: str, after: int) -> AsyncIterator[str]:
        made, sent, tick = self.runs[run_id], 0, None
        while self._server is not None and not self._server.should_exit:
            block = made.events[after : after + 200]
            after += len(block)
            lines = [
                f"id: {event.seq}\ndata: {e.encode(event)}\n\n"
                for event in block
                if event.seq != self.skip_seq
            ]
            self.skip_seq = (
                0 if any(event.seq == self.skip_seq for event in block) else self.skip_seq
            )
            sent += len(lines)
            if not block and tick is not self._ticks.get(run_id):
                tick = self._ticks[run_id]
                lines.append(f"data: {e.encode(tick)}\n\n")
            yield "".join(lines) or ": still here\n\n"
            if 0 < self.drop_streams_after <= sent:
                return
            if not block:
                await asyncio.sleep(0.02)


def _endless(made: Made) -> Any:
    simulation = Simulation(train=made.spec.config.train)
    simulation.made = made
    step = made.trajectories[-1].step if made.trajectories else 0
    while True:
        step += 1
        for _ in range(10):
            yield from simulation.rollouts(step)
        simulation.finish(step)

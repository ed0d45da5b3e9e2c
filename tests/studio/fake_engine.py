"""A small engine that speaks the routes of engine/client.py: Starlette over real HTTP, in a thread.

It serves simulated runs, follows them live, can flood (1 000 events a second), fall silent, drop
streams, skip a sequence number, and die.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.launch.local import Endpoint, proof
from engine.protocol import API_VERSION
from engine.protocol import events as e
from engine.protocol.config import ProjectConfig
from engine.protocol.labels import Label
from engine.protocol.problems import Problem, Refused
from engine.protocol.records import (
    Check,
    Forecast,
    GroupSummary,
    ModelInfo,
    ProjectView,
    RunSummary,
    Sample,
    Scenario,
    SplitInfo,
)
from engine.protocol.requests import (
    Command,
    EngineInfo,
    ImportRun,
    StartEvaluation,
    StartRun,
    TrajectoryQuery,
)
from studio.store.run_state import RunState
from tests.studio.fake_judge import call_of, verdicts_of
from tests.studio.fake_kept import FakeKept, evaluation_run
from tests.studio.fake_labels import FakeLabels, answer
from tests.studio.fake_trials import FakeTrials
from tests.studio.simulate import Made, Simulation, whole

TOKEN = "fake-token"
SAMPLES = [
    Sample(
        name="hello",
        title="Yes, no, maybe",
        words="Learns to say the rewarded word, on any laptop.",
        duration="1 min · CPU",
    ),
    Sample(
        name="find_the_flag",
        title="Find the flag",
        words="Several turns: each answer changes what comes next.",
        duration="5 min · CPU",
    ),
    Sample(
        name="game_2048",
        title="2048",
        words="A board and many turns. Rules score it, no judge.",
        duration="4 min · CPU",
    ),
]
TOML = """\
name = "inbox-scout"
description = "Email search"

[model]
name = "smollm2-135m-instruct"

[agent]
file = "agent.py"

[train]
steps = 120
groups = 8
lr = 2e-4
"""


class FakeEngine:
    """`start()` it, then talk to `endpoint` with a real EngineClient."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.runs: dict[str, Made] = {}
        self.summaries: dict[str, RunSummary] = {}
        self.projects: dict[str, ProjectView] = {}
        self.scenario_files: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.commands: list[Command] = []
        self.started: list[StartRun] = []
        self.imports: list[ImportRun] = []
        self.asked: list[TrajectoryQuery] = []
        self.streams = 0
        self.drop_streams_after = 0
        self.skip_seq = 0
        self.refuse: dict[str, Problem] = {}
        self.delay_s = 0.0
        self.extra: dict[str, list[e.Event]] = {}
        self.trials = FakeTrials(self._scored_groups)
        self.kept = FakeKept(self._state_of, self._evaluate)
        self.labels: dict[str, FakeLabels] = {}
        self.previews = 0
        self._ticks: dict[str, e.ProgressTicked] = {}
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    # Life

    def start(self, port: int = 0) -> "FakeEngine":
        config = uvicorn.Config(
            self._app(), host="127.0.0.1", port=port, log_level="warning", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="fake-engine", daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        return self

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._server.force_exit = True
            self._thread.join(5)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.port, TOKEN, 0, self.workspace)

    async def find(self) -> Endpoint | None:
        """In place of engine.launch.local.find."""
        return self.endpoint if self._thread and self._thread.is_alive() else None

    # What it holds

    def add_project(self, name: str = "inbox-scout", **changes: Any) -> ProjectView:
        path = str(self.workspace / name)
        config = ProjectConfig.model_validate(
            {
                "name": name,
                "description": "Email search",
                "train": {"steps": 120, "lr": 2e-4},
                "judge": {"models": ["openai/o4-mini"], "budget_usd": 6.0},
            }
        )
        self.scenario_files[path, "train"] = [
            {"id": f"s{i}", "prompt": f"Say {w}, or something like it."}
            for i, w in enumerate(("yes", "no", "maybe") * 16)
        ]
        self.scenario_files[path, "validation"] = [
            {"id": f"v{i}", "prompt": f"Answer {i}"} for i in range(24)
        ]
        splits = [
            SplitInfo(split="train", path="scenarios/train.jsonl", count=48),
            SplitInfo(split="validation", path="scenarios/validation.jsonl", count=24),
        ]
        view = ProjectView(
            path=path,
            name=name,
            description="Email search",
            config=config,
            toml=TOML.replace("inbox-scout", name),
            splits=splits,
            agent_tools=["search_inbox", "read_email", "return_answer"],
        ).model_copy(update=changes)
        self.projects[path] = view
        return view

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
            project_path=str(self.workspace / project),
            path=str(self.workspace / project / "runs" / made.spec.id),
            state=state.life,
            step=state.done,
            steps=state.planned,
            started_at=made.spec.started_at,
            changed_at=state.at,
            device="CPU · 2 cores",
            model="smollm2-135m-instruct",
            rewards=[s.metrics.get("reward/mean") for s in state.steps],
            validation=validations[-1] if validations else None,
            baseline=validations[0] if validations else None,
            trajectories=state.trajectories,
            unscored=state.unscored,
            problem=state.problem,
        )

    def tick(self, run_id: str, tick: e.ProgressTicked) -> None:
        self._ticks[run_id] = tick.model_copy(update={"run_id": run_id})

    def flood(self, run_id: str, per_s: int, seconds: float) -> threading.Thread:
        """Let a run say `per_s` events a second for a while, from a thread."""
        made = self.runs[run_id]

        def pour() -> None:
            begun, said = time.monotonic(), 0
            source = _endless(made)
            while (spent := time.monotonic() - begun) < seconds:
                while said < spent * per_s:
                    next(source)
                    said += 1
                time.sleep(0.005)

        thread = threading.Thread(target=pour, name="flood", daemon=True)
        thread.start()
        return thread

    def _state_of(self, run_id: str) -> RunState:
        return RunState(run_id).fold(self.runs[run_id].events)

    def _evaluate(self, asked: StartEvaluation) -> RunSummary:
        run = evaluation_run(asked, len(self.summaries))
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
                route("/doctor", self._doctor),
                route("/models", self._models),
                route("/samples", self._samples),
                route("/projects", self._projects, "GET", "POST"),
                route("/project", self._project, "GET", "PUT"),
                route("/scenarios", self._scenarios, "GET", "PUT"),
                route("/forecast", self._forecast),
                route("/import", self._import, "POST"),
                route("/runs", self._runs, "GET", "POST"),
                route("/runs/{run}", self._run),
                route("/runs/{run}/command", self._command, "POST"),
                route("/runs/{run}/trajectories", self._trajectories, "POST"),
                route("/runs/{run}/trajectories/{id}", self._trajectory),
                route("/runs/{run}/groups", self._groups, "POST"),
                route("/runs/{run}/groups/{split}/{step:int}/{group:int}", self._siblings),
                route("/runs/{run}/labels", self._labels, "GET", "POST"),
                route("/runs/{run}/labels/{verb}", self._labels, "POST"),
                route("/runs/{run}/calls/{key}", self._call),
                route("/runs/{run}/log", self._log),
                route("/runs/{run}/events", self._events),
                *(
                    route(path, handler, *methods)
                    for path, handler, *methods in (*self.trials.routes(), *self.kept.routes())
                ),
            ]
        )

    def _guarded(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        async def guarded(request: Request) -> Response:
            if request.headers.get("authorization") != f"Bearer {TOKEN}":
                return _no(401, "guard.token", "Wrong token.")
            if problem := self.refuse.get(request.url.path):
                return JSONResponse(problem.model_dump(), 409)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            answer = await handler(request)
            if isinstance(answer, Response):
                return answer
            if isinstance(answer, list):
                return JSONResponse([item.model_dump(mode="json") for item in answer])
            return JSONResponse(answer.model_dump(mode="json"))

        return guarded

    async def _proof(self, request: Request) -> Response:
        return PlainTextResponse(proof(TOKEN, request.query_params["nonce"]))

    async def _info(self, request: Request) -> EngineInfo:
        living = sum(s.state in ("running", "paused") for s in self.summaries.values())
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
            living_runs=living,
        )

    async def _shutdown(self, request: Request) -> Response:
        return JSONResponse({})

    async def _doctor(self, request: Request) -> list[Check]:
        return [
            Check(name="Python", state="good", words="3.11.9"),
            Check(name="Torch", state="good", words="2.13.0, CPU, bfloat16 native"),
            Check(
                name="Disk",
                state="warn",
                words="4.1 GB free in the workspace",
                hint="A checkpoint takes 20 MB; free some room before long runs.",
            ),
        ]

    async def _models(self, request: Request) -> list[ModelInfo]:
        return [
            ModelInfo(
                name="smollm2-135m-instruct",
                title="SmolLM2 135M Instruct",
                path="/models/smollm2",
                parameters=134_515_008,
            )
        ]

    async def _samples(self, request: Request) -> list[Sample]:
        return SAMPLES

    async def _projects(self, request: Request) -> Any:
        if request.method == "GET":
            return [self._with_runs(view) for view in self.projects.values()]
        body = await request.json()
        name = Path(body["folder"]).name
        if body["folder"] in self.projects:
            return _no(409, "project.exists", f"A folder named {name} is there already.")
        return self.add_project(name)

    def _with_runs(self, view: ProjectView) -> ProjectView:
        runs = [s for s in self.summaries.values() if s.project_path == view.path]
        return view.model_copy(update={"runs": runs})

    async def _project(self, request: Request) -> Any:
        path = request.query_params["path"]
        view = self.projects.get(path)
        if view is None:
            return _no(404, "project.missing", f"There is no project in {path}.")
        if request.method == "PUT":
            body = await request.json()
            if body.get("toml") is not None:
                if "learning_rat" in body["toml"]:
                    return _no(422, "config.unknown_key", "There is no `learning_rat`.")
                view = view.model_copy(update={"toml": body["toml"]})
            else:
                if problems := _check(view, body["values"]):
                    return JSONResponse(problems[0].model_dump(), 422)
                values = _nested(view.config, body["values"])
                config = ProjectConfig.model_validate(values)
                view = view.model_copy(update={"config": config, "name": config.name or view.name})
            self.projects[path] = view
        return self._with_runs(view)

    async def _scenarios(self, request: Request) -> Any:
        path, split = request.query_params["path"], request.query_params["split"]
        if request.method == "PUT":
            self.scenario_files[path, split] = (await request.json())["items"]
            splits = [
                s.model_copy(update={"count": len(self.scenario_files[path, s.split])})
                for s in self.projects[path].splits
            ]
            self.projects[path] = self.projects[path].model_copy(update={"splits": splits})
            return self._with_runs(self.projects[path])
        rows = self.scenario_files[path, split]
        offset, limit = int(request.query_params["offset"]), int(request.query_params["limit"])
        items = [
            Scenario(id=str(r.get("id", i)), title=str(r.get("prompt", ""))[:60], data=r)
            for i, r in enumerate(rows)
        ]
        page = [i.model_dump(mode="json") for i in items[offset : offset + limit]]
        return JSONResponse({"total": len(rows), "items": page})

    async def _forecast(self, request: Request) -> Forecast:
        steps = self.projects[request.query_params["path"]].config.train.steps  # type: ignore[union-attr]
        return Forecast(
            weights_bytes=269_000_000,
            sampler_bytes=410_000_000,
            adapter_bytes=78_000_000,
            activations_bytes=900_000_000,
            available_bytes=12_400_000_000,
            step_low_s=7,
            step_high_s=9,
            steps=steps,
            disk_bytes=8 * 59_000_000,
            disk_free_bytes=41_000_000_000,
            kept=8,
            measured=False,
        )

    async def _runs(self, request: Request) -> Any:
        if request.method == "GET":
            project = request.query_params.get("project")
            rows = [s for s in self.summaries.values() if project in (None, s.project_path)]
            return sorted(rows, key=lambda s: -s.started_at)
        asked = StartRun.model_validate(await request.json())
        self.started.append(asked)
        known = len(self.started)
        config = self.projects[asked.project].config
        simulation = Simulation(
            run_id=f"01JD5NEW{known:018}",
            name="quiet-heron",
            project=Path(asked.project).name,
            train=config.train if config else None,
            kind=asked.kind,
            clock=time.time(),
        )
        simulation.begin()
        if asked.kind == "baseline":
            simulation.end(0)
        return self.add_run(simulation.made, Path(asked.project).name)

    async def _import(self, request: Request) -> RunSummary:
        asked = ImportRun.model_validate(await request.json())
        self.imports.append(asked)
        name = Path(request.query_params["path"]).name
        simulation = Simulation(
            "01JD5IMPORTED0000000000000", Path(asked.source).stem, name, kind="imported"
        )
        simulation.begin()
        simulation.step(1)
        simulation.end(1)
        return self.add_run(simulation.made, name)

    async def _run(self, request: Request) -> RunSummary:
        return self.summaries[request.path_params["run"]]

    async def _command(self, request: Request) -> RunSummary:
        run_id = request.path_params["run"]
        command = Command.model_validate(await request.json())
        self.commands.append(command)
        made = self.runs[run_id]
        summary = self.summaries[run_id]
        event: e.Event = {
            "pause": e.RunPaused(step=summary.step),
            "continue": e.RunContinued(step=summary.step),
            "stop_now": e.RunStopped(step=summary.step, reason="asked to stop"),
            "stop_after_step": e.RunStopped(step=summary.step, reason="asked to stop"),
            "resume": e.RunStarted(spec=made.spec, resumed_from=summary.step),
            "extend": e.RunExtended(steps=command.steps or summary.steps),
            "use_rubric": e.RubricChanged(step=summary.step + 1, source=command.rubric),
            "reviewed": e.ReviewClosed(step=summary.step + 1, by="person"),
        }[command.action]
        made.say(event)
        self._refresh(made, summary.project)
        return self.summaries[run_id]

    async def _trajectories(self, request: Request) -> Response:
        query = TrajectoryQuery.model_validate(await request.json())
        self.asked.append(query)
        rows = _matching(self.runs[request.path_params["run"]], query)
        page = rows[query.offset : query.offset + query.limit]
        items = [row.model_dump(mode="json") for row in page]
        return JSONResponse({"total": len(rows), "items": items})

    async def _trajectory(self, request: Request) -> Any:
        rows = self.runs[request.path_params["run"]].trajectories
        found = next((r for r in rows if r.id == request.path_params["id"]), None)
        return whole(found) if found else _no(404, "trajectory.missing", "No such trajectory.")

    async def _groups(self, request: Request) -> Response:
        query = TrajectoryQuery.model_validate(await request.json())
        made = self.runs[request.path_params["run"]]
        keys = {(r.split, r.step, r.group) for r in _matching(made, query)}
        rows = [g for g in reversed(made.groups) if (g.split, g.step, g.group) in keys]
        page = rows[query.offset : query.offset + query.limit]
        items = [row.model_dump(mode="json") for row in page]
        return JSONResponse({"total": len(rows), "items": items})

    def _scored_groups(self, run_id: str) -> list[GroupSummary]:
        """Of training, newest first."""
        return [g for g in reversed(self.runs[run_id].groups) if g.split == "train"]

    async def _siblings(self, request: Request) -> Response:
        made, place = self.runs[request.path_params["run"]], request.path_params
        key = (place["split"], place["step"], place["group"])
        group = next(g for g in made.groups if (g.split, g.step, g.group) == key)
        rows = [r for r in made.trajectories if (r.split, r.step, r.group) == key]
        rows.sort(key=lambda row: row.index)
        siblings = [whole(row).model_dump(mode="json") for row in rows]
        verdicts = [v for row in rows for v in verdicts_of(made.spec, row, len(rows))]
        said = self.labels[made.spec.id].labels(*key)
        return JSONResponse(
            {
                "group": group.model_dump(mode="json"),
                "trajectories": siblings,
                "verdicts": [verdict.model_dump(mode="json") for verdict in verdicts],
                "labels": [label.model_dump(mode="json") for label in said],
            }
        )

    async def _call(self, request: Request) -> Any:
        made = self.runs[request.path_params["run"]]
        return call_of(made.spec, request.path_params["key"])

    async def _labels(self, request: Request) -> Any:
        labels = self.labels[request.path_params["run"]]
        if request.method == "GET":
            return labels.labels()
        verb = request.path_params.get("verb", "add")
        self.previews += verb == "preview"
        said = await request.body()
        given = Label.model_validate_json(said) if verb in ("add", "preview") else None
        try:
            answered = answer(labels, verb, given)
            return answered if verb == "preview" else await answered
        except Refused as refused:
            return JSONResponse(refused.problem.model_dump(), 409)

    async def _log(self, request: Request) -> Response:
        return PlainTextResponse("engine: ready\npolicy: 134.5 M parameters, 4.9 M trained\n")

    async def _events(self, request: Request) -> Response:
        run_id, after = request.path_params["run"], int(request.query_params["after"])
        if run_id not in self.runs:
            return _no(404, "run.missing", "There is no such run.")
        self.streams += 1
        return StreamingResponse(self._stream(run_id, after), media_type="text/event-stream")

    async def _stream(self, run_id: str, after: int) -> AsyncIterator[str]:
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


def _matching(made: Made, query: TrajectoryQuery) -> list[Any]:
    rows = [r for r in made.trajectories if _fits(r, query)]
    keys: dict[str, Callable[[Any], Any]] = {
        "recent": lambda r: made.trajectories.index(r) if len(rows) < 50 else 0,
        "step": lambda r: r.step,
        "title": lambda r: r.title,
        "reward": lambda r: r.reward if r.reward is not None else -1,
        "advantage": lambda r: r.advantage or 0,
        "turns": lambda r: r.turns,
        "tokens": lambda r: r.sampled_tokens,
        "duration": lambda r: r.duration_s,
    }
    if query.sort == "recent":
        return rows[::-1] if query.descending else rows
    return sorted(rows, key=keys[query.sort], reverse=query.descending)


def _fits(row: Any, query: TrajectoryQuery) -> bool:
    low, high = query.step, query.step_to if query.step_to is not None else query.step
    state = {
        "all": True,
        "scored": row.reward is not None,
        "unscored": row.reward is None,
        "truncated": row.truncated,
    }[query.state]
    return (
        state
        and (query.labelled in (None, bool(row.labels)))
        and (query.split in (None, row.split))
        and (low is None or low <= row.step <= (high or low))
        and (query.group in (None, row.group))
        and (query.search.lower() in row.title.lower())
    )


def _check(view: ProjectView, values: dict[str, Any]) -> list[Problem]:
    try:
        ProjectConfig.model_validate(_nested(view.config, values))
    except ValidationError as error:
        return [
            Problem(
                code="config.value",
                message=problem["msg"],
                where=".".join(str(part) for part in problem["loc"]),
            )
            for problem in error.errors()
        ]
    return []


def _nested(config: ProjectConfig | None, values: dict[str, Any]) -> dict[str, Any]:
    whole_config: dict[str, Any] = config.model_dump() if config else {}
    for dotted, value in values.items():
        *path, last = dotted.split(".")
        table = whole_config
        for part in path:
            table = table.setdefault(part, {})
        if value is None:
            table.pop(last, None)
        else:
            table[last] = value
    return json.loads(json.dumps(whole_config))


def _no(status: int, code: str, message: str) -> JSONResponse:
    problem = Problem(code=code, message=message, hint="Try another one.")
    return JSONResponse(problem.model_dump(), status)

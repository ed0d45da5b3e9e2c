"""Project routes for the fake engine: samples, models, scenarios, settings, forecast."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from engine.hardware.memory_plan import vram_plan
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import config_problems
from engine.protocol.problems import Problem
from engine.protocol.records.chat_format import ChatFormatFacts, chat_format_checks
from engine.protocol.records.choices import ModelInfo, Sample
from engine.protocol.records.demonstrations import Demonstrations, SelectDemonstrations, Selection
from engine.protocol.records.forecast import Forecast, JudgeForecast
from engine.protocol.records.machine.backends import BackendFacts, Provision
from engine.protocol.records.machine.hardware import Card, Check
from engine.protocol.records.runs import ProjectView, RunSummary, Scenario, SplitInfo
from engine.protocol.requests.runs import ProjectFiles
from engine.rollout.sandbox.machine import agent_checks

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
        words="Several turns: each answer changes the next.",
        duration="5 min · CPU",
    ),
    Sample(
        name="game_2048",
        title="2048",
        words="A board and many turns. Rules score it, no judge.",
        duration="4 min · CPU",
    ),
    Sample(
        name="tic_tac_toe",
        title="Tic-tac-toe",
        words="Several turns against an opponent who answers.",
        duration="4 min · CPU",
    ),
    Sample(
        name="codenames",
        title="Codenames",
        words="Guess the words a clue means, and not the assassin.",
        duration="10 min · CPU",
    ),
    Sample(
        name="temporal_clue",
        title="Temporal clue",
        words="Who, when, with what: cases with one solution.",
        duration="larger model",
    ),
    Sample(
        name="email_search",
        title="Email search",
        words="Two tools over an inbox: search, read, answer.",
        duration="12 min · CPU",
    ),
    Sample(
        name="mcp_tools",
        title="MCP tools",
        words="Tools of a real MCP server, called and answered.",
        duration="15 min · CPU",
    ),
]
VLLM = Provision(state="comes", bytes=1_450_000_000, download_bytes=460_000_000)
UNSLOTH = Provision(state="comes", bytes=690_000_000, download_bytes=171_000_000)
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


class FakeProjects:
    """Project routes; `summaries` returns all runs of the engine."""

    def __init__(self, workspace: Path, summaries: Callable[[], list[RunSummary]]) -> None:
        self.workspace, self._summaries = workspace, summaries
        self.projects: dict[str, ProjectView] = {}
        self.scenario_files: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.cards: tuple[Card, ...] = ()
        """GPUs for which a forecast plans with the files of `model`."""
        self.model = workspace
        self.backends = BackendFacts(cards=0, vllm=VLLM, unsloth=UNSLOTH)
        self.demonstrations = Demonstrations(files=[])
        self.selected: list[tuple[str, SelectDemonstrations]] = []
        """Runs whose trajectories were selected as demonstrations."""
        self.edits: list[tuple[str, dict[str, Any]]] = []
        """Values of edit requests with the project's path."""
        self.chat_format: ChatFormatFacts | None = ChatFormatFacts(
            syntax="qwen3", shows_tools=True, parallel=True, reasons=True,
            keeps_reasoning="tool_cycle", switch="enable_thinking", variables=("enable_thinking",),
        )  # fmt: skip
        """Chat format of every model; None: no model is on this machine."""
        self.forecasts: list[dict[str, Any]] = []
        """Unsaved values of each forecast request."""

    def routes(self) -> list[tuple[Any, ...]]:
        return [
            ("/doctor", self._doctor),
            ("/models", self._models),
            ("/models/checks", self._model_checks),
            ("/backends", self._backends),
            ("/samples", self._samples),
            ("/projects", self._projects, "GET", "POST"),
            ("/project", self._project, "GET", "PUT"),
            ("/project/files", self._files),
            ("/scenarios", self._scenarios, "GET", "PUT"),
            ("/forecast", self._forecast),
            ("/demonstrations", self._demonstrations),
            ("/runs/{run}/demonstrations", self._demonstrate, "POST"),
        ]

    def add(self, name: str = "inbox-scout", **changes: Any) -> ProjectView:
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

    async def _demonstrations(self, request: Request) -> Demonstrations:
        return self.demonstrations

    async def _demonstrate(self, request: Request) -> Selection:
        body = SelectDemonstrations.model_validate(await request.json())
        self.selected.append((request.path_params["run"], body))
        return Selection(kept=11, scenarios=11, of=12, left_out={"cut off by a token limit": 1})

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

    async def _backends(self, request: Request) -> BackendFacts:
        return self.backends

    async def _samples(self, request: Request) -> list[Sample]:
        return SAMPLES

    async def _projects(self, request: Request) -> Any:
        if request.method == "GET":
            return [self._with_runs(view) for view in self.projects.values()]
        body = await request.json()
        name = Path(body["folder"]).name
        if body["folder"] in self.projects:
            return refusal(409, "project.exists", f"A folder named {name} is there already.")
        return self.add(name)

    def _with_runs(self, view: ProjectView) -> ProjectView:
        runs = [s for s in self._summaries() if s.project_path == view.path]
        return view.model_copy(update={"runs": runs})

    async def _project(self, request: Request) -> Any:
        path = request.query_params["path"]
        view = self.projects.get(path)
        if view is None:
            return refusal(404, "project.missing", f"There is no project in {path}.")
        if request.method == "PUT":
            body = await request.json()
            if body.get("toml") is not None:
                if "learning_rat" in body["toml"]:
                    return refusal(422, "config.unknown_key", "There is no `learning_rat`.")
                view = view.model_copy(update={"toml": body["toml"]})
            else:
                self.edits.append((path, body["values"]))
                values = _nested(view.config, body["values"])
                if problems := config_problems(values):
                    return JSONResponse(problems[0].model_dump(), 422)
                config = ProjectConfig.model_validate(values)
                view = view.model_copy(update={"config": config, "name": config.name or view.name})
            self.projects[path] = view
        return self._with_runs(view)

    async def _files(self, request: Request) -> ProjectFiles:
        view = self.projects[request.query_params["path"]]
        return ProjectFiles(files=view.files)

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

    async def _model_checks(self, request: Request) -> list[Check]:
        values = json.loads(request.query_params.get("values", "{}"))
        view = self.projects[request.query_params["path"]]
        config = ProjectConfig.model_validate(_nested(view.config, values))
        if self.chat_format is None:
            return agent_checks(config.agent)
        checks = chat_format_checks(self.chat_format, config.model, bool(view.agent_tools))
        return checks + agent_checks(config.agent)

    async def _forecast(self, request: Request) -> Forecast:
        values = json.loads(request.query_params.get("values", "{}"))
        self.forecasts.append(values)
        view = self.projects[request.query_params["path"]]
        config = ProjectConfig.model_validate(_nested(view.config, values))
        return Forecast(
            weights_bytes=269_000_000,
            sampler_bytes=410_000_000,
            adapter_bytes=78_000_000,
            activations_bytes=900_000_000,
            available_bytes=12_400_000_000,
            step_low_s=7,
            step_high_s=9,
            steps=config.train.steps,
            disk_bytes=8 * 59_000_000,
            disk_free_bytes=41_000_000_000,
            kept=8,
            measured=False,
            judge=judge_plan(config),
            vram=vram_plan(config, self.model, self.cards),
        )


def judge_plan(config: ProjectConfig) -> JudgeForecast | None:
    """Return two calls a group for 24 validation scenarios, at a third of a cent."""
    if not (config.judge.enabled and config.judge.models):
        return None
    low, tests = config.train.steps * config.train.groups * 2, 24 * 2 * 4
    return JudgeForecast(
        calls_low=low + tests, calls_high=2 * (low + tests), validation_calls=tests,
        usd_low=(low + tests) * 0.0003, usd_high=2 * (low + tests) * 0.0003,
        budget_usd=config.judge.budget_usd,
    )  # fmt: skip


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


def refusal(status: int, code: str, message: str, hint: str = "Try another one.") -> JSONResponse:
    problem = Problem(code=code, message=message, hint=hint)
    return JSONResponse(problem.model_dump(), status)

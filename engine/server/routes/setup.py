"""Routes of the Setup page: forecast, demonstrations, rubric, judges and their test."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from engine.evaluation.arena import find_or_make_arena
from engine.hardware.memory_plan import preflight
from engine.judge.check import check_group, last_words, newest_attempt
from engine.judge.forecast import judge_forecast
from engine.judge.prompting.rubric import load_rubric
from engine.judge.prompting.rubric_versions import save_rubric, view_rubric
from engine.judge.providers.local_servers import find_judges
from engine.models.registry import find_model, needs_weights
from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import StepFinished
from engine.protocol.problems import ConfigError
from engine.protocol.records.forecast import JudgeForecast
from engine.protocol.records.judging import CheckedAttempt, JudgeCheck
from engine.protocol.requests.runs import SaveRubric, TryJudge
from engine.server.bodies import Routes, body_of, json_list, json_of, project_of, values_of
from engine.server.composition import Services
from engine.server.services.fingerprints import check_unchanged, fingerprint
from engine.storage.project import load_config, load_scenarios
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE, read_spec
from engine.training.sft.preview import view
from engine.trust.files import project_file

MOST_WORDS = 600
"""Characters of a trajectory shown beside its score."""


class SetupRoutes:
    """HTTP routes of the Setup page."""

    def __init__(self, services: Services) -> None:
        self.library, self._lifecycle = services.library, services.lifecycle
        self._judges = services.judges

    def routes(self) -> Routes:
        return [
            ("GET", "/forecast", self.forecast),
            ("GET", "/demonstrations", self.demonstrations),
            ("GET", "/rubric", self.rubric),
            ("PUT", "/rubric", self.save_rubric),
            ("GET", "/judges", self.judges),
            ("POST", "/judges/check", self.check_judges),
        ]

    async def forecast(self, request: Request) -> Response:
        """Respond with the forecast of memory, disk, time and judge cost of a run of project
        `path`; `values` (JSON by dotted key) replace settings of project.toml."""
        path = project_of(request)
        config = load_config(path, values_of(request))
        model = find_model(config.model.name, needs_weights(config))
        times = await asyncio.to_thread(self._step_times, path)
        found = await asyncio.to_thread(preflight, config, model, times, path)
        judge = await asyncio.to_thread(self._judge_forecast, path, config)
        return json_of(found.model_copy(update={"judge": judge}))

    async def demonstrations(self, request: Request) -> Response:
        path = project_of(request)
        return json_of(await asyncio.to_thread(view, path, load_config(path)))

    async def rubric(self, request: Request) -> Response:
        path = project_of(request)
        file = _rubric_file(path)
        mark = await asyncio.to_thread(fingerprint, file)
        found = await asyncio.to_thread(view_rubric, file)
        return json_of(found.model_copy(update={"fingerprint": mark}))

    async def save_rubric(self, request: Request) -> Response:
        body, path = await body_of(request, SaveRubric), project_of(request)
        file = _rubric_file(path)
        await asyncio.to_thread(check_unchanged, file, body.read)
        saved = await asyncio.to_thread(save_rubric, file, body.source, body.who)
        mark = await asyncio.to_thread(fingerprint, file)
        return json_of(saved.model_copy(update={"fingerprint": mark}))

    async def judges(self, request: Request) -> Response:
        return json_list(await find_judges())

    async def check_judges(self, request: Request) -> Response:
        """Send each judge of project `path` one real request; store its verdicts in the arena."""
        path = project_of(request)
        file = _rubric_file(path)
        rubric = await asyncio.to_thread(load_rubric, file)
        config = load_config(path)
        scenarios = await asyncio.to_thread(load_scenarios, path, config, "train")
        if not scenarios:
            raise ConfigError.of(
                "scenarios.none", "The project has no scenario for the test.", "Add a scenario."
            )
        folder = await find_or_make_arena(path)
        run_id = read_spec(folder).id
        self.library.remember(run_id, folder)
        async with self._lifecycle.opened(run_id) as opened:
            known = await asyncio.to_thread(newest_attempt, opened.run.reader, scenarios)
            scenario, attempt = known or (scenarios[0], None)
            group = check_group(scenario, attempt, time.time())
            settings = TryJudge(source=rubric.source)
            async with self._judges.trial(opened.run, settings) as trial:
                answers = await trial.check(group)
        attempts = [
            CheckedAttempt(id=one.id, made_up=one is not attempt, text=last_words(one, MOST_WORDS))
            for one in group
        ]
        return json_of(
            JudgeCheck(run_id=run_id, title=scenario.title, attempts=attempts, answers=answers)
        )

    def _step_times(self, project: Path) -> list[float]:
        """Step times in seconds of the project's newest run with finished steps on this machine."""
        for run in self.library.runs(project):
            if run.rewards and run.kind == "train":
                reader = RunReader(Path(run.path) / DATABASE)
                events = reader.events_of("step.finished")
                reader.close()
                return [
                    e.metrics["time_s/step"]
                    for e in events
                    if isinstance(e, StepFinished) and "time_s/step" in e.metrics
                ]
        return []

    def _judge_forecast(self, project: Path, config: ProjectConfig) -> JudgeForecast | None:
        if not (config.judge.enabled and config.judge.models):
            return None
        held_out = len(load_scenarios(project, config, "validation"))
        return judge_forecast(config, held_out, self._usd_per_call(project, config.judge.models))

    def _usd_per_call(self, project: Path, judges: Sequence[str]) -> float | None:
        """Mean cost in USD of a call of these judges in the project's newest run with any."""
        for run in self.library.runs(project):
            if run.usd:
                reader = RunReader(Path(run.path) / DATABASE)
                mean = reader.cost_per_call(judges)
                reader.close()
                if mean is not None:
                    return mean
        return None


def _rubric_file(project: Path) -> Path:
    return project_file(project, load_config(project).judge.rubric, "judge.rubric")

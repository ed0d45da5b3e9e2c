"""Judges of this engine: those of an active run, and a reusable process for rescoring."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from engine.judge.calibration.examples import examples_of_run
from engine.judge.calibration.rescoring import Rescoring
from engine.judge.local_judge import LocalJudge
from engine.judge.panel import Panel
from engine.judge.prompting.rubric import parse_rubric
from engine.judge.providers.access import Access
from engine.judge.providers.client import Provider
from engine.judge.providers.ledger import Ledger
from engine.judge.ruler import Ruler, check_fit
from engine.policy.base import Policy
from engine.protocol.config.project import JudgeConfig
from engine.protocol.problems import ConfigError
from engine.protocol.records.judging import Rubric
from engine.protocol.requests.runs import TryJudge
from engine.rollout.images import RunImages
from engine.runtime.closing import closing
from engine.server.services.credentials import Credentials
from engine.storage.project import load_config
from engine.storage.run_folder.run import Run
from engine.trust.addresses import check_section
from engine.trust.projects import require_run_trust


class JudgeService:
    """Judge process for trials, started at the first request; a new configuration replaces it."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._lock = asyncio.Lock()
        self._provider: Provider | None = None
        self._settings: tuple[JudgeConfig, str | bool] | None = None

    @contextlib.asynccontextmanager
    async def trial(self, run: Run, request: TryJudge) -> AsyncIterator[Rescoring]:
        """Context manager that yields a scorer for a judge trial on a run; waits while another
        trial is active. Raises ConfigError for an invalid rubric or judge, Refused if the run is
        not trusted."""
        await asyncio.to_thread(require_run_trust, run.folder)
        config, rubric = await asyncio.to_thread(judge_settings, run.project, request)
        async with self._lock:
            provider = await self._ready(config, run)
            yield Rescoring(run, config, rubric, provider, lambda: examples_of_run(run))

    async def close(self) -> None:
        if self._provider:
            await self._provider.close()
            self._provider = None

    async def _ready(self, config: JudgeConfig, run: Run) -> Provider:
        access = self._credentials.access(run.spec)
        settings = (config, run.spec.keys_at_home and run.spec.id)
        if self._provider and self._provider.alive and self._settings == settings:
            await self._provider.lend(access)
            return self._provider
        await self.close()
        self._provider = await Provider.start(config, access, run.log_file)
        self._settings = settings
        return self._provider


@contextlib.asynccontextmanager
async def judging(
    run: Run, access: Access, policy: Policy | None, images: RunImages | None = None
) -> AsyncIterator[Panel | None]:
    """Context manager of the judges of one run (None if judging is disabled); their process ends
    with the block. `access` supplies API keys. With `policy` None, the policy's model is not used
    as a judge; `images` are those that it reads."""
    judge = run.config.judge
    if not judge.enabled:
        yield None
        return
    local = (
        LocalJudge(policy, images.inputs if images else None) if judge.local and policy else None
    )
    if not judge.models:
        yield Panel(run, None, local)
        return
    models = ", ".join(judge.models)
    words = f"Starting the judge ({models}); its environment is installed on first use."
    await run.log("info", "judge", words)
    async with closing(await Provider.start(judge, access, run.log_file)) as provider:
        ledger = Ledger(run, provider, judge)
        rubric, seed = parse_rubric(run.spec.rubric), run.config.train.seed
        ruler = Ruler(
            judge, rubric, ledger, seed, lambda: examples_of_run(run), lambda: run.orders.rubric
        )
        yield Panel(run, ruler, local)


def judge_settings(project: Path, request: TryJudge) -> tuple[JudgeConfig, Rubric]:
    """Judge settings of the project and the rubric, with models, address and rubric text of the
    request instead where given. Raises ConfigError if they are invalid or name no model."""
    judge = load_config(project).judge
    models = request.models or judge.models
    if not models:
        raise ConfigError.of(
            "judge.no_model",
            "No judge is set.",
            "Choose a judge on the Judge page, or set judge.models.",
            where="judge.models",
        )
    update = {"models": models, "enabled": True}
    if request.base_url is not None:
        update["base_url"] = request.base_url or None
    config = judge.model_copy(update=update)
    check_section("judge", config, config.models)
    rubric = parse_rubric(request.source, judge.rubric)
    check_fit(config, rubric)
    return config, rubric

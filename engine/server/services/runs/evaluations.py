"""Evaluations of this engine: from a request to a run spec, and the worker processes of the run."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.evaluation.contestants import find_contestants
from engine.evaluation.evaluate import EvaluationResources, evaluate
from engine.judge.providers.access import Access
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ConfigError, in_one_line
from engine.protocol.records.runs import RunSpec, Scenario
from engine.protocol.requests.evaluation import EvaluationPlan, SystemPrompt
from engine.protocol.requests.runs import StartEvaluation
from engine.rollout.gateway.gateway import Gateway
from engine.rollout.sandbox.pool import agent_pool
from engine.runtime.closing import closing
from engine.runtime.ids import run_name, ulid
from engine.server.services.judges import judging
from engine.server.services.runs import distillation
from engine.server.services.runs.start import rubric_of, versions
from engine.storage.project import load_config, load_scenarios, read_scenarios, refuse_outside
from engine.storage.run_folder.run import Run
from engine.training.sft.selection import read_rule
from engine.trust.addresses import check_addresses
from engine.trust.files import check_files


class PlannedEvaluation(NamedTuple):
    """Evaluation that passed all checks."""

    spec: RunSpec
    scenarios: list[Scenario]
    """Scenarios; for a teacher only those without a scored trajectory."""
    earlier: Sequence[Path] = ()
    """Earlier runs with the same teacher, newest first."""
    same: Sequence[Path] = ()
    """Earlier runs that can be resumed instead of this one."""


def plan(project: Path, request: StartEvaluation) -> PlannedEvaluation:
    """Plan an evaluation. With `request.demonstrate`, demonstrations of earlier runs are written
    and only scenarios that those lack are planned (none if all are done; all with `request.again`).
    Raises ConfigError, ModelError."""
    overrides = {**request.overrides, "backend.cluster": ""}  # no cluster loads an adapter
    if request.judge is not None:
        overrides["judge.enabled"] = request.judge
    config = load_config(project, overrides)
    refuse_outside(config)
    check_files(project, config)
    _refuse_local_judge(config)
    _refuse_equal_names(request.systems)
    scenarios = _scenarios(project, config, request.scenarios)
    contestants = find_contestants(project, config, request.models)
    remote = [one.model for one in contestants if one.kind == "provider"]
    check_addresses(config, remote, request.confirmed_addresses)
    evaluation = EvaluationPlan(
        contestants=contestants,
        variants=request.systems,
        attempts=request.attempts or config.evaluate.attempts,
        scenarios=len(scenarios),
        source=request.scenarios,
        seed=config.train.seed if request.seed is None else request.seed,
        demonstrate=request.demonstrate,
    )
    spec = RunSpec(
        id=ulid(),
        name=run_name(),
        kind="evaluation",
        project=config.name or project.name,
        started_at=time.time(),
        config=config,
        model_path="",
        rubric=rubric_of(project, config.judge),
        versions=versions(),
        evaluation=evaluation,
        keys_at_home=request.keys_at_home,
    )
    planned = PlannedEvaluation(spec, scenarios)
    return _limit_to_missing(project, request, planned) if request.demonstrate else planned


async def work(run: Run, gateway: Gateway, base_url: str, access: Access) -> None:
    """Execute the evaluation `run` to its end. Its agents send model calls to `gateway` at
    `base_url`; the agent processes end with it. `access` supplies API keys."""
    async with closing(agent_pool(run.project, run.config.agent, run.log_file)) as pool:
        await pool.start()
        resources = EvaluationResources(
            gateway, base_url, pool, access, lambda: judging(run, access, None)
        )
        await evaluate(run, resources, distillation.store_demonstrations)


def _limit_to_missing(
    project: Path, request: StartEvaluation, planned: PlannedEvaluation
) -> PlannedEvaluation:
    """Limit the plan to a teacher's missing scenarios, and store demonstrations of earlier runs by
    the current rule."""
    spec, scenarios = planned.spec, planned.scenarios
    assert request.demonstrate is not None
    assert spec.evaluation is not None
    distillation.check(spec.evaluation)
    read_rule(request.demonstrate.keep)
    if request.again:
        return planned
    earlier = distillation.earlier_runs(project, spec.evaluation)
    distillation.store_earlier_demonstrations(earlier, request.demonstrate)
    same = distillation.same_as(spec, scenarios, earlier)
    scenarios = distillation.missing(scenarios, earlier)
    evaluation = spec.evaluation.model_copy(update={"scenarios": len(scenarios)})
    spec = spec.model_copy(update={"evaluation": evaluation})
    return PlannedEvaluation(spec, scenarios, earlier, same)


def _scenarios(project: Path, config: ProjectConfig, source: str) -> list[Scenario]:
    """Scenarios of a split, or of a file. Raises ConfigError at the first invalid line, and if
    there are none."""
    if source in ("train", "validation"):
        found = load_scenarios(project, config, source)  # type: ignore[arg-type]
        if not found:
            raise ConfigError.of(
                "evaluation.no_scenarios",
                f"The project has no {source} scenarios.",
                f"Set scenarios.{source}, or pass a file: --scenarios FILE.",
                where=f"scenarios.{source}",
            )
        return found
    found, problems = read_scenarios(_file(project, source))
    if problems:
        raise ConfigError(problems[0])
    return found


def _file(project: Path, source: str) -> Path:
    """Path of a file named in a request, relative to the project. Raises ConfigError if invalid."""
    try:
        file = project / Path(source).expanduser()
        file.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError.of(
            "file.bad_name", f"{source[:200]!a} is not a file: {in_one_line(error)[:200]}."
        ) from error
    return file


def _refuse_local_judge(config: ProjectConfig) -> None:
    judge = config.judge
    if judge.enabled and not judge.models:
        raise ConfigError.of(
            "evaluation.local_judge",
            "The local judge needs labels of the run that it judges; evaluations have none.",
            "Set a judge in judge.models, or evaluate without a judge: --no-judge.",
            where="judge.local",
        )


def _refuse_equal_names(systems: Sequence[SystemPrompt]) -> None:
    names = [one.name for one in systems]
    if len(set(names)) < len(names):
        raise ConfigError.of(
            "evaluation.equal_names",
            "Two system prompts have the same name.",
            "Rename one of the files.",
        )

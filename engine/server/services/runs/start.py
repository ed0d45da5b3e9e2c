"""Creation of the run folder for a start request; every error is reported before anything is
written."""

import asyncio
import contextlib
import platform
import shutil
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from engine import __version__
from engine.environments.agent_packages import packages_python
from engine.evaluation.stored import store_scenarios
from engine.judge.prompting.rubric import load_rubric
from engine.judge.ruler import check_fit
from engine.models.registry import model_for
from engine.policy.tinker.refusals import refuse_config
from engine.protocol.config.project import JudgeConfig, ProjectConfig
from engine.protocol.records.runs import RunOfSweep, RunSpec, Scenario
from engine.protocol.requests.runs import StartRun
from engine.remote.cluster_list import find_cluster
from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.sandbox.machine import require_sandbox
from engine.runtime.ids import run_name, ulid
from engine.storage.checkpoints.branches import Origin, find_origin, make_branch
from engine.storage.project import load_config, load_scenarios, refuse_outside
from engine.storage.run_folder.run import write_spec
from engine.training.sft.data import Data, collect, plan_of, refuse, store_examples
from engine.training.step.curriculum import check
from engine.trust.addresses import check_addresses
from engine.trust.files import check_files, project_file
from engine.trust.projects import require_run_trust

VERSIONED = ("torch", "transformers", "peft", "tokenizers", "apsw")


def rubric_of(project: Path, judge: JudgeConfig) -> str:
    """Text of the project's current rubric; empty unless the judge is enabled and has API models.
    Raises ConfigError if the rubric is invalid."""
    if not (judge.enabled and judge.models):
        return ""
    rubric = load_rubric(project_file(project, judge.rubric, "judge.rubric"))
    check_fit(judge, rubric)
    return rubric.source


def versions() -> dict[str, str]:
    found = {"atelier": __version__, "python": platform.python_version(), "system": sys.platform}
    for name in VERSIONED:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


async def make_run(project: Path, request: StartRun) -> tuple[Path, RunSpec]:
    """Create the folder of a new run as requested; returns it with the run's spec. Raises
    ConfigError, ModelError, Refused; no file is left then."""
    origin = find_origin(project, request) if request.origin else None
    if origin and not isinstance(origin.source, Path):  # its settings become those of a run of ours
        require_run_trust(origin.source.folder)
    config = origin.config if origin else load_config(project, request.overrides)
    refuse_outside(config)
    check_files(project, config)
    check_addresses(config, more=request.confirmed_addresses)
    await asyncio.to_thread(_check_cluster, config)
    model = model_for(config)
    data = None
    if request.kind == "sft":
        data = await asyncio.to_thread(_demonstrations, project, config, model)
    else:
        await _check_rollouts(project, config)
    spec = RunSpec(
        id=ulid(),
        name=run_name(),
        kind=request.kind,
        project=config.name or project.name,
        started_at=time.time(),
        config=config,
        model_path=str(model),
        rubric="" if data else _rubric(project, config, origin),
        versions=versions(),
        parent=origin.parent if origin else None,
        keys_at_home=request.keys_at_home,
        supervised=plan_of(config, data) if data else None,
    )
    folder = await make_branch(origin, project, spec) if origin else make_folder(project, spec)
    if data:
        try:
            await asyncio.to_thread(store_examples, folder, data)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder, spec


async def make_sweep_run(
    project: Path, config: ProjectConfig, run_id: str, place: RunOfSweep
) -> tuple[Path, RunSpec]:
    """Create the folder of the run `place` of a sweep, with the settings `config` and the id that
    the sweep has stored for it. Raises ConfigError, ModelError, Refused; no file is left then."""
    model = await check_sweep_run(project, config)
    spec = RunSpec(
        id=run_id,
        name=run_name(),
        project=config.name or project.name,
        started_at=time.time(),
        config=config,
        model_path=str(model),
        rubric=rubric_of(project, config.judge),
        versions=versions(),
        sweep=place,
    )
    shutil.rmtree(project / "runs" / run_id, ignore_errors=True)  # of a start that was interrupted
    return make_folder(project, spec), spec


async def check_sweep_run(project: Path, config: ProjectConfig) -> Path:
    """Check whether a training run with these settings can start; returns the model's folder.
    Raises ConfigError, ModelError, Refused."""
    refuse_outside(config)
    check_files(project, config)
    check_addresses(config)
    await asyncio.to_thread(_check_cluster, config)
    model = model_for(config)
    await _check_rollouts(project, config)
    rubric_of(project, config.judge)
    return model


def _check_cluster(config: ProjectConfig) -> None:
    """Check that the cluster of the settings is in the list and can carry them. Raises Refused,
    ConfigError, PolicyError."""
    if config.backend.cluster:
        find_cluster(config.backend.cluster)
        refuse_config(config)


async def _check_rollouts(project: Path, config: ProjectConfig) -> None:
    """Check scenarios, and the agent's sandbox and packages. Raises ConfigError, Refused."""
    check(config.train.curriculum, load_scenarios(project, config, "train"))
    load_scenarios(project, config, "validation")
    await asyncio.to_thread(require_sandbox, config.agent)
    await packages_python(project, config.agent)


def make_folder(project: Path, spec: RunSpec, scenarios: Sequence[Scenario] = ()) -> Path:
    """Create a run folder in the project with the run's spec. `scenarios` are stored with the run
    if there are any; otherwise the project's are used."""
    folder = project / "runs" / spec.id
    folder.mkdir(parents=True)
    if scenarios:
        store_scenarios(folder, scenarios)
    write_spec(folder, spec)
    return folder


def _demonstrations(project: Path, config: ProjectConfig, model: Path) -> Data:
    """Demonstrations of an SFT run. Raises ConfigError if they cannot be trained on."""
    with ChatFormat(model, config.model) as chat:
        data = collect(project, config, chat)
    refuse(project, config, data)
    return data


def _rubric(project: Path, config: ProjectConfig, origin: Origin | None) -> str:
    """Rubric stored with the run: that of its parent for a replay, else the current one. Raises
    ConfigError if it is invalid."""
    if origin and origin.parent.replay and not isinstance(origin.source, Path):
        return origin.source.spec.rubric
    return rubric_of(project, config.judge)

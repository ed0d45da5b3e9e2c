"""A request → the folder of a run that can begin: everything that can be wrong is said before."""

import contextlib
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from engine import __version__
from engine.branch import Origin, find_origin, plant
from engine.identity import run_name, ulid
from engine.judge.rubric import load_rubric
from engine.judge.ruler import check_fit
from engine.models import find_model
from engine.project import load_config, load_scenarios
from engine.protocol.config import JudgeConfig, ProjectConfig
from engine.protocol.records import RunSpec
from engine.protocol.requests import StartRun
from engine.run import write_spec

VERSIONED = ("torch", "transformers", "peft", "tokenizers", "apsw")


async def make_run(project: Path, request: StartRun) -> tuple[Path, RunSpec]:
    """Raises ConfigError, ModelError, Refused; what it raises leaves nothing behind."""
    origin = find_origin(project, request) if request.origin else None
    config = origin.config if origin else load_config(project, request.overrides)
    load_scenarios(project, config, "train")
    load_scenarios(project, config, "validation")
    spec = RunSpec(
        id=ulid(),
        name=run_name(),
        kind=request.kind,
        project=config.name or project.name,
        started_at=time.time(),
        config=config,
        model_path=str(find_model(config.model.name)),
        rubric=_rubric(project, config, origin),
        versions=_versions(),
        parent=origin.parent if origin else None,
    )
    if origin:
        return await plant(origin, project, spec), spec
    folder = project / "runs" / spec.id
    folder.mkdir(parents=True)
    write_spec(folder, spec)
    return folder, spec


def _rubric(project: Path, config: ProjectConfig, origin: Origin | None) -> str:
    """As it is now; the run keeps it. A replay has its parent's. Raises ConfigError where it
    cannot be used."""
    if origin and origin.parent.replay and not isinstance(origin.source, Path):
        return origin.source.spec.rubric
    judge: JudgeConfig = config.judge
    if not (judge.enabled and judge.models):
        return ""
    rubric = load_rubric(project / judge.rubric)
    check_fit(judge, rubric)
    return rubric.source


def _versions() -> dict[str, str]:
    found = {"atelier": __version__, "python": platform.python_version(), "system": sys.platform}
    for name in VERSIONED:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found

"""Preview of an SFT run: the demonstrations that it would use."""

from pathlib import Path

from engine.models.registry import find_model, needs_weights
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ConfigError
from engine.protocol.records.demonstrations import Demonstrations
from engine.rollout.rendering.chat import ChatFormat
from engine.training.sft.data import SHOWN, collect, plan_of, refuse


def view(project: Path, config: ProjectConfig, shown: int | None = SHOWN) -> Demonstrations:
    """Return the demonstrations of a project, with up to `shown` bad lines per file (None: all).
    Obstacles to a start are part of the result. Raises ModelError."""
    with ChatFormat(find_model(config.model.name, needs_weights(config)), config.model) as chat:
        data = collect(project, config, chat, shown)
    plan, problem = plan_of(config, data), None
    try:
        refuse(project, config, data)
    except ConfigError as error:
        problem = error.problem
    return Demonstrations(
        files=data.files,
        train=plan.train,
        held_out=plan.held_out,
        updates=plan.updates,
        problem=problem,
    )

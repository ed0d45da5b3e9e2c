"""Texts of the form that describe the configuration."""

from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.choices import ModelInfo
from studio.pages.setup.form.effort import stop_of
from studio.pages.setup.form.fields import shown
from studio.text import formatting


def model_words(model: ModelInfo) -> str:
    """Describe a model: title, parameters, and download size if it is not on this machine."""
    facts = [model.title]
    if model.parameters:
        facts.append(f"{formatting.short(model.parameters)} parameters")
    if model.path is None and model.download_bytes:
        facts.append(f"downloads {formatting.size(model.download_bytes)}")
    return " · ".join(facts)


def effort_words(config: ProjectConfig) -> str:
    """Describe the number of steps and rollouts, and the validation interval."""
    train = config.train
    tested = (
        f"validation every {train.validate_every} steps"
        if train.validate_every
        else "validation at start and end"
    )
    own = "" if stop_of(train.steps) is not None else "Custom · "
    return (
        f"{own}{formatting.plural(train.steps, 'step')} · "
        f"{train.groups * train.group_size} rollouts per step · {tested}"
    )


def follows(config: ProjectConfig) -> list[tuple[str, str]]:
    """Return the derived settings (loss, learning rate, adapter …) as (name, value) rows."""
    train, model, algorithm = config.train, config.model, config.train.algorithm
    experts = ", experts too" if model.adapt_experts else ""
    return [
        ("Loss", f"{algorithm.loss.kind}, mean per {algorithm.average}"),
        ("Advantage", shown(algorithm.advantage.kind)),
        ("Learning rate", f"{train.lr:g}"),
        ("Adapter", f"rank {model.rank}, α {model.alpha:g}{experts}"),
        ("Context", f"{model.max_context:,} tokens"),
        ("Completion", f"up to {train.max_tokens:,}"),
        ("Checkpoints", f"every {train.checkpoint_every} steps"),
        ("Precision", model.dtype),
        ("Seed", str(train.seed)),
    ]

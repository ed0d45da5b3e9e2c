"""Settings by dotted key, as a table of runs shows them."""

from collections.abc import Iterator
from typing import Any

from engine.protocol.config.project import ProjectConfig


def changed_settings(config: ProjectConfig) -> dict[str, Any]:
    """Return the settings that differ from their defaults, by dotted key, without name and
    description of the project. Lists are values of one key."""
    values = config.model_dump(mode="json", exclude_defaults=True, exclude={"name", "description"})
    return dict(flat_values(values))


def default_settings() -> dict[str, Any]:
    """Return the default of every setting by dotted key; None where there is none."""
    return dict(flat_values(ProjectConfig().model_dump(mode="json")))


def flat_values(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of nested tables; an empty table has no values."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from flat_values(value, f"{name}.")
        else:
            yield name, value

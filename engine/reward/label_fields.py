"""Custom label fields of one group as values and as reward parts. Pure functions."""

from collections.abc import Collection, Mapping, Sequence

from engine.protocol.config.labels import FieldValue
from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.labels import Word, field_part

Values = dict[str, dict[str, FieldValue]]
"""Trajectory id → field → value."""


def field_values(config: ProjectConfig, words: Sequence[Word]) -> Values:
    """Return the valid numbers and choices that a person stated, by trajectory id and field name.
    `words` are the statements, oldest first; a later value replaces an earlier one. Fields that the
    configuration lacks are left out."""
    found: Values = {}
    for word in words:
        field = config.labels.fields.get(word.name) if word.kind == "field" else None
        if field is not None and field.may_be_part and word.trajectory_id:
            value = word.value if word.value is not None else word.text
            if not field.problem_of(value):
                found.setdefault(word.trajectory_id, {})[word.name] = value
    return found


def field_weights(config: ProjectConfig) -> dict[str, float]:
    """Return the weight by name of each custom field that is a reward part: that of `label/NAME`
    under reward.weights, else that of `NAME`. Fields without a weight are absent."""
    weights = config.reward.weights
    found = {}
    for name, field in config.labels.fields.items():
        weight = weights.get(field_part(name), weights.get(name))
        if weight is not None and field.may_be_part:
            found[name] = weight
    return found


def field_parts(
    config: ProjectConfig, values: Mapping[str, Mapping[str, FieldValue]], names: Collection[str]
) -> dict[str, dict[str, float]]:
    """Return the reward parts in [0, 1] of custom fields, by trajectory id and part name. `values`
    has the field values by trajectory id. A field counts only if all of `names`, the ids of the
    scorable trajectories, have a value: otherwise it would bias the group's baseline."""
    complete = [
        name
        for name in field_weights(config)
        if names and all(name in values.get(one, {}) for one in names)
    ]
    fields = config.labels.fields
    return {
        one: {field_part(name): fields[name].scaled(values[one][name]) for name in complete}
        for one in names
        if complete
    }

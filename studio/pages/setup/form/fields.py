"""Form rows generated from the pydantic model of the project configuration. The documentation of a
field is its tooltip, and its bounds limit its editor."""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.project import BackendConfig, ProjectConfig, TrainConfig
from engine.protocol.config.tracking import TRACKERS
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import (
    ChoiceField,
    Field,
    NumberField,
    SpinField,
    TableField,
    TextField,
    ToggleField,
    table_words,
)

BACKEND = frozenset(
    {"train.staleness", *(f"backend.{name}" for name in BackendConfig.model_fields)}
)
"""Keys shown in the backend card."""
DIALS = BACKEND | {
    *("name", "description", "model.name", "agent.file", "scenarios.train"),
    *("scenarios.validation", "train.steps", "train.algorithm.preset", "judge.enabled"),
}
"""Keys with their own control; the Advanced section has all others."""
VARIANTS = {
    "train.algorithm.advantage": (
        ("group_mean", "minus the group mean"),
        ("group_std", "minus the group mean, divided by the standard deviation"),
        ("leave_one_out", "minus the mean of the rest of the group"),
        ("reward", "reward without baseline"),
    ),
    "train.algorithm.credit": (
        ("trajectory", "same for all tokens"),
        ("anchors", "per turn, from similar states (GiGPO)"),
        ("value", "per token, from a value head (PPO)"),
    ),
    "train.algorithm.loss": (
        ("clipped", "clipped: the default, PPO and GRPO"),
        ("cispo", "CISPO: for off-policy data; keeps every token"),
        ("gspo", "GSPO: one importance ratio per sequence"),
    ),
    "train.algorithm.correction": (
        ("token_cap", "capped per token"),
        ("token_mask", "outlier tokens masked (IcePop)"),
        ("sequence_mask", "outlier sequences masked"),
        ("none", "none"),
    ),
}
TABLES = ("model.template_variables",)
"""Keys of tables that are edited as one line of text."""
SECTIONS = {"sft": "SFT"}
LABELS = {
    "lr": "Learning rate",
    "kl": "KL weight",
    "kl_in": "Apply KL to",
    "on": "Upload",
    "uri": "Address",
    "endpoint": "Address",
    "host": "Address",
    "content": "Upload messages",
    "when": "Conditions",
    "cpu_s": "Processor time (s)",
}
UNITS = {"s": "s", "mb": "MB", "usd": "USD", "bytes": "bytes"}
"""Units at the end of keys, as labels show them."""


@dataclass(frozen=True)
class FieldSpec:
    """Editable key: dotted name, label, type and default."""

    key: str
    label: str
    help: str
    type: Any
    default: Any
    low: float | None = None
    high: float | None = None


def specs(model: type[BaseModel] = ProjectConfig, prefix: str = "") -> Iterator[FieldSpec]:
    """Yield every editable setting of a config class, sections included; `prefix` begins their keys
    (the class's own key and a dot). Lists and most tables are left out; they are edited in
    project.toml."""
    for name, info in model.model_fields.items():
        key = f"{prefix}{name}"
        kind = info.annotation
        if key in VARIANTS:
            help, first = info.description or "", VARIANTS[key][0][0]
            yield FieldSpec(f"{key}.kind", label_of(name), help, VARIANTS[key], first)
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from specs(kind, f"{key}.")
        elif key in TABLES or _editable(kind) or _is_optional_number(info):
            yield _spec(key, info)


def _spec(key: str, info: FieldInfo) -> FieldSpec:
    low = high = None
    for limit in (*info.metadata, *_limits_of(info.annotation)):
        if isinstance(limit, annotated_types.Ge):
            low = float(limit.ge)  # type: ignore[arg-type]
        elif isinstance(limit, annotated_types.Gt):
            low = float(limit.gt)  # type: ignore[arg-type]
        elif isinstance(limit, (annotated_types.Le, annotated_types.Lt)):
            bound = limit.le if isinstance(limit, annotated_types.Le) else limit.lt
            high = float(bound)  # type: ignore[arg-type]
    return FieldSpec(
        key,
        label_of(key),
        info.description or "",
        info.annotation if _is_optional_number(info) else _plain(info.annotation),
        info.default,
        low,
        high,
    )


def label_of(key: str) -> str:
    """Return the form label of a dotted key, from its last part."""
    name = key.rpartition(".")[2]
    words, _, end = name.rpartition("_")
    unit = UNITS.get(end) if words else None
    text = (words if unit else name).replace("_", " ").capitalize()
    return LABELS.get(name, f"{text} ({unit})" if unit else text)


def section_of(key: str) -> str:
    """Return the heading of the form section of a dotted key."""
    section, _, rest = key.partition(".")
    if section == "track":
        tracker = rest.partition(".")[0]
        return f"Tracking · {next(words for name, words in TRACKERS.items() if name == tracker)}"
    if key.startswith("train.algorithm."):
        return "Algorithm"
    return SECTIONS.get(section, section.capitalize())


def _plain(kind: Any) -> Any:
    """Return T for the annotation `T | None`, which is edited as text; None for other unions."""
    if get_origin(kind) in (Union, types.UnionType):
        rest = [arm for arm in get_args(kind) if arm is not type(None)]
        return rest[0] if len(rest) == 1 else None
    return kind


def _is_optional_number(info: FieldInfo) -> bool:
    """Whether a setting is a number or empty, and empty by default: an empty field of the form
    stands for the default."""
    return info.default is None and _number_of(info.annotation) is not None


def _number_of(kind: Any) -> type | None:
    """Return int or float for the annotation of such a number or None; None for others."""
    arm = _plain(kind)
    number = get_args(arm)[0] if get_origin(arm) is Annotated else arm
    return number if arm is not kind and number in (int, float) else None


def _limits_of(kind: Any) -> list[Any]:
    """Return the bounds of the number in an annotation `Annotated[int, Field(ge=1)] | None`."""
    marks = get_args(_plain(kind))[1:] if _number_of(kind) else ()
    return [limit for mark in marks if isinstance(mark, FieldInfo) for limit in mark.metadata]


def _editable(kind: Any) -> bool:
    plain = _plain(kind)
    return plain in (str, int, float, bool) or get_origin(plain) is Literal


def make_field(spec: FieldSpec) -> Field:
    """Build the editor for the type of a field."""
    if spec.key in TABLES:
        return TableField(spec.label, "name = value")
    if isinstance(spec.type, tuple):
        return ChoiceField(spec.label, spec.type)
    if get_origin(spec.type) is Literal:
        return ChoiceField(spec.label, [(value, shown(value)) for value in get_args(spec.type)])
    if (number := _number_of(spec.type)) is not None:
        return NumberField(spec.label, spec.low, spec.high, "empty", whole=number is int)
    if spec.type is bool:
        return ToggleField(spec.label, spec.label)
    if spec.type is int:
        low = int(spec.low) if spec.low is not None else -1_000_000
        high = min(int(spec.high) if spec.high is not None else 1_000_000_000, 2_147_483_647)
        return SpinField(spec.label, low, high)
    if spec.type is float:
        return NumberField(spec.label, spec.low, spec.high)
    return TextField(spec.label, "" if spec.default is None else str(spec.default), mono=True)


def make_row(spec: FieldSpec) -> FormRow:
    return FormRow(
        spec.key, spec.label, make_field(spec), help=f"{spec.help}\n\n{spec.key}".strip()
    )


def value_at(config: BaseModel, key: str) -> Any:
    """Return the value at a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def changed(config: ProjectConfig) -> list[tuple[FieldSpec, Any]]:
    """Return (field, value) of each advanced setting that differs from its default; for settings of
    the algorithm, from the selected preset."""
    usual = usual_values(config)
    advanced = (spec for spec in specs() if spec.key not in DIALS)
    rows = ((spec, value_at(config, spec.key)) for spec in advanced)
    return [(spec, value) for spec, value in rows if value != value_at(usual, spec.key)]


def usual_values(config: ProjectConfig) -> ProjectConfig:
    """Return the default configuration with the selected algorithm preset."""
    algorithm = Algorithm(preset=config.train.algorithm.preset)
    return ProjectConfig(train=TrainConfig(algorithm=algorithm))


def shown(value: Any) -> str:
    """Format the value of a setting in a few characters."""
    if isinstance(value, dict):
        return table_words(value)
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")

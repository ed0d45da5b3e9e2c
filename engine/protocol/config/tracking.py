"""Trackers on the wire: what a project says of each, how each is, and in which words.

A tracker is another program that is told of a run: metrics to W&B, MLflow, trackio or TensorBoard,
attempts as traces to Langfuse or any OpenTelemetry collector. None is needed, and all are off until
a project turns them on. API keys are in no setting: they are lent, as those of the judges are.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from engine.protocol.base import Value
from engine.protocol.config.section import Section
from engine.protocol.problems import Problem


def _address(text: str) -> str:
    if text and not re.match(r"https?://[^\s/@]+(/\S*)?$", text):
        raise ValueError("is no address: write http:// or https:// and a host, and no key in it")
    return text.rstrip("/")


Address = Annotated[str, AfterValidator(_address)]
"""Empty, or http:// or https:// and a host."""


class WandbConfig(Section):
    """Weights & Biases."""

    on: bool = False
    """Send metrics to Weights & Biases."""
    project: str = ""
    """Project there; the name of this one when empty."""
    entity: str = ""
    """Team or person there; your default one when empty."""
    mode: Literal["online", "offline"] = "online"
    """`offline` writes files into the run folder, for `wandb sync`, and needs no key."""
    host: Address = ""
    """Address of a W&B server of your own; W&B's cloud when empty."""


class MlflowConfig(Section):
    """MLflow."""

    on: bool = False
    """Send metrics to an MLflow server."""
    uri: Address = "http://127.0.0.1:5000"
    """Address of the tracking server."""
    experiment: str = ""
    """Experiment there; the name of this project when empty."""


class TrackioConfig(Section):
    """trackio, on this machine."""

    on: bool = False
    """Write metrics into trackio's database on this machine; `trackio show` opens it."""
    project: str = ""
    """Project there; the name of this one when empty."""


class TensorboardConfig(Section):
    """TensorBoard event files."""

    on: bool = False
    """Write event files into the run folder (`tensorboard/`)."""


class OtelConfig(Section):
    """Any OpenTelemetry collector that takes OTLP over HTTP."""

    on: bool = False
    """Send every attempt as a trace, by the GenAI conventions."""
    endpoint: Address = "http://127.0.0.1:4318"
    """Address of the collector; /v1/traces is added where it ends in no path."""
    content: bool = False
    """Also send what is said: messages, and the judge's reasons. Off, only names and figures."""


class LangfuseConfig(Section):
    """Langfuse."""

    on: bool = False
    """Send every attempt as a trace to Langfuse."""
    host: Address = "https://cloud.langfuse.com"
    """Address of Langfuse: its cloud, or your own."""
    content: bool = False
    """Also send what is said: messages, and the judge's reasons. Off, only names and figures."""


class TrackConfig(Section):
    """Who else is told of a run; nobody by default, and none of them can slow or stop it."""

    wandb: WandbConfig = WandbConfig()
    """Weights & Biases: metrics."""
    mlflow: MlflowConfig = MlflowConfig()
    """MLflow: metrics."""
    trackio: TrackioConfig = TrackioConfig()
    """trackio: metrics."""
    tensorboard: TensorboardConfig = TensorboardConfig()
    """TensorBoard: metrics."""
    otel: OtelConfig = OtelConfig()
    """OpenTelemetry: attempts."""
    langfuse: LangfuseConfig = LangfuseConfig()
    """Langfuse: attempts."""

    @model_validator(mode="after")
    def _those_that_are_on_have_an_address(self) -> "TrackConfig":
        for name, key in (("mlflow", "uri"), ("otel", "endpoint"), ("langfuse", "host")):
            section = getattr(self, name)
            if section.on and not getattr(section, key):
                raise ValueError(f"has {name} on without an address: set track.{name}.{key}")
        return self


TrackerName = Literal["wandb", "mlflow", "trackio", "tensorboard", "otel", "langfuse"]
TRACKERS: dict[TrackerName, str] = {
    "wandb": "W&B",
    "mlflow": "MLflow",
    "trackio": "trackio",
    "tensorboard": "TensorBoard",
    "otel": "OpenTelemetry",
    "langfuse": "Langfuse",
}
"""Names and titles, in the order in which they are shown."""
ENVIRONMENTS: dict[TrackerName, str] = {
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
    "tensorboard": "tensorboard",
    "otel": "otel",
    "langfuse": "otel",
}
"""Whose client library is in which environment."""
VARIABLES: dict[TrackerName, tuple[str, ...]] = {
    "wandb": ("WANDB_API_KEY",),
    "mlflow": ("MLFLOW_TRACKING_TOKEN",),
    "otel": ("OTEL_EXPORTER_OTLP_HEADERS",),
    "langfuse": ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"),
}
"""Environment variables of a terminal that hold a tracker's key; several are joined by a colon."""


def switched_on(config: TrackConfig) -> list[TrackerName]:
    """Those that a project wants."""
    return [name for name in TRACKERS if getattr(config, name).on]


def tracker_keys_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The trackers' keys among environment variables."""
    found = {}
    for name, variables in VARIABLES.items():
        values = [environment.get(one, "") for one in variables]
        if all(values):
            found[str(name)] = ":".join(values)
    return found


TrackerState = Literal["opening", "in_step", "behind", "failing", "missing", "unsent"]
"""`opening`: it is being asked what it has. `behind`: it is told as fast as it listens. `failing`:
tried again later. `missing`: its environment is not installed. `unsent`: nobody sends it anything
now, and it lacks something."""


class TrackerView(Value):
    """How one tracker of a run is."""

    name: TrackerName
    state: TrackerState
    behind: int = 0
    """Steps, validations or groups of attempts that it was not told of yet."""
    problem: Problem | None = None
    """What stands against it."""
    url: str = ""
    """Where the run is to be seen there, where it says so."""
    refused: int = 0
    """Figures, or spans of traces, that it will never take."""
    refusal: str = ""
    """Why, to follow its name."""


class TrackerList(Value):
    """All trackers of a run, in the order in which they are shown."""

    trackers: list[TrackerView] = Field(default_factory=list)
    sending: bool = False
    """Whether anybody is being told right now."""


def sentence_of(view: TrackerView) -> str:
    """How a tracker is, for people; a problem of it begins with its name."""
    lacks = f"{view.behind} behind" if view.behind else ""
    return f"{_standing(view, TRACKERS[view.name], lacks)}{_lost(view)}"


def _standing(view: TrackerView, title: str, lacks: str) -> str:
    match view.state:
        case "opening":
            return f"{title}: being asked what it has"
        case "in_step":
            return f"{title}: in step"
        case "behind":
            return f"{title}: {lacks or 'in step'}"
        case "unsent" if view.problem is None:
            return f"{title}: {lacks}, nobody is sending"
        case _:
            return f"{view.problem}" + (f" ({lacks})" if lacks else "")


def _lost(view: TrackerView) -> str:
    if not view.refused:
        return ""
    what = "span" if view.name in ("otel", "langfuse") else "figure"
    many = "" if view.refused == 1 else "s"
    return f"; {view.refused} {what}{many} refused: it {view.refusal}"

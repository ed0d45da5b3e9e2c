"""Experiment tracking: settings of each tracker, and the state of a run's trackers.

Metrics go to W&B, MLflow, trackio or TensorBoard; trajectories go as traces to Langfuse or any
OpenTelemetry collector. All are off by default. API keys are not part of the settings: they are
passed at run time, like those of the judges.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from engine.protocol.base import Section, Value
from engine.protocol.problems import Problem


def _address(text: str) -> str:
    if text and not re.match(r"https?://[^\s/@]+(/\S*)?$", text):
        raise ValueError(
            "is not a URL: enter http:// or https:// and a host, without user name or API key"
        )
    return text.rstrip("/")


Address = Annotated[str, AfterValidator(_address)]
"""Empty, or http:// or https:// and a host."""


class WandbConfig(Section):
    """Weights & Biases."""

    on: bool = False
    """Send metrics to Weights & Biases."""
    project: str = ""
    """W&B project; the name of this project when empty."""
    entity: str = ""
    """W&B team or user; your default one when empty."""
    mode: Literal["online", "offline"] = "online"
    """`offline` writes files into the run folder, for `wandb sync`; no API key needed."""
    host: Address = ""
    """URL of a self-hosted W&B server; W&B's cloud when empty."""


class MlflowConfig(Section):
    """MLflow."""

    on: bool = False
    """Send metrics to an MLflow server."""
    uri: Address = "http://127.0.0.1:5000"
    """URL of the tracking server."""
    experiment: str = ""
    """MLflow experiment; the name of this project when empty."""


class TrackioConfig(Section):
    """trackio on this machine."""

    on: bool = False
    """Write metrics into trackio's database on this machine; `trackio show` opens it."""
    project: str = ""
    """trackio project; the name of this project when empty."""


class TensorboardConfig(Section):
    """TensorBoard event files."""

    on: bool = False
    """Write event files into the run folder (`tensorboard/`)."""


class OtelConfig(Section):
    """Any OpenTelemetry collector that takes OTLP over HTTP."""

    on: bool = False
    """Send every trajectory as a trace, following the GenAI semantic conventions."""
    endpoint: Address = "http://127.0.0.1:4318"
    """URL of the collector; /v1/traces is appended if it has no path."""
    content: bool = False
    """Also send content: messages and the judge's reasons. If off, only names and numbers are
    sent."""


class LangfuseConfig(Section):
    """Langfuse."""

    on: bool = False
    """Send every trajectory as a trace to Langfuse."""
    host: Address = "https://cloud.langfuse.com"
    """URL of Langfuse Cloud or of a self-hosted server."""
    content: bool = False
    """Also send content: messages and the judge's reasons. If off, only names and numbers are
    sent."""


class TrackConfig(Section):
    """Experiment trackers of a run; none by default. A tracker never slows down or stops a run."""

    wandb: WandbConfig = WandbConfig()
    """Send metrics to Weights & Biases."""
    mlflow: MlflowConfig = MlflowConfig()
    """Send metrics to MLflow."""
    trackio: TrackioConfig = TrackioConfig()
    """Send metrics to trackio."""
    tensorboard: TensorboardConfig = TensorboardConfig()
    """Write metrics for TensorBoard."""
    otel: OtelConfig = OtelConfig()
    """Send trajectories as OpenTelemetry traces."""
    langfuse: LangfuseConfig = LangfuseConfig()
    """Send trajectories to Langfuse."""

    @model_validator(mode="after")
    def _check_addresses(self) -> "TrackConfig":
        for name, key in (("mlflow", "uri"), ("otel", "endpoint"), ("langfuse", "host")):
            section = getattr(self, name)
            if section.on and not getattr(section, key):
                raise ValueError(f"has {name} on without a URL: set track.{name}.{key}")
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
"""Titles of the trackers by name, in display order."""
ENVIRONMENTS: dict[TrackerName, str] = {
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
    "tensorboard": "tensorboard",
    "otel": "otel",
    "langfuse": "otel",
}
"""Environment that has the tracker's client library, by tracker."""
VARIABLES: dict[TrackerName, tuple[str, ...]] = {
    "wandb": ("WANDB_API_KEY",),
    "mlflow": ("MLFLOW_TRACKING_TOKEN",),
    "otel": ("OTEL_EXPORTER_OTLP_HEADERS",),
    "langfuse": ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"),
}
"""Environment variables that hold a tracker's API key; several values are joined by a colon."""


def switched_on(config: TrackConfig) -> list[TrackerName]:
    """Return the names of the enabled trackers, in display order."""
    return [name for name in TRACKERS if getattr(config, name).on]


def tracker_keys_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return tracker → API key, from environment variables (name → value); trackers without a key
    are absent."""
    keys = {}
    for name, variables in VARIABLES.items():
        values = [environment.get(one, "") for one in variables]
        if all(values):
            keys[str(name)] = ":".join(values)
    return keys


TrackerState = Literal["opening", "in_step", "behind", "failing", "missing", "unsent"]
"""State of a tracker. `opening`: connecting. `in_step`: everything sent. `behind`: sending.
`failing`: failed, retried later. `missing`: its environment is not installed. `unsent`: nothing is
being sent, and the tracker lacks data."""


class TrackerView(Value):
    """State of one tracker of a run."""

    name: TrackerName
    state: TrackerState
    behind: int = 0
    """Number of steps, validations or groups that have not been sent yet."""
    problem: Problem | None = None
    """Why the tracker does not work."""
    url: str = ""
    """URL of the run in the tracker, if known."""
    refused: int = 0
    """Metrics or spans that the tracker rejected for good."""
    refusal: str = ""
    """Reason for the rejection, shown after the tracker's name."""


class TrackerList(Value):
    """All trackers of a run, in display order."""

    trackers: list[TrackerView] = Field(default_factory=list)
    sending: bool = False
    """State: whether events are being sent to the trackers at this moment."""


def sentence_of(view: TrackerView) -> str:
    """Describe the state of a tracker in one text; if there is a problem, the text begins with the
    tracker's name."""
    backlog = f"{view.behind} not sent" if view.behind else ""
    return f"{_state_text(view, TRACKERS[view.name], backlog)}{_rejected_text(view)}"


def _state_text(view: TrackerView, title: str, backlog: str) -> str:
    match view.state:
        case "opening":
            return f"{title}: connecting"
        case "in_step":
            return f"{title}: up to date"
        case "behind":
            return f"{title}: {backlog or 'up to date'}"
        case "unsent" if view.problem is None:
            return f"{title}: {backlog}, upload not running"
        case _:
            return f"{view.problem}" + (f" ({backlog})" if backlog else "")


def _rejected_text(view: TrackerView) -> str:
    if not view.refused:
        return ""
    what = "span" if view.name in ("otel", "langfuse") else "metric"
    many = "" if view.refused == 1 else "s"
    return f"; {view.refused} {what}{many} rejected: it {view.refusal}"

"""Base models: what the hub offers, what is on this machine, downloads, and whether they fit."""

from typing import Annotated, Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem
from engine.protocol.records.machine.hardware import MemoryPart

FitVerdict = Literal["fits", "fits_4bit", "too_large"]
DownloadState = Literal[
    "queued", "downloading", "verifying", "converting", "paused", "interrupted", "failed"
]
"""`interrupted`: the engine that downloaded it has exited; it can be resumed."""
ModelName = Annotated[str, Field(min_length=1, max_length=400)]


class HubModel(Value):
    """Model on the Hugging Face hub, as its search lists it. Unreported values are None."""

    id: str
    """Name on the hub: `org/name`."""
    downloads: int | None = None
    """Downloads in the last 30 days."""
    likes: int | None = None
    licence: str = ""
    """Licence by its identifier on the hub; empty if its authors name none."""
    gated: bool = False
    """Whether its authors ask to accept terms before the download."""
    parameters: int | None = None
    parameters_of: dict[str, int] = Field(default_factory=dict)
    """Number of parameters by data type of safetensors."""
    weight_bytes: int | None = None
    """Bytes of its weights, from the number of parameters by data type."""
    architecture: str = ""
    updated_at: float | None = None
    """Unix time of the last change, in seconds."""
    chat: bool | None = None
    """Whether it has a chat template; None if the search does not report it."""
    path: str | None = None
    """Folder of the model on this machine; None if it is not downloaded."""


class HubFile(Value):
    """File of a model that a download fetches."""

    name: str
    bytes: int


class ModelFit(Value):
    """Forecast of a model's peak memory during training, compared with the chosen compute."""

    verdict: FitVerdict | None = None
    """None if it is not known; `unknown` says why."""
    unknown: str = ""
    device: str = ""
    """Compute that was asked about, in words."""
    peak_bytes: int | None = None
    """Peak with the weights in their own precision."""
    peak_4bit_bytes: int | None = None
    """Peak with the weights in 4 bits; None where 4 bits do not apply (CPU)."""
    room_bytes: int | None = None
    """Memory available for the run."""
    parts: tuple[MemoryPart, ...] = ()
    """Parts of the peak in `verdict`'s precision."""
    formula: str = ""
    """Formula of the peak, in words."""
    settings: str = ""
    """Settings that the forecast is made with: a project's name, or the defaults."""


class ModelFacts(Value):
    """Facts of one model: of the hub, or of a folder on this machine."""

    summary: HubModel
    title: str
    page: str = ""
    """Address of its page in a browser; empty for a folder."""
    files: tuple[HubFile, ...] = ()
    """Files of the download, largest first."""
    download_bytes: int | None = None
    arrived_bytes: int = 0
    """Bytes of the download that are on this machine already."""
    context_tokens: int | None = None
    """Longest sequence that it was made for."""
    tools: bool | None = None
    """Whether its chat template renders tools; None without a template."""
    problem: Problem | None = None
    """Why it cannot be trained."""
    fit: ModelFit = ModelFit()


class LocalModel(Value):
    """Model on this machine, or a starter model that can be downloaded."""

    name: str
    title: str
    kind: Literal["starter", "hub", "uploaded", "folder"]
    """`uploaded`: from another machine; `folder`: a folder that a project uses."""
    path: str | None = None
    """None if it is not downloaded."""
    weights: bool = True
    """Whether it has its weights; without them, only runs at a cluster can use it."""
    bytes: int = 0
    """Size on disk in bytes; files shared by versions count once."""
    download_bytes: int | None = None
    """Size of the download in bytes, for a starter that is not here."""
    parameters: int | None = None
    used_at: float | None = None
    """Unix time of the last read or change in seconds, by the file system."""
    projects: tuple[str, ...] = ()
    """Names of the projects whose settings name it."""
    runs: int = 0
    """Number of runs that were trained from it."""
    active_runs: tuple[str, ...] = ()
    """Names of active or queued runs that use it."""
    removable: bool = False
    """Whether deleting it is offered; folders belong to the person."""
    problem: Problem | None = None
    """Why it cannot be trained."""


class ModelDownload(Value):
    """Download of a model, its state and progress."""

    name: str
    title: str
    state: DownloadState
    done_bytes: int = 0
    total_bytes: int | None = None
    """None until the files are listed."""
    speed: float | None = None
    """Bytes per second over the last seconds; None if not measured."""
    rest_s: float | None = None
    """Seconds left at that speed."""
    elsewhere: bool = False
    """Whether another process of this user downloads it."""
    problem: Problem | None = None
    """Why it failed or was interrupted."""


class ModelList(Value):
    """Models on this machine, downloads in order, and the disk that they lie on."""

    models: list[LocalModel]
    downloads: list[ModelDownload] = Field(default_factory=list)
    folder: str
    """Cache folder of the hub's models."""
    free_bytes: int
    disk_bytes: int
    """Size of the disk."""


class DeletedModel(Value):
    """Result of a deletion."""

    name: str
    freed_bytes: int
    runs: int = 0
    """Number of runs that need the model again to be resumed."""


class ActOnDownload(Request):
    """Start or resume, pause or cancel the download of a model. Idempotent. Cancelling deletes
    what was downloaded so far."""

    name: ModelName
    action: Literal["start", "pause", "cancel"]
    weights: bool | None = None
    """Whether a start downloads the weights too, which runs at a cluster do not need; None: as the
    download was begun, else with them."""


class DeleteModel(Request):
    """Delete a model from this machine's caches."""

    name: ModelName

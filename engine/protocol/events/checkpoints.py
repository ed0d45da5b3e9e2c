"""Checkpoint events: saved by the run, deleted by retention rules, pinned or exported."""

from typing import Literal

from engine.protocol.base import BaseEvent
from engine.protocol.records.runs import Checkpoint
from engine.protocol.requests.exports import ExportDtype, ExportFormat, Parity


class CheckpointSaved(BaseEvent):
    kind: Literal["checkpoint.saved"] = "checkpoint.saved"
    checkpoint: Checkpoint


class CheckpointPinned(BaseEvent):
    """The checkpoint was pinned or unpinned by a person."""

    kind: Literal["checkpoint.pinned"] = "checkpoint.pinned"
    step: int
    pinned: bool
    note: str = ""


class CheckpointBranched(BaseEvent):
    """Another run was branched from the checkpoint."""

    kind: Literal["checkpoint.branched"] = "checkpoint.branched"
    step: int
    child: str
    """Id of the branched run."""
    name: str


class CheckpointDropped(BaseEvent):
    """The checkpoint was deleted: by a retention rule, by a person, or because it is damaged. Its
    files are removed after this event is stored."""

    kind: Literal["checkpoint.dropped"] = "checkpoint.dropped"
    step: int
    bytes: int
    by: Literal["rule", "person", "damage"] = "rule"


class CheckpointExported(BaseEvent):
    """The checkpoint was exported, so the retention rules keep it."""

    kind: Literal["checkpoint.exported"] = "checkpoint.exported"
    step: int
    format: ExportFormat
    dtype: ExportDtype
    path: str
    """Path on the engine's machine."""
    bytes: int
    verdict: Parity

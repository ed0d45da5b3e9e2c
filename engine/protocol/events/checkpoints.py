"""What is said of checkpoints: by the run that saves them, by rules, and by people."""

from typing import Literal

from engine.protocol.events.base import BaseEvent
from engine.protocol.records.runs import Checkpoint
from engine.protocol.requests.exports import ExportDtype, ExportFormat, Parity


class CheckpointSaved(BaseEvent):
    kind: Literal["checkpoint.saved"] = "checkpoint.saved"
    checkpoint: Checkpoint


class CheckpointPinned(BaseEvent):
    """A person wants it kept, or no longer."""

    kind: Literal["checkpoint.pinned"] = "checkpoint.pinned"
    step: int
    pinned: bool
    note: str = ""


class CheckpointBranched(BaseEvent):
    """Another run has begun with it."""

    kind: Literal["checkpoint.branched"] = "checkpoint.branched"
    step: int
    child: str
    """Id of that run."""
    name: str


class CheckpointDropped(BaseEvent):
    """No rule keeps it any longer, a person deleted it, or it is damaged; its files go after this
    is stored."""

    kind: Literal["checkpoint.dropped"] = "checkpoint.dropped"
    step: int
    bytes: int
    by: Literal["rule", "person", "damage"] = "rule"


class CheckpointExported(BaseEvent):
    """Somebody has files made of it: it is worth keeping."""

    kind: Literal["checkpoint.exported"] = "checkpoint.exported"
    step: int
    format: ExportFormat
    dtype: ExportDtype
    path: str
    """On the engine's machine."""
    bytes: int
    verdict: Parity

"""Samples and models that a person can choose from."""

from engine.protocol.base import Value
from engine.protocol.problems import Problem


class Sample(Value):
    """A complete project that can be copied."""

    name: str
    title: str
    words: str
    duration: str
    """Typical duration, and the hardware it is for: `4 min · CPU`."""
    place: int = 100
    """Position in the list of samples; 1 is the one to begin with."""
    files: tuple[str, ...] = ()
    """Files shared with other samples, relative to the sample's folder; copied along with it."""


class ModelInfo(Value):
    name: str
    title: str
    path: str | None
    """Folder of the model; None while it is not on this machine."""
    download_bytes: int = 0
    parameters: int | None = None
    problem: Problem | None = None

"""Sample projects and models to choose from."""

from engine.protocol.base import Value
from engine.protocol.problems import Problem


class Sample(Value):
    """Complete sample project that can be copied."""

    name: str
    title: str
    words: str
    duration: str
    """Typical duration and hardware: `4 min · CPU`."""
    place: int = 100
    """Position in the list of samples; 1 is the recommended first one."""
    files: tuple[str, ...] = ()
    """Files shared with other samples, relative to the sample's folder; also copied."""


class ModelInfo(Value):
    name: str
    title: str
    path: str | None
    """Folder of the model; None if it is not downloaded."""
    download_bytes: int = 0
    parameters: int | None = None
    problem: Problem | None = None

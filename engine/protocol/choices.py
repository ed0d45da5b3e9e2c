"""Samples and models that a person can choose from."""

from engine.protocol.problems import Problem
from engine.protocol.records import Record


class Sample(Record):
    """A complete project that can be copied."""

    name: str
    title: str
    words: str
    duration: str
    """How long on what: `4 min · CPU`."""
    place: int = 100
    """Where it stands among the samples: 1 is the one to begin with."""
    files: tuple[str, ...] = ()
    """What it shares with others, relative to its folder; copied along with it."""


class ModelInfo(Record):
    name: str
    title: str
    path: str | None
    """None when it is not on this machine yet."""
    download_bytes: int = 0
    parameters: int | None = None
    problem: Problem | None = None

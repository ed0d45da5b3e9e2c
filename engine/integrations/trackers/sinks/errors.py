"""Errors of trackers, worded to follow the tracker's name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lost:
    """Items that a service never takes."""

    count: int = 0
    words: str = ""
    """Why, a sentence that follows its name."""


class SinkError(Exception):
    """`words` go on after the service's name: "cannot be reached at …"."""

    def __init__(self, code: str, words: str, hint: str = "", detail: str = "") -> None:
        super().__init__(detail or words)
        self.code, self.words, self.hint = code, words, hint


def unreachable(address: str, error: Exception) -> SinkError:
    words = f"cannot be reached at {address}."
    hint = "Check the address and the network; unsent data follows as soon as it is back."
    return SinkError("unreachable", words, hint, f"{type(error).__name__}: {error}")


def refused(what: str, detail: str = "") -> SinkError:
    """`what` it answers."""
    hint = "Set a valid key under Settings, Tracker keys, or in its environment variable."
    return SinkError("key", f"rejected the key ({what}).", hint, detail)

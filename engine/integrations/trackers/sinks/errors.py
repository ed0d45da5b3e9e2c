"""Errors of trackers, worded to follow the tracker's name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lost:
    """Number of items that a service rejected permanently."""

    count: int = 0
    words: str = ""
    """Reason, as a sentence that follows the service's name."""


class SinkError(Exception):
    """Failure of a tracker service. `words` is a sentence without its subject, the service's name:
    "cannot be reached at …"."""

    def __init__(self, code: str, words: str, hint: str = "", detail: str = "") -> None:
        super().__init__(detail or words)
        self.code, self.words, self.hint = code, words, hint


def unreachable(address: str, error: Exception) -> SinkError:
    words = f"cannot be reached at {address}."
    hint = "Check the address and the network; unsent data is uploaded later."
    return SinkError("unreachable", words, hint, f"{type(error).__name__}: {error}")


def refused(what: str, detail: str = "") -> SinkError:
    """Error for a key that a tracker rejects: `what` is its answer in short, `detail` in full."""
    hint = (
        "Set a valid key under Settings → Tracker keys, or in the tracker's environment variable."
    )
    return SinkError("key", f"rejected the key ({what}).", hint, detail)

"""Rows of downloads: state, progress and buttons. Free of I/O."""

from engine.protocol.requests.models import DownloadState, ModelDownload
from studio.store.offers import Offer
from studio.store.projects.environments import Row
from studio.text import formatting

ACTIVE: tuple[DownloadState, ...] = ("queued", "downloading", "verifying", "converting")
CHIPS: dict[DownloadState, tuple[str, str, str]] = {
    "queued": ("queued", "neutral", "clock"),
    "downloading": ("downloading", "info", "download"),
    "verifying": ("verifying", "info", "shield-check"),
    "converting": ("converting", "info", "refresh-cw"),
    "paused": ("paused", "neutral", "pause"),
    "interrupted": ("interrupted", "warn", "unplug"),
    "failed": ("failed", "bad", "octagon-alert"),
}
_PAUSE = Offer("pause", "Pause", "pause", "Stop, and keep the downloaded part")
_RESUME = Offer("start", "Resume", "play", "Resume the download")
_AGAIN = Offer("start", "Try again", "rotate-ccw", "Start the download again")
_CANCEL = Offer("cancel", "Cancel", "x", "Stop, and delete the downloaded part", quiet=True)


def is_active(download: ModelDownload) -> bool:
    """Return whether a download is queued or in progress: it needs no action by the user."""
    return download.state in ACTIVE


def download_row(download: ModelDownload) -> Row:
    """Return the row of a download."""
    problem = download.problem
    nothing = problem is not None and not download.done_bytes
    return Row(
        download.name,
        download.title,
        "",
        CHIPS[download.state],
        warning=_warning(download),
        problem=f"{problem.message} {problem.hint}".strip() if problem else "",
        progress=None if nothing else (progress_words(download), share_of(download)),
        offers=_offers(download),
    )


def share_of(download: ModelDownload) -> float:
    """Return the downloaded share of a model's bytes, 0 to 1."""
    return min(1.0, download.done_bytes / download.total_bytes) if download.total_bytes else 0.0


def progress_words(download: ModelDownload) -> str:
    """Describe the progress: bytes, speed and time left."""
    done = formatting.size(download.done_bytes)
    if download.total_bytes is None:
        return (
            "Reading the list of files" if download.state == "downloading" else f"{done} downloaded"
        )
    words = [f"{done} of {formatting.size(download.total_bytes)}"]
    if download.speed is not None:
        words.append(f"{formatting.size(download.speed)}/s")
    if download.rest_s is not None:
        words.append(f"{formatting.duration(download.rest_s)} left")
    return " · ".join(words)


def _warning(download: ModelDownload) -> str:
    """Describe why a download does not proceed in this engine; empty if it does."""
    if download.elsewhere:
        return "Another process is downloading this model."
    if download.state == "interrupted" and download.problem is None:
        return "The engine exited during the download. The downloaded part is kept."
    return ""


def _offers(download: ModelDownload) -> tuple[Offer, ...]:
    if download.elsewhere:
        return ()
    if download.state in ("downloading", "queued"):
        return (_PAUSE, _CANCEL)
    if is_active(download):
        return (_CANCEL,)
    return (_RESUME if download.done_bytes else _AGAIN, _CANCEL)

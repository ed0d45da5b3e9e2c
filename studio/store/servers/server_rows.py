"""Rows and pages of remote servers: text, buttons, and progress of being added. Free of I/O."""

from dataclasses import dataclass
from typing import Literal

from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.remote import HostReport, HostView
from studio.store.offers import Offer
from studio.store.servers.servers import ENGINES, HostWords, share_of, tick_words, words_of
from studio.text import formatting

Verb = Literal[
    "connect", "disconnect", "install", "roll_back", "take_over", "stop_engine", "remove", "forget"
]
Step = Literal["waiting", "report", "installing", "ready", "failed"]
REPORTED = ("host.not_installed", "host.unfit")
"""Problem codes of a surveyed server without an engine."""
BROKEN = ("engine.not_started", "engine.unreachable", "host.engine_silent", "host.command_failed")
"""Problem codes that suggest a damaged engine."""


@dataclass(frozen=True)
class Row:
    """Row of one server."""

    name: str
    words: HostWords
    facts: str
    problem: str = ""
    progress: tuple[str, float | None] | None = None
    offers: tuple[Offer, ...] = ()


CONNECT = Offer("connect", "Connect", "plug-zap", "Connect, and reconnect automatically")
RETRY = Offer("connect", "Retry now", "refresh-cw", "Retry now instead of waiting")
DISCONNECT = Offer("disconnect", "Disconnect", "unplug", "Disconnect; remote runs continue")
CANCEL = Offer("disconnect", "Cancel", "x", "Cancel; uploaded files are kept for a later attempt")
TAKE_OVER = Offer(
    "take_over",
    "Take over",
    "plug-zap",
    "Connect this machine to the server, and disconnect the machine that is using it now",
)
UPDATE = Offer("install", "Update", "download", "Install this version; the previous one is kept")
REPAIR = Offer("install", "Repair", "wrench", "Reinstall missing or damaged files of the engine")
ROLL_BACK = Offer("roll_back", "Roll back", "undo-2", "Use the previous engine again")
STOP = Offer("stop_engine", "Stop engine", "square", "Stop the engine; its runs can be resumed")
REMOVE = Offer("remove", "Remove from this server", "trash-2", "Delete Atelier on the server",
               quiet=True)  # fmt: skip
FORGET = Offer("forget", "Remove entry", "x", "Remove from the list; the server is not changed",
               quiet=True)  # fmt: skip


def step_of(view: HostView | None) -> Step:
    """Return the step of the "add server" wizard that fits a server's state (None: not listed
    yet)."""
    if view is None:
        return "waiting"
    code = view.problem.code if view.problem else ""
    match view.state:
        case "connected":
            return "ready"
        case "installing":
            return "installing"
        case "stopped" if code in REPORTED and view.report is not None:
            return "report"
        case "stopped" | "reconnecting":
            return "failed"
        case _:
            return "waiting"


def row_of(view: HostView, now: float) -> Row:
    """Return the row of a server in Settings; `now` is in Unix seconds."""
    problem = ""
    if view.state == "stopped" and view.problem and view.problem.code not in REPORTED[:1]:
        problem = f"{view.problem.message} {view.problem.hint}".strip()
    busy = view.tick is not None and view.state in ("installing", "connected")
    progress = (tick_words(view.tick), share_of(view.tick)) if busy and view.tick else None
    words = words_of(view, now)
    return Row(view.spec.name, words, _facts(view), problem, progress, next_offers(view))


def _facts(view: HostView) -> str:
    parts = [view.spec.address]
    if view.info is not None:
        parts.append(view.info.device)
    elif view.report is not None and view.report.cards:
        parts.append(cards_words(view.report))
    if going := runs_on(view):
        parts.append(formatting.plural(len(going), "run") + " active")
    if view.outdated:
        parts.append("engine version differs")
    return " · ".join(parts)


def next_offers(view: HostView) -> tuple[Offer, ...]:
    """Return the buttons of a server's row, by its state: the next step, if any."""
    code = view.problem.code if view.problem else ""
    match view.state:
        case "connected":
            return (UPDATE,) if view.outdated else ()
        case "connecting" | "asking" | "starting" | "installing":
            return (CANCEL,)
        case "reconnecting":
            return (RETRY,)
        case "stopped" if code == "host.not_installed":
            return (install_offer(view.report),)
        case "stopped" if code == "host.other_home":
            return (TAKE_OVER,)
        case "stopped" if code == "host.other_version":
            return (UPDATE,)
        case _:
            return (CONNECT,)


def all_offers(view: HostView) -> tuple[tuple[Offer, ...], tuple[Offer, ...], tuple[Offer, ...]]:
    """Return the buttons of a server's page in three groups: connection, engine, removal."""
    first, engine = list(next_offers(view)), list[Offer]()
    if view.state == "connected":
        if view.report and any(one.previous for one in view.report.engines):
            engine.append(ROLL_BACK)
        engine.append(STOP)
        first.append(DISCONNECT)
    elif view.state == "reconnecting":
        first.append(DISCONNECT)
        engine += [REPAIR] if view.problem and view.problem.code in BROKEN else []
    elif view.state == "stopped" and CONNECT not in first:
        first.append(RETRY)
    busy = view.state in ("connecting", "asking", "starting", "installing")
    return tuple(first), tuple(engine), () if busy else (REMOVE, FORGET)


def install_offer(report: HostReport | None) -> Offer:
    """Return the Install button, with the download size of a survey (None: not surveyed)."""
    price = formatting.size(report.download_bytes) if report else ""
    words = "Install the engine on the server; a cancelled installation can be resumed"
    return Offer("install", "Install", "download", words, price)


def report_facts(report: HostReport) -> list[tuple[str, str]]:
    """Return hardware and planned installation of a surveyed server, as (name, value) rows."""
    facts = [
        ("Machine", f"{report.cores} cores, {formatting.size(report.memory_bytes)} memory"),
        ("GPUs", cards_words(report) or "none"),
        ("Free disk", f"{formatting.size(report.free_bytes)} · {report.filesystem}"),
        ("Folder", report.folder),
    ]
    if not any(one.current for one in report.engines):
        facts += [
            ("Engine", ENGINES[report.engine]),
            ("Upload", formatting.size(report.download_bytes)),
            ("Disk usage", formatting.size(report.installed_bytes)),
        ]
    return facts


def cards_words(report: HostReport) -> str:
    """Describe the graphics cards of a server: 2 × NVIDIA H200 (150 GB)."""
    names = [f"{one.name} ({formatting.size(one.memory_bytes)})" for one in report.cards]
    counted = {name: names.count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in counted.items())


def engine_lines(view: HostView) -> list[tuple[str, str]]:
    """Return id and use ("in use", "previous", "not used") of each installed engine."""
    report = view.report
    if report is None:
        return []
    words = {True: "in use"}
    return [
        (one.id, words.get(one.current, "previous" if one.previous else "not used"))
        for one in report.engines
    ]


def runs_on(view: HostView) -> list[RunSummary]:
    """Active runs on the server."""
    return [run for run in view.runs if run.state in ACTIVE_STATES]


def unfit(report: HostReport) -> str:
    """Describe the first failed check that rules out an engine; empty if it can run."""
    return next((f"{one.name}: {one.words}" for one in report.checks if one.state == "bad"), "")


def removal_words(view: HostView) -> str:
    """Describe what the removal of a server deletes."""
    report = view.report
    kept = len(view.runs)
    size = f" (about {formatting.size(report.installed_bytes)} with the engine)" if report else ""
    folder = report.folder if report else view.spec.folder or "its folder"
    words = f"Everything in {folder} on {view.spec.name} is deleted{size}"
    if kept:
        words += f", including {formatting.plural(kept, 'run')} with checkpoints"
    return (
        f"{words}. Mirrored data stays on this machine; checkpoints that were not fetched are "
        "lost. The removal is refused while a run is active there."
    )

"""What a server's row and page say and offer, and how far it is with being added. Pure."""

from dataclasses import dataclass
from typing import Literal

from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.remote import HostReport, HostView
from studio.store.servers.servers import ENGINES, HostWords, share_of, tick_words, words_of
from studio.text import formatting

Verb = Literal[
    "connect", "disconnect", "install", "roll_back", "take_over", "stop_engine", "remove", "forget"
]
Step = Literal["waiting", "report", "installing", "ready", "failed"]
REPORTED = ("host.not_installed", "host.unfit")
"""What is said once a server was looked at, and nothing of ours is there."""
BROKEN = ("engine.not_started", "engine.unreachable", "host.engine_silent", "host.command_failed")
"""Its engine may not be whole."""


@dataclass(frozen=True)
class Offer:
    """A button: what it does, its words, its tip; a price, and whether it stands back."""

    verb: Verb
    words: str
    icon: str
    tip: str
    price: str = ""
    quiet: bool = False


@dataclass(frozen=True)
class Row:
    """One server, ready to be shown."""

    name: str
    words: HostWords
    facts: str
    problem: str = ""
    progress: tuple[str, float | None] | None = None
    offers: tuple[Offer, ...] = ()


CONNECT = Offer("connect", "Connect", "plug-zap", "Make the way there, and keep it")
RETRY = Offer("connect", "Retry now", "refresh-cw", "Try at once, not after the wait")
DISCONNECT = Offer("disconnect", "Disconnect", "unplug", "Let go; what runs there goes on")
CANCEL = Offer("disconnect", "Cancel", "x", "What has arrived there is kept, and used later")
TAKE_OVER = Offer("take_over", "Take over", "plug-zap", "It works for this machine from then on")
UPDATE = Offer("install", "Update", "download", "Bring this version there; the one of before stays")
REPAIR = Offer("install", "Repair", "wrench", "Install the engine again, where it is not whole")
ROLL_BACK = Offer("roll_back", "Roll back", "undo-2", "Use the engine of before again")
STOP = Offer("stop_engine", "Stop its engine", "square", "Runs there stop after what is stored")
REMOVE = Offer("remove", "Remove from this server", "trash-2", "Clear away all of Atelier there",
               quiet=True)  # fmt: skip
FORGET = Offer("forget", "Forget", "x", "Strike it from the list; nothing changes there",
               quiet=True)  # fmt: skip


def step_of(view: HostView | None) -> Step:
    """How far a server is that is being added."""
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
    """For the list in Settings: one or two things that one would do next."""
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
        parts.append(formatting.plural(len(going), "run") + " going on")
    if view.outdated:
        parts.append("engine of another version")
    return " · ".join(parts)


def next_offers(view: HostView) -> tuple[Offer, ...]:
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
    """For the page of a server: about its connection, about its engine, and what takes away."""
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
    price = formatting.size(report.download_bytes) if report else ""
    words = "Bring the engine there; it can be cancelled and goes on from there"
    return Offer("install", "Install", "download", words, price)


def report_facts(report: HostReport) -> list[tuple[str, str]]:
    """What is there, and what would be."""
    facts = [
        ("Machine", f"{report.cores} cores, {formatting.size(report.memory_bytes)} memory"),
        ("Cards", cards_words(report) or "none"),
        ("Free disk", f"{formatting.size(report.free_bytes)} · {report.filesystem}"),
        ("Folder", report.folder),
    ]
    if not any(one.current for one in report.engines):
        facts += [
            ("Engine", ENGINES[report.engine]),
            ("To bring", formatting.size(report.download_bytes)),
            ("On its disk", formatting.size(report.installed_bytes)),
        ]
    return facts


def cards_words(report: HostReport) -> str:
    """2 × NVIDIA H200 (150 GB)."""
    names = [f"{one.name} ({formatting.size(one.memory_bytes)})" for one in report.cards]
    counted = {name: names.count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in counted.items())


def engine_lines(view: HostView) -> list[tuple[str, str]]:
    """Installed engines: id, and what it is for."""
    report = view.report
    if report is None:
        return []
    words = {True: "in use"}
    return [
        (one.id, words.get(one.current, "of before" if one.previous else "not used"))
        for one in report.engines
    ]


def runs_on(view: HostView) -> list[RunSummary]:
    """Those of mine that go on there."""
    return [run for run in view.runs if run.state in ACTIVE_STATES]


def unfit(report: HostReport) -> str:
    """The first thing that makes an engine impossible; empty where it fits."""
    return next((f"{one.name}: {one.words}" for one in report.checks if one.state == "bad"), "")


def removal_words(view: HostView) -> str:
    """What goes with it."""
    report = view.report
    kept = len(view.runs)
    size = f", about {formatting.size(report.installed_bytes)} with the engine" if report else ""
    folder = report.folder if report else view.spec.folder or "its folder"
    words = f"Everything in {folder} on {view.spec.name} goes{size}"
    if kept:
        words += f": {formatting.plural(kept, 'run')} with checkpoints, too"
    return (
        f"{words}. What was mirrored stays here; checkpoints that were not fetched are lost. "
        "It is refused while a run goes on there."
    )

"""What a row of the engines card says and offers, folded from what the engine tells. Pure."""

from dataclasses import dataclass
from typing import Literal

from engine.protocol.records.environments import (
    BUILT_IN,
    EnvironmentList,
    EnvironmentStage,
    EnvironmentView,
)
from studio.text import formatting

Verb = Literal["install", "cancel", "repair", "remove", "use"]

STAGES: dict[EnvironmentStage, str] = {
    "waiting": "Waiting",
    "resolving": "Choosing versions",
    "checking": "Checking what is here",
    "downloading": "Downloading",
    "installing": "Installing",
    "trying": "Trying it out",
    "verifying": "Checking every file",
    "removing": "Removing",
}


@dataclass(frozen=True)
class Offer:
    """A button: what it does, its words, its tip, and a reason where it cannot be pressed."""

    verb: Verb
    words: str
    icon: str
    tip: str
    price: str = ""
    refused: str = ""
    quiet: bool = False


@dataclass(frozen=True)
class Row:
    """One engine or environment, ready to be shown."""

    name: str
    title: str
    purpose: str
    chip: tuple[str, str, str]
    """Words, tone, icon."""
    facts: str = ""
    warning: str = ""
    problem: str = ""
    progress: tuple[str, float] | None = None
    """Words and share."""
    offers: tuple[Offer, ...] = ()


def built_in_row(found: EnvironmentList) -> Row:
    """The engine that Atelier came with."""
    current, running = found.choice.current.built_in, found.running.built_in
    return Row(
        BUILT_IN,
        "Built-in engine",
        "Trains on the processor, with the packages that Atelier came with.",
        _engine_chip(current, running),
        offers=() if current and running else (_use(current),),
    )


def row_of(view: EnvironmentView, found: EnvironmentList) -> Row:
    """An environment as it is now."""
    current = bool(view.home) and view.home == found.choice.current.home
    running = bool(view.home) and view.home == found.running.home
    busy = view.action is not None
    return Row(
        view.name,
        view.title,
        view.purpose,
        _chip(view, current, running),
        _facts(view),
        warning=_warning(view, current, running, found),
        problem=_problem(view),
        progress=_progress(view) if busy else None,
        offers=(_CANCEL,) if busy else _offers(view, current, running),
    )


def packages_row(view: EnvironmentView, file: str) -> Row:
    """What a project's agent asks for in `file`."""
    busy = view.action is not None
    count = formatting.plural(view.packages, "package")
    size = f" · {formatting.size(view.bytes)} on disk" if view.state == "ready" else ""
    return Row(
        view.name,
        "Packages",
        "",
        _chip(view, False, False),
        f"{file} · {count}{size}",
        warning=_elsewhere(view),
        problem=_problem(view),
        progress=_progress(view) if busy else None,
        offers=(_CANCEL,) if busy else _offers(view, False, False),
    )


def _engine_chip(current: bool, running: bool) -> tuple[str, str, str]:
    if current and running:
        return "in use", "accent", "check"
    if current:
        return "from the next start on", "info", "clock"
    if running:
        return "running now", "neutral", "activity"
    return "installed", "neutral", ""


def _chip(view: EnvironmentView, current: bool, running: bool) -> tuple[str, str, str]:
    if view.action == "remove":
        return "being removed", "info", "trash-2"
    if view.action in ("verify", "repair"):
        return "being checked", "info", "wrench"
    if view.action or view.elsewhere:
        return "being installed", "info", "download"
    if view.state == "broken":
        return "damaged", "bad", "octagon-alert"
    if view.state == "partial":
        return "begun", "warn", "pause"
    if view.state == "absent":
        return "not installed", "neutral", ""
    if view.engine and (current or running):
        return _engine_chip(current, running)
    return "installed", "good", "check"


def _facts(view: EnvironmentView) -> str:
    size, brought = formatting.size(view.bytes), formatting.size(view.download_bytes)
    if view.state in ("ready", "broken"):
        return f"{size} on disk · {formatting.plural(view.packages, 'package')}"
    facts = f"{brought} to download · {size} on disk"
    if view.state == "partial" and view.action is None:
        here = f"{view.arrived} of {formatting.plural(view.packages, 'package')} are here"
        return f"{here} · {size} on disk when it is whole"
    return f"{facts} · for {view.needs}" if view.engine else facts


def _warning(view: EnvironmentView, current: bool, running: bool, found: EnvironmentList) -> str:
    if view.unfit and view.state not in ("ready", "broken"):
        return view.unfit
    if busy := _elsewhere(view):
        return busy
    if view.engine and current and not running:
        other = "built-in engine" if found.running.built_in else found.running.name
        if view.state == "broken":
            return f"It is chosen, but the {other} runs in its place."
        return f"It is chosen, but the {other} is running: it takes over when that one restarts."
    return view.lacks


def _elsewhere(view: EnvironmentView) -> str:
    other = view.elsewhere and view.action is None
    return "Another program of yours is at work on it." if other else ""


def _problem(view: EnvironmentView) -> str:
    if view.problem is not None:
        return f"{view.problem.message} {view.problem.hint}".strip()
    return view.wrong[0] if view.state == "broken" and view.wrong else ""


def _progress(view: EnvironmentView) -> tuple[str, float]:
    if view.tick is None:
        return "Starting", 0.0
    words = STAGES[view.tick.stage]
    return (f"{words} · {view.tick.words}" if view.tick.words else words), view.tick.share


_CANCEL = Offer("cancel", "Cancel", "x", "What has arrived is kept, and used when you go on")


def _use(current: bool) -> Offer:
    if current:
        return Offer("use", "Restart with it", "rotate-ccw", "End the engine and start this one")
    return Offer("use", "Use", "play", "Restart with this engine; refused while a run goes on")


def _offers(view: EnvironmentView, current: bool, running: bool) -> tuple[Offer, ...]:
    held = "It is in use: use another engine first." if current or running else ""
    tip = "Take it away; it can be installed again"
    remove = Offer("remove", "Remove", "trash-2", tip, refused=held, quiet=True)
    whole = "Check every file; where one is damaged, a new environment takes its place"
    if view.elsewhere or (view.unfit and view.state == "absent"):
        return ()
    if view.state == "absent":
        price = formatting.size(view.download_bytes) if view.download_bytes else ""
        words = "Bring it onto this machine; it can be cancelled and goes on from there"
        return (Offer("install", "Install", "download", words, price),)
    if view.state == "partial":
        goes_on = Offer("install", "Resume", "play", "Go on with what has arrived")
        discard = Offer("remove", "Discard", "trash-2", "Take away what has arrived", quiet=True)
        return (goes_on, discard)
    repair = Offer("repair", "Repair", "wrench", whole, quiet=view.state == "ready")
    if view.state == "broken":
        return (repair, remove)
    use = (_use(current),) if view.engine and not (current and running) else ()
    return (*use, repair, remove)

"""Rows of the environments card: text and buttons for the engine's environments. Free of I/O."""

from dataclasses import dataclass
from typing import Literal

from engine.protocol.records.machine.environments import (
    BUILT_IN,
    EnvironmentList,
    EnvironmentStage,
    EnvironmentView,
)
from studio.store.offers import Offer
from studio.text import formatting

Verb = Literal["install", "cancel", "repair", "remove", "use"]

STAGES: dict[EnvironmentStage, str] = {
    "waiting": "Waiting",
    "resolving": "Resolving versions",
    "checking": "Checking installed packages",
    "downloading": "Downloading",
    "installing": "Installing",
    "testing": "Testing",
    "verifying": "Checking every file",
    "removing": "Removing",
}


@dataclass(frozen=True)
class Row:
    """Row of one engine or environment."""

    name: str
    title: str
    purpose: str
    chip: tuple[str, str, str]
    """Text, tone, icon."""
    facts: str = ""
    warning: str = ""
    problem: str = ""
    progress: tuple[str, float] | None = None
    """Text and progress from 0 to 1; None if nothing is in progress."""
    offers: tuple[Offer, ...] = ()


def built_in_row(environments: EnvironmentList) -> Row:
    """Return the Settings row of the built-in engine."""
    current, running = environments.choice.current.built_in, environments.running.built_in
    return Row(
        BUILT_IN,
        "Built-in engine",
        "Trains on the CPU, with the packages included in Atelier.",
        _engine_chip(current, running),
        offers=() if current and running else (_use(current),),
    )


def row_of(view: EnvironmentView, environments: EnvironmentList) -> Row:
    """Return the Settings row of an environment; `environments` tells which one is in use."""
    current = bool(view.home) and view.home == environments.choice.current.home
    running = bool(view.home) and view.home == environments.running.home
    busy = view.action is not None
    return Row(
        view.name,
        view.title,
        view.purpose,
        _chip(view, current, running),
        _facts(view),
        warning=_warning(view, current, running, environments),
        problem=_problem(view),
        progress=_progress(view) if busy else None,
        offers=(_CANCEL,) if busy else _offers(view, current, running),
    )


def packages_row(view: EnvironmentView, file: str) -> Row:
    """Return the row of the packages that a project's agent requires in `file` (its name)."""
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
        return "after restart", "info", "clock"
    if running:
        return "running", "neutral", "activity"
    return "installed", "neutral", ""


def _chip(view: EnvironmentView, current: bool, running: bool) -> tuple[str, str, str]:
    if view.action == "remove":
        return "removing", "info", "trash-2"
    if view.action in ("verify", "repair"):
        return "checking", "info", "wrench"
    if view.action or view.elsewhere:
        return "installing", "info", "download"
    if view.state == "broken":
        return "damaged", "bad", "octagon-alert"
    if view.state == "partial":
        return "incomplete", "warn", "pause"
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
        here = f"{view.arrived} of {formatting.plural(view.packages, 'package')} installed"
        return f"{here} · {size} on disk when complete"
    return f"{facts} · for {view.needs}" if view.engine else facts


def _warning(
    view: EnvironmentView, current: bool, running: bool, environments: EnvironmentList
) -> str:
    if view.unfit and view.state not in ("ready", "broken"):
        return view.unfit
    if busy := _elsewhere(view):
        return busy
    if view.engine and current and not running:
        other = "built-in engine" if environments.running.built_in else environments.running.name
        if view.state == "broken":
            return f"Selected, but the {other} is running instead."
        return f"Selected, but the {other} is still running. Restart the engine to switch."
    return view.lacks


def _elsewhere(view: EnvironmentView) -> str:
    other = view.elsewhere and view.action is None
    return "Another process is changing this environment." if other else ""


def _problem(view: EnvironmentView) -> str:
    if view.problem is not None:
        return f"{view.problem.message} {view.problem.hint}".strip()
    return view.wrong[0] if view.state == "broken" and view.wrong else ""


def _progress(view: EnvironmentView) -> tuple[str, float]:
    if view.tick is None:
        return "Starting", 0.0
    words = STAGES[view.tick.stage]
    return (f"{words} · {view.tick.words}" if view.tick.words else words), view.tick.share


_CANCEL = Offer("cancel", "Cancel", "x", "Keep the downloaded packages for a later resume")


def _use(current: bool) -> Offer:
    if current:
        return Offer(
            "use",
            "Restart with this engine",
            "rotate-ccw",
            "Stop the current engine and start this one",
        )
    return Offer("use", "Use", "play", "Restart with this engine; refused while a run is active")


def _offers(view: EnvironmentView, current: bool, running: bool) -> tuple[Offer, ...]:
    held = "This engine is in use. Switch to another one first." if current or running else ""
    tip = "Delete the environment; it can be installed again"
    remove = Offer("remove", "Remove", "trash-2", tip, refused=held, quiet=True)
    whole = "Check every file, and reinstall the environment if one is damaged"
    if view.elsewhere or (view.unfit and view.state == "absent"):
        return ()
    if view.state == "absent":
        price = formatting.size(view.download_bytes) if view.download_bytes else ""
        words = "Install on this machine; a cancelled installation can be resumed"
        return (Offer("install", "Install", "download", words, price),)
    if view.state == "partial":
        goes_on = Offer("install", "Resume", "play", "Continue with the downloaded packages")
        discard = Offer(
            "remove", "Discard", "trash-2", "Delete the downloaded packages", quiet=True
        )
        return (goes_on, discard)
    repair = Offer("repair", "Repair", "wrench", whole, quiet=view.state == "ready")
    if view.state == "broken":
        return (repair, remove)
    use = (_use(current),) if view.engine and not (current and running) else ()
    return (*use, repair, remove)

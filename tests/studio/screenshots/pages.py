"""Screenshots of every page in both themes and several sizes, from the fake engine.

`python -m tests.studio.screenshots.pages FOLDER [page ...] [--sizes 960x640,…] [--scale 1.5]`
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")

import qasync
from PySide6.QtWidgets import QApplication

from engine.protocol.events import run as e
from studio.app import Studio
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.made_validations import add_validations
from tests.studio.fakes.simulated_run import SMALL, Made, Simulation, TrainConfig

SIZES = [(1280, 800), (1920, 1080)]
"""Sizes of the window in logical pixels; `main` replaces them."""


def fill_workspace(engine: FakeEngine, steps: int = 46) -> Made:
    """Fill a workspace with an active run, and finished, failed and untouched projects."""
    started_at = time.time() - steps * 126 - 120
    active = Simulation(clock=started_at, judged=True)
    active.begin()
    for step in range(1, steps + 1):
        active.step(step)
    for place, _ in enumerate(active.rollouts(steps + 1)):
        if place > 50:
            break
    engine.add_project("inbox-scout")
    engine.add_run(active.made)
    tick = e.ProgressTicked(
        step=steps + 1,
        phase="rolling_out",
        done=44,
        total=64,
        words="",
        in_flight={g: (8, 21 + g) for g in range(8)},
        hardware={
            "cpu/percent": 91.0,
            "memory/bytes": 4.1e9,
            "memory/total_bytes": 16.7e9,
            "tokens_per_s": 291.0,
        },
    )
    engine.tick(active.made.spec.id, tick)
    add_other_projects(engine)
    return active.made


def add_other_projects(engine: FakeEngine) -> None:
    train, clock = TrainConfig(steps=30), time.time() - 90_000
    done = Simulation("01JD5OTHER1", "quiet-heron", "tiles", train, 11, clock=clock)
    done.begin()
    for step in range(1, 31):
        done.step(step)
    done.end(30)
    engine.add_project("tiles", description="2048")
    engine.add_run(done.made, "tiles")
    bad = Simulation("01JD5OTHER2", "calm-finch", "shop-sql", SMALL, 8, clock=time.time() - 400_000)
    bad.begin()
    for step in range(1, 4):
        bad.step(step)
    list(bad.rollouts(4))
    bad.fail(4)
    engine.add_project("shop-sql", description="Ask the database")
    engine.add_run(bad.made, "shop-sql")
    engine.add_project("hello", description="Yes, no, maybe")


@asynccontextmanager
async def studio_on(engine: FakeEngine, app: QApplication, folder: Path) -> AsyncIterator[Studio]:
    """Open a studio that uses the fake engine."""

    async def find(*_: object) -> object:
        endpoint = await engine.find()
        if endpoint is None:
            from engine.protocol.problems import LaunchError

            raise LaunchError.of("engine.not_started", "The engine did not start.")
        return endpoint

    with (
        patch("studio.link.engine.local.find_or_start", find),
        patch("studio.link.engine.local.find", lambda *_: engine.find()),
    ):
        studio = Studio(app, str(engine.workspace), folder / "studio.toml")
        studio.start()
        try:
            session = studio.session
            await wait_for(lambda: session.connected and not session.tasks.busy("engine"))
            yield studio
        finally:
            studio.window.close()
            await studio.close()
            studio.window.deleteLater()


async def wait_for(check: object, seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not check():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError("timeout")
        await asyncio.sleep(0.02)


async def settle(seconds: float = 0.4) -> None:
    await asyncio.sleep(seconds)


async def open_project(studio: Studio, engine: FakeEngine, name: str) -> None:
    studio.session.open_project(str(engine.workspace / name))
    await wait_for(lambda: studio.session.project.name == name)
    await settle()


async def take(studio: Studio, folder: Path, name: str) -> None:
    for scheme in ("dark", "light"):
        studio.settings.update(theme=scheme)
        for width, height in SIZES:
            studio.window.resize(width, height)
            await settle()
            studio.window.grab().save(str(folder / f"{name}-{scheme}-{width}.png"))


async def take_scrolled(studio: Studio, folder: Path) -> None:
    """Save pictures of the diagnostics charts, in the middle and at the end of the grid."""
    grid = studio.pages["run"]._grid  # type: ignore[attr-defined]
    for scheme in ("dark", "light"):
        studio.settings.update(theme=scheme)
        for width, height in SIZES:
            studio.window.resize(width, height)
            await settle()
            bar = grid.verticalScrollBar()
            for name, place in (("middle", bar.maximum() // 2), ("end", bar.maximum())):
                bar.setValue(place)
                await settle()
                file = f"diagnostics-{name}-{scheme}-{width}.png"
                studio.window.grab().save(str(folder / file))
            bar.setValue(0)


async def take_judge_page(studio: Studio, folder: Path) -> None:
    """Save pictures of the Judge page after a trial, with changes, and with its sheets."""
    page: Any = studio.pages["judge"]
    studio.window.show_page("judge")
    await settle(1.5)
    page.choice.price.pressed.emit()
    await settle(1.5)
    await take(studio, folder, "lab-tried")
    page.editor.show_source(page.editor.source.replace("Half right counts half.", "A later one."))
    page.editor._turn("changes")
    await settle(1.5)
    await take(studio, folder, "lab-changes")
    page.editor.discard()
    for name, sheet in (("cases", page._sheet), ("compare", page._comparison)):
        sheet.open()
        await settle(0.6)
        await take(studio, folder, f"lab-{name}")
        sheet.close_sheet()
        await settle(0.6)


async def take_filter(studio: Studio, folder: Path) -> None:
    """Save pictures of the filter: suggestions, a mistake, hits in table and reader."""
    page: Any = studio.pages["trajectories"]
    studio.window.show_page("trajectories")
    page.set_mode(2)
    field = page._panel.bar.input
    page._focus_filter()
    await settle(0.5)
    field.setText("reward < 0.5 and tur")
    field.suggest()
    for scheme in ("dark", "light"):
        studio.settings.update(theme=scheme)
        await settle()
        field.suggest()
        field.popup.grab().save(str(folder / f"filter-suggestions-{scheme}.png"))
    field.popup.hide()
    field.setText("reward < 0.5 and turn > 3")
    await settle(0.5)
    await take(studio, folder, "filter-mistake")
    field.setText("split:train turns > 3 and prompt:the")
    await settle(1.0)
    await take(studio, folder, "filter-table")
    page._table.set_columns(["Scenario", "Reward", "Parts", "Prompt", "Answer", "Judge's reason"])
    await take(studio, folder, "filter-columns")
    page._table.set_columns([])
    page.set_mode(1)
    await settle(0.5)
    page._reader.transcript.next_hit()
    page._reader.evidence.show_tab(4)
    await take(studio, folder, "filter-reader")
    page._reader.evidence.show_tab(0)
    page._reader.open_chat()
    await settle(1.0)
    await take(studio, folder, "filter-chat")
    checkpoints: Any = studio.pages["checkpoints"]
    checkpoints._arena._edit.click()
    await settle(0.6)
    await take(studio, folder, "filter-prompt")
    checkpoints.prompt_sheet.close_sheet()
    field.setText("")
    await settle(0.5)


async def shoot(app: QApplication, folder: Path, wanted: list[str]) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    try:
        if not wanted or "first-start" in wanted:
            async with studio_on(engine, app, folder) as studio:
                await settle()
                await take(studio, folder, "first-start")
        made = fill_workspace(engine)
        add_validations(made, judged=True)
        async with studio_on(engine, app, folder) as studio:
            state = studio.session.runs.state(made.spec.id)
            await wait_for(lambda: state.seq == len(made.events))
            if not wanted or "home" in wanted:
                await settle()
                await take(studio, folder, "home")
            await open_project(studio, engine, "inbox-scout")
            for page in (
                "setup", "judge", "run", "trajectories", "checkpoints", "models", "settings",
            ):  # fmt: skip
                if not wanted or page in wanted:
                    studio.window.show_page(page)
                    await settle(1.0)
                    await take(studio, folder, page)
            if not wanted or "lab" in wanted:
                await take_judge_page(studio, folder)
            if not wanted or "diagnostics" in wanted:
                studio.window.show_page("run")
                await settle(1.0)
                await take_scrolled(studio, folder)
            trajectories = studio.pages["trajectories"]
            for mode, name in ((1, "reader"), (2, "table")):
                if not wanted or name in wanted:
                    studio.window.show_page("trajectories")
                    await settle(1.0)
                    trajectories.set_mode(mode)  # type: ignore[attr-defined]
                    await take(studio, folder, name)
            if not wanted or "filter" in wanted:
                await take_filter(studio, folder)
            for tab, name in ((1, "toml"), (2, "scenarios")):
                if not wanted or name in wanted:
                    studio.window.show_page("setup")
                    await settle(0.5)
                    studio.pages["setup"]._choose(tab)  # type: ignore[attr-defined]
                    await take(studio, folder, name)
            if not wanted or "failed" in wanted:
                await open_project(studio, engine, "shop-sql")
                studio.window.show_page("run")
                await settle()
                await take(studio, folder, "failed")
            if not wanted or "empty" in wanted:
                await open_project(studio, engine, "hello")
                studio.window.show_page("run")
                await settle()
                await take(studio, folder, "empty")
    finally:
        engine.stop()


def run_shots(work: Callable[[QApplication], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in a new application and event loop."""
    app = QApplication(sys.argv[:1])
    app.setQuitOnLastWindowClosed(False)
    loop = qasync.QEventLoop(app)
    asyncio.set_event_loop(loop)
    with loop:
        loop.run_until_complete(work(app))


def run_command(shoot: Callable[..., Coroutine[Any, Any, None]], *, names: bool = False) -> None:
    """Command line of a module of screenshots: `FOLDER [--sizes …] [--scale …] [name ...]`.

    `shoot` gets the application, the folder and, with `names`, the list of names (empty: all).
    """
    parser = argparse.ArgumentParser(description="Save pictures of the studio.")
    parser.add_argument("folder", type=Path)
    if names:
        parser.add_argument("names", nargs="*", help="names of pictures; none: all of them")
    parser.add_argument("--sizes", help="such as 960x640,1280x800,1920x1080")
    parser.add_argument("--scale", default="1", help="device pixels of a logical pixel")
    chosen = parser.parse_intermixed_args()
    os.environ["QT_SCALE_FACTOR"] = chosen.scale
    if chosen.sizes:
        SIZES[:] = [tuple(map(int, size.split("x"))) for size in chosen.sizes.split(",")]  # type: ignore[misc]
    folder = chosen.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    run_shots(lambda app: shoot(app, folder, *([chosen.names] if names else [])))


if __name__ == "__main__":
    run_command(shoot, names=True)

"""Screenshots of clusters: Settings, sheet, engine menu and Setup, in both themes and two sizes,
from the fake engine.

`python -m tests.studio.screenshots.clusters FOLDER [name ...]`
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from studio.app import Studio
from tests.studio.fakes.clusters import HOSTED, REPORT, TUNNEL, WRONG_KEY
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import (
    SIZES,
    fill_workspace,
    open_project,
    run_command,
    settle,
    studio_on,
    take,
)

Shot = Callable[[Studio, FakeEngine, Path], Awaitable[None]]


def add_clusters(studio: Studio, engine: FakeEngine) -> None:
    """Add a cluster in every state."""
    engine.clusters.put(HOSTED, has_key=True, report=REPORT)
    engine.clusters.put(TUNNEL)
    engine.clusters.put(HOSTED.model_copy(update={"name": "old-key"}), problem=WRONG_KEY)
    studio.session.clusters.refresh()


async def empty(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    studio.actions.trigger("clusters.open")
    await settle(0.6)
    await take(studio, folder, "empty")


async def rows(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    add_clusters(studio, engine)
    studio.actions.trigger("clusters.open")
    await settle(0.6)
    await take(studio, folder, "rows")


async def sheet(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    studio.actions.trigger("clusters.open")
    studio.actions.trigger("clusters.add")
    await settle(0.6)
    dialog: Any = studio.servers.cluster_sheet
    await take(studio, folder, "sheet-new")
    dialog.name.set_value("hosted")
    dialog.address.set_value("http://gpu.example:8000")
    dialog._press_save()
    await take(studio, folder, "sheet-not-encrypted")
    dialog.address.set_value(HOSTED.address)
    dialog.key.set_value("tml-0123456789")
    dialog._press_test()
    await settle(0.8)
    await take(studio, folder, "sheet-tested")
    engine.clusters.good_keys = {"another"}
    dialog._press_test()
    await settle(0.8)
    await take(studio, folder, "sheet-refused")
    dialog.close_sheet()


async def menu(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    add_clusters(studio, engine)
    studio.window.show_page("run")
    await settle(0.4)
    studio.session.choose_place("", "hosted")
    for scheme in ("dark", "light"):
        studio.settings.update(theme=scheme)
        studio.window.resize(*SIZES[0])
        await settle()
        studio.actions.trigger("engine.choose")
        await settle()
        studio.window.grab().save(str(folder / f"pill-{scheme}.png"))
        studio.frame.switcher.menu.grab().save(str(folder / f"menu-{scheme}.png"))
        studio.frame.switcher.menu.close()


async def setup(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    add_clusters(studio, engine)
    studio.window.show_page("setup")
    await settle(0.6)
    studio.session.choose_place("", "hosted")
    await settle(0.6)
    await take(studio, folder, "setup")
    page: Any = studio.pages["setup"]
    scroll = page._stack.widget(0)
    scroll.verticalScrollBar().setValue(scroll.verticalScrollBar().maximum())
    await take(studio, folder, "setup-backend")


SHOTS: dict[str, Shot] = {
    "empty": empty,
    "rows": rows,
    "sheet": sheet,
    "menu": menu,
    "setup": setup,
}


async def shoot(app: QApplication, folder: Path, wanted: list[str]) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    try:
        fill_workspace(engine, 12)
        async with studio_on(engine, app, folder) as studio:
            studio.settings.update(reduced_motion=True)
            await open_project(studio, engine, "inbox-scout")
            for name, shot in SHOTS.items():
                if not wanted or name in wanted:
                    engine.clusters.views.clear()
                    studio.session.clusters.refresh()
                    await settle(0.3)
                    await shot(studio, engine, folder)
                    await asyncio.sleep(0.3)
    finally:
        engine.stop()


if __name__ == "__main__":
    run_command(shoot, names=True)

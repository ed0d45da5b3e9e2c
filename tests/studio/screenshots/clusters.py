"""Screenshots of clusters: Settings, sheet, engine menu and Setup, in both themes and two sizes,
from the fake engine.

`python -m tests.studio.screenshots.clusters FOLDER [name ...]`
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.requests.remote import HostTick
from studio.app import Studio
from tests.studio.fakes.clusters import (
    HOSTED,
    OUT_OF_MEMORY,
    REPORT,
    SKYRL,
    TUNNEL,
    WRONG_KEY,
    server_of,
)
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.servers import view
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


def add_skyrl(studio: Studio, engine: FakeEngine) -> None:
    """Add SkyRL in several states, on a connected server, on one that is not, and here."""

    def cluster(name: str, host: str, state: str, **values: Any) -> None:
        spec = SKYRL.model_copy(update={"name": name, "host": host})
        engine.clusters.put(spec, server=server_of(spec, state, **values))

    engine.servers.put(view(state="connected"))
    engine.servers.put(view("attic"))
    engine.servers.put(view("lab-3", state="connected"))
    cluster("box", "box", "running")
    cluster("cpu", "", "off", port=0, command="", log="")
    cluster("large", "lab-3", "failed", problem=OUT_OF_MEMORY)
    cluster("new", "lab-3", "installing", command="")
    engine.clusters.put(SKYRL.model_copy(update={"name": "spare", "host": "attic"}))
    through = TUNNEL.model_copy(update={"name": "tunnel", "host": "box"})
    engine.clusters.put(through, report=REPORT)
    studio.session.clusters.refresh()


async def skyrl(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    add_skyrl(studio, engine)
    studio.actions.trigger("clusters.open")
    await settle(0.8)
    await take(studio, folder, "skyrl-rows")
    studio.window.show_page("run")
    studio.session.choose_place("", "box")
    await settle(0.4)
    for scheme in ("dark", "light"):
        studio.settings.update(theme=scheme)
        studio.window.resize(*SIZES[0])
        await settle()
        studio.actions.trigger("engine.choose")
        await settle()
        studio.window.grab().save(str(folder / f"skyrl-pill-{scheme}.png"))
        studio.frame.switcher.menu.grab().save(str(folder / f"skyrl-menu-{scheme}.png"))
        studio.frame.switcher.menu.close()
    studio.window.show_page("setup")
    await settle(0.6)
    await take(studio, folder, "skyrl-setup")
    page: Any = studio.pages["setup"]
    scroll = page._stack.widget(0)
    scroll.verticalScrollBar().setValue(scroll.verticalScrollBar().maximum())
    await take(studio, folder, "skyrl-setup-backend")
    studio.session.choose_place("", "")


async def start(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    add_skyrl(studio, engine)
    studio.actions.trigger("clusters.open")
    await settle(0.6)
    studio.actions.trigger("clusters.start")
    await settle(0.6)
    dialog: Any = studio.servers.start_sheet
    await take(studio, folder, "start")
    dialog.place.set_value("attic")
    dialog._show_place()
    dialog._unfold(True)
    dialog._rows["model"].set_problem("Choose a base model, or enter its name or folder.")
    await take(studio, folder, "start-options")
    dialog._unfold(False)
    dialog._rows["model"].set_problem("")
    dialog.place.set_value("box")
    dialog._show_place()
    engine.held.add("POST /clusters/skyrl/start")
    dialog._press_start()
    tick = HostTick(stage="syncing", words="Qwen3-8B", done=5_300_000_000, total=16_400_000_000)
    engine.servers.change("box", tick=tick)
    await settle(0.6)
    await take(studio, folder, "start-uploading")
    engine.held.clear()
    await settle(0.6)
    engine.servers.change("box", tick=None)
    studio.actions.trigger("clusters.start")
    await settle(0.4)
    dialog.nodes.set_value(3)
    dialog._show_nodes()
    await settle(0.6)
    await take(studio, folder, "start-nodes")
    dialog.close_sheet()
    studio.servers.cluster_sheet.begin()
    await settle(0.4)
    form: Any = studio.servers.cluster_sheet
    form.host.set_value("box")
    form._show_port()
    await take(studio, folder, "sheet-through")
    form.close_sheet()
    dialog.change("large")
    await settle(0.4)
    await take(studio, folder, "sheet-skyrl")
    dialog.close_sheet()


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
    "skyrl": skyrl,
    "start": start,
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

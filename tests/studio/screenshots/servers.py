"""Screenshots of server dialogs and pages, in both themes and two sizes, from the fake engine.

`python -m tests.studio.screenshots.servers FOLDER [name ...]`
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.requests.remote import HostSpec, HostTick
from studio.app import Studio
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.servers import (
    CODE,
    HOST_KEY,
    KEY_CHANGED,
    NOT_INSTALLED,
    OTHER_HOME,
    PASSPHRASE,
    REPORT,
    UNREACHABLE,
    view,
)
from tests.studio.screenshots.pages import (
    SIZES,
    fill_workspace,
    open_project,
    run_command,
    settle,
    studio_on,
    take,
)

RUN = "01JD5MAMBERKESTREL00000000"
BRINGING = HostTick(stage="uploading", words="torch 2.13.0", done=210_000_000, total=526_000_000)
Shot = Callable[[Studio, FakeEngine, Path], Awaitable[None]]


def add_servers(engine: FakeEngine) -> None:
    """Add a server in every state."""

    def other(name: str, state: str, **values: Any) -> None:
        spec = HostSpec(name=name, address=f"mara@{name}.lab.example")
        engine.servers.put(view(name, state, spec=spec, **values))

    other("box", "connected")
    other("attic", "reconnecting", failures=2, retry_at=time.time() + 40, problem=UNREACHABLE)
    other("cluster", "asking", questions=[])
    other("lab-3", "installing", tick=BRINGING, report=REPORT)
    other("mill", "stopped", problem=KEY_CHANGED)
    other("old", "stopped", problem=NOT_INSTALLED, report=REPORT)
    other("shared", "stopped", problem=OTHER_HOME)
    other("spare", "away")


async def rows(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    add_servers(engine)
    studio.actions.trigger("servers.open")
    await settle(0.6)
    studio.servers.show_servers()
    await take(studio, folder, "rows")


async def menu(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    add_servers(engine)
    studio.window.show_page("run")
    studio.session.hosts.choose(studio.session.project.path, "box")
    for scheme in ("dark", "light"):
        studio.settings.update(theme=scheme)
        studio.window.resize(*SIZES[0])
        await settle()
        studio.actions.trigger("engine.choose")
        await settle()
        studio.window.grab().save(str(folder / f"pill-{scheme}.png"))
        studio.frame.switcher.menu.grab().save(str(folder / f"menu-{scheme}.png"))
        studio.frame.switcher.menu.close()


async def sheet(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    active_run = engine.summaries["01JD5MAMBERKESTREL00000000"]
    engine.servers.put(view(state="connected", runs=[active_run], outdated=True))
    studio.actions.trigger("servers.open")
    await settle(0.5)
    studio.servers.sheet.show_host("box")
    await take(studio, folder, "sheet")
    engine.servers.put(view(state="stopped", problem=KEY_CHANGED, report=REPORT))
    await settle(0.5)
    await take(studio, folder, "sheet-stopped")
    studio.servers.sheet.close_sheet()


async def wizard(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    studio.window.show_page("home")
    engine.servers.pace_s = 30.0
    studio.actions.trigger("servers.add")
    await settle(0.6)
    page = studio.servers.wizard
    page._form.unfold(True)
    await take(studio, folder, "wizard-address")
    page._form.address.set_value("mara@box.lab")
    page._form.name.set_value("box")
    page._press()
    await settle(1.5)
    await take(studio, folder, "wizard-connecting")
    for name, state in (
        ("failed", view(state="reconnecting", problem=UNREACHABLE, failures=2,
                        retry_at=time.time() + 25)),
        ("report", view(state="stopped", problem=NOT_INSTALLED, report=REPORT)),
        ("installing", view(state="installing", tick=BRINGING, report=REPORT)),
        ("ready", view(state="connected")),
    ):  # fmt: skip
        engine.servers.put(state)
        await settle(0.8)
        await take(studio, folder, f"wizard-{name}")
    page.close_sheet()


async def questions(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    studio.window.show_page("home")
    for name, question in (("key", HOST_KEY), ("passphrase", PASSPHRASE), ("code", CODE)):
        engine.servers.put(view(state="asking", questions=[question]))
        await settle(1.0)
        for scheme in ("dark", "light"):
            studio.settings.update(theme=scheme)
            await settle()
            dialog: Any = QApplication.activeModalWidget()
            dialog.grab().save(str(folder / f"question-{name}-{scheme}.png"))
        engine.servers.put(view())
        await settle(0.5)


def put_run_on_server(engine: FakeEngine) -> None:
    """Move the active run and its checkpoints to server box."""
    engine.servers.put(view(state="connected"))
    engine.servers.lives_on[RUN] = "box"
    engine._refresh(engine.runs[RUN], "inbox-scout")
    engine.checkpoints.elsewhere |= set(range(200))


async def disconnected(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    put_run_on_server(engine)
    await settle(0.5)
    studio.session.refresh()
    studio.session.hosts.choose(studio.session.project.path, "box")
    await settle(1.0)
    studio.window.show_page("home")
    await take(studio, folder, "home-remote")
    studio.window.show_page("run")
    await take(studio, folder, "run-remote")
    state = studio.session.run.state
    assert state.spec is not None
    state.spec = state.spec.model_copy(update={"keys_at_home": True})
    at = time.time() + 120
    engine.servers.change("box", state="reconnecting", problem=UNREACHABLE, failures=2, retry_at=at)
    await settle(0.6)
    await take(studio, folder, "run-away")


async def remote_checkpoints(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    put_run_on_server(engine)
    await settle(0.5)
    studio.session.refresh()
    studio.window.show_page("checkpoints")
    await settle(1.0)
    page: Any = studio.pages["checkpoints"]
    page._look_again()
    await settle(0.8)
    await take(studio, folder, "checkpoints-remote")
    page._list.show_coming("Fetching 42 of 84 MB", 0.5)
    await take(studio, folder, "checkpoints-fetching")
    page._list.show_coming("", None)
    run = studio.session.run.summary
    assert run is not None
    studio.servers.moves.bring_home(run)
    studio.servers.moves._show("42 of 84 MB", 0.5)
    await settle(0.6)
    await take(studio, folder, "moving")
    studio.servers.moves.close_sheet()


async def train(studio: Studio, engine: FakeEngine, folder: Path) -> None:
    """Save the header of a project that trains on a server with a judge."""
    path = str(engine.workspace / "hello")
    made = engine.project_store.projects[path]
    assert made.config is not None
    judge = made.config.judge.model_copy(update={"enabled": True, "models": ("openai/gpt-5.4",)})
    config = made.config.model_copy(update={"judge": judge})
    engine.project_store.projects[path] = made.model_copy(update={"config": config})
    await open_project(studio, engine, "hello")
    studio.window.show_page("setup")
    studio.window.show_page("trajectories")
    studio.window.resize(*SIZES[0])
    engine.servers.put(view(state="connected"))
    await settle()
    studio.session.hosts.choose(path, "box")
    header = studio.window.header
    for scheme in ("dark", "light"):
        studio.settings.update(theme=scheme)
        studio.frame.refresh()
        await settle()
        header.grab().save(str(folder / f"train-{scheme}.png"))
        header.train._open_menu(studio.frame._ways_to_train())
        await settle()
        menu: Any = QApplication.activePopupWidget()
        menu.grab().save(str(folder / f"train-menu-{scheme}.png"))
        menu.close()
        header.train.set_state("starting", 12, 40, "Syncing 12 of 40 MB")
        await settle()
        header.grab().save(str(folder / f"train-syncing-{scheme}.png"))


SHOTS: dict[str, Shot] = {
    "away": disconnected, "kept": remote_checkpoints, "train": train,
    "rows": rows, "menu": menu, "sheet": sheet, "wizard": wizard, "questions": questions,
}  # fmt: skip


async def shoot(app: QApplication, folder: Path, wanted: list[str]) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    try:
        fill_workspace(engine, 12)
        async with studio_on(engine, app, folder) as studio:
            await open_project(studio, engine, "inbox-scout")
            for name, shot in SHOTS.items():
                if not wanted or name in wanted:
                    engine.servers.views.clear()
                    engine.servers.installed.clear()
                    engine.servers.revision += 1
                    await settle(0.3)
                    await shot(studio, engine, folder)
                    await asyncio.sleep(0.3)
    finally:
        engine.stop()


if __name__ == "__main__":
    run_command(shoot, names=True)

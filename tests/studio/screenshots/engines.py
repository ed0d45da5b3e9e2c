"""Screenshots of the Settings page with every state of its engines.

`python -m tests.studio.screenshots.engines FOLDER`
"""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.records.machine.environments import (
    ChosenEngine,
    EngineChoice,
    EnvironmentTicked,
)
from studio.app import Studio
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.environments import FULL, HOME, FakeEnvironments, at_home
from tests.studio.screenshots.pages import run_command, settle, studio_on, take


def installing(environments: FakeEnvironments) -> None:
    tick = EnvironmentTicked(
        stage="downloading", words="torch 2.13.0 · 210 of 526 MB", done=174, total=228, share=0.46
    )
    environments.change("engine-gpu", action="install", tick=tick)
    environments.steps = 10_000
    environments.change("vllm-cpu", problem=FULL)


def partial(environments: FakeEnvironments) -> None:
    environments.change("engine-gpu", action=None, tick=None, state="partial", arrived=174)
    environments.change("parquet", unfit="The parquet environment is made for Linux on x86_64.")


def in_use(environments: FakeEnvironments) -> None:
    environments.change("engine-gpu", **at_home("engine-gpu"))
    engine = ChosenEngine(name="engine-gpu", home=HOME.format("engine-gpu"))
    environments.choice = EngineChoice(current=engine, previous=ChosenEngine())
    environments.running = engine


def damaged(environments: FakeEnvironments) -> None:
    wrong = ["torch/lib/libtorch_cpu.so is not the file that was installed."]
    environments.change("engine-gpu", state="broken", wrong=wrong)
    environments.running = ChosenEngine()


STATES = {"absent": None, "installing": installing, "begun": partial, "in-use": in_use,
          "damaged": damaged}  # fmt: skip


async def shoot(app: QApplication, folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    try:
        async with studio_on(engine, app, folder) as studio:
            for name, change in STATES.items():
                if change is not None:
                    change(engine.environments)
                await show(studio)
                await take(studio, folder, f"engines-{name}")
    finally:
        engine.stop()


async def show(studio: Studio) -> None:
    studio.window.show_page("home")
    studio.window.show_page("settings")
    await settle(1.0)
    page: Any = studio.pages["settings"]
    page._engines.parentWidget().parentWidget().parentWidget().ensureWidgetVisible(page._engines)


if __name__ == "__main__":
    run_command(shoot)

"""Every button of the window is reached in its enabled state and pressed with the mouse."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from studio.app import Studio
from tests.studio.buttons import (
    checkpoints_scenes,
    describing_scenes,
    frame_scenes,
    judge_scenes,
    reading_scenes,
    run_scenes,
    setup_scenes,
)
from tests.studio.buttons.conftest import World
from tests.studio.buttons.effects import watching
from tests.studio.buttons.stage import TELL, Scene, Stage, play
from tests.studio.conftest import Run, until

REAL: dict[str, Sequence[Scene]] = {
    "frame": frame_scenes.FRAME,
    "setup": setup_scenes.SETUP,
    "judge": judge_scenes.JUDGE,
    "run": run_scenes.RUN,
    "trajectories": reading_scenes.TRAJECTORIES,
    "checkpoints": checkpoints_scenes.CHECKPOINTS,
    "describing": describing_scenes.DESCRIBING,
}
KNOWN = {row.name for scenes in REAL.values() for scene in scenes for row in scene.rows}


@asynccontextmanager
async def window(app: QApplication, workspace: Path, folder: Path) -> AsyncIterator[Studio]:
    """Over the engine that serves a workspace, which stays."""
    studio = Studio(app, str(workspace), folder / "studio.toml")
    studio.settings.update(reduced_motion=True)
    studio.start()
    try:
        session = studio.session
        await until(lambda: session.connected and not session.tasks.busy("engine"), 60)
        studio.window.resize(1280, 800)
        yield studio
    finally:
        studio.window.close()
        await studio.close()
        studio.window.deleteLater()


async def play_all(stage: Stage, scenes: Sequence[Scene]) -> None:
    wrong = []
    for scene in scenes:
        begun = time.monotonic()
        found = await play(stage, scene)
        wrong += found
        if TELL:
            print(f"{scene.name}: {time.monotonic() - begun:.1f} s", *found, sep="\n    ")
    unknown = sorted(stage.met.keys() - KNOWN)
    if TELL:
        print("no row:", unknown)
        unknown = []
    wrong += [f"{name} has no row" for name in unknown]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", REAL)
def test_every_button_over_a_real_engine(
    run: Run, qapp: QApplication, tmp_path: Path, world: World, name: str
) -> None:
    async def job() -> None:
        async with window(qapp, world.workspace, tmp_path) as studio:
            with watching(studio) as watch:
                await play_all(Stage(studio, watch, world), REAL[name])

    run(job())

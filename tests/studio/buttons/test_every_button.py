"""Every button of the window can be reached and clicked with the mouse, with its effect."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from studio.app import Studio
from tests.engine.hardware.models import write_headers
from tests.studio.buttons import (
    beside_scenes,
    checkpoints_scenes,
    describing_scenes,
    frame_scenes,
    judge_scenes,
    lost_scenes,
    models_scenes,
    reading_scenes,
    remote_scenes,
    run_scenes,
    runs_scenes,
    setup_scenes,
)
from tests.studio.buttons.conftest import World
from tests.studio.buttons.effects import record_effects
from tests.studio.buttons.stage import TELL, Scene, Stage, play
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import fill_workspace, open_project, studio_on

REAL: dict[str, Sequence[Scene]] = {
    "setup": setup_scenes.SETUP,
    "judge": judge_scenes.JUDGE,
    "run": run_scenes.RUN,
    "runs": runs_scenes.RUNS,
    "trajectories": reading_scenes.TRAJECTORIES,
    "checkpoints": checkpoints_scenes.CHECKPOINTS,
    "describing": describing_scenes.DESCRIBING,
    "frame": frame_scenes.FRAME,
}
FAKE: dict[str, Sequence[Scene]] = {
    "remote": remote_scenes.REMOTE,
    "beside": beside_scenes.BESIDE,
    "models": models_scenes.MODELS,
}
LOST: dict[str, Sequence[Scene]] = {"lost": lost_scenes.LOST}
"""Scenes over an engine of their own, which they kill."""
ALL = [scene for plays in (REAL, LOST, FAKE) for scenes in plays.values() for scene in scenes]
KNOWN = {row.name for scene in ALL for row in scene.rows}


@asynccontextmanager
async def window(app: QApplication, workspace: Path, folder: Path) -> AsyncIterator[Studio]:
    """Open a studio over the engine of a workspace; the engine is not stopped."""
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
        started_at = time.monotonic()
        problems = await play(stage, scene)
        wrong += problems
        if TELL:
            print(f"{scene.name}: {time.monotonic() - started_at:.1f} s", *problems, sep="\n    ")
    unknown = sorted(stage.seen_buttons.keys() - KNOWN)
    if TELL:
        print("no row:", unknown)
        unknown = []
    wrong += [f"{name} has no row" for name in unknown]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", REAL)
def test_every_button_has_its_effect_over_real_engine(
    run: Run, qapp: QApplication, tmp_path: Path, world: World, name: str
) -> None:
    async def job() -> None:
        async with window(qapp, world.workspace, tmp_path) as studio:
            studio.window.activateWindow()
            with record_effects(studio) as watch:
                await play_all(Stage(studio, watch, world), REAL[name])

    run(job())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LOST)
def test_every_button_has_its_effect_after_engine_loss(
    run: Run, qapp: QApplication, tmp_path: Path, name: str
) -> None:
    async def job() -> None:
        async with window(qapp, tmp_path / "own", tmp_path) as studio:
            with record_effects(studio) as watch:
                await play_all(Stage(studio, watch, None), LOST[name])
            session = studio.session
            await until(lambda: session.connected and not session.tasks.busy("engine"), 60)
            await studio.link.shut_down()

    run(job())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FAKE)
def test_every_button_has_its_effect_over_fake_engine(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, name: str
) -> None:
    made = fill_workspace(engine, 24)
    engine.project_store.model = write_headers(tmp_path / "llama-8b")

    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            studio.settings.update(reduced_motion=True)
            studio.window.resize(1280, 800)
            state = studio.session.runs.state(made.spec.id)
            await until(lambda: state.seq == len(made.events))
            await open_project(studio, engine, "inbox-scout")
            with record_effects(studio) as watch:
                await play_all(Stage(studio, watch, engine), FAKE[name])

    run(job())


def test_fake_engine_scenes_give_a_reason() -> None:
    assert not [scene.name for scenes in REAL.values() for scene in scenes if scene.fake]
    assert not [scene.name for scenes in FAKE.values() for scene in scenes if not scene.fake]

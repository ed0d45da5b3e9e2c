"""First use of the studio: window, engine process, starter model, and screenshots of every page.

Open the sample, train, close the window, open it again while training, stop, resume. Screenshots
are saved in $ATELIER_SHOTS, or in the test's folder.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from PySide6.QtWidgets import QApplication

from engine.models.registry import problem_of
from engine.protocol.requests.runs import EditProject
from studio.app import Studio
from studio.services.session import Session
from tests.studio.conftest import until

PAGES = ("home", "setup", "judge", "run", "trajectories", "checkpoints", "settings")
SIZES = ((1280, 800), (1920, 1080))
LONG_S = 240.0
SETTLE_S = 0.6 if "ATELIER_SHOTS" in os.environ else 0.05
"""Wait before a screenshot; longer if somebody looks at them."""
SMALL_STEPS = {
    "train.steps": 60,
    "train.groups": 2,
    "train.group_size": 4,
    "train.validate_every": 0,
}
"""More steps than the test waits for; `test_hello` checks that it learns."""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("CONFIG_HOME", "STATE_HOME", "DATA_HOME", "RUNTIME_DIR"):
        folder = tmp_path / name.lower()
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(f"XDG_{name}", str(folder))
    folder = tmp_path / "workspace"
    folder.mkdir()
    yield folder
    for record in (tmp_path / "runtime_dir" / "atelier").glob("engine-*.json"):
        end_process(json.loads(record.read_text())["pid"])


@asynccontextmanager
async def window(app: QApplication, workspace: Path) -> AsyncIterator[Studio]:
    """Open a studio that finds or starts the real engine; closing it sends no command."""
    studio = Studio(app, str(workspace), workspace.parent / "studio.toml")
    studio.start()
    try:
        await until(lambda: studio.session.connected, 60)
        yield studio
    finally:
        studio.window.close()
        await studio.close()
        studio.window.deleteLater()


def is_running(session: Session) -> bool:
    return session.run.state.status == "running"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_first_use_trains_closes_reopens_stops_and_resumes(  # type: ignore[no-untyped-def]
    run, qapp: QApplication, workspace: Path
) -> None:
    assert problem_of("smollm2-135m-instruct") is None, "run `atelier models pull` first"
    shots = Path(os.environ.get("ATELIER_SHOTS", workspace.parent / "shots"))
    shots.mkdir(exist_ok=True)

    async def first_session() -> None:
        async with window(qapp, workspace) as studio:
            session = studio.session
            await until(lambda: session.samples, 30)
            sample = next(s for s in session.samples if s.name == "hello")
            studio.pages["home"]._samples.chosen.emit(sample)  # type: ignore[attr-defined]
            await until(lambda: session.project.path, 30)
            path = session.project.path
            await session.link.client.edit_project(path, EditProject(values=SMALL_STEPS))
            await until(lambda: studio.actions.holds("trainable"), 30)
            studio.actions.trigger("run.train")
            await until(lambda: session.run.state.done >= 2, LONG_S)
            await take_pictures(studio, shots)
            studio.window.show_page("run")

    async def second_session() -> None:
        async with window(qapp, workspace) as studio:
            session = studio.session
            await until(lambda: session.run.state.done >= 2, 60)
            assert is_running(session), "training continued without the window"
            await until(lambda: studio.actions.holds("stoppable"))
            studio.actions.trigger("run.stop_now")
            await until(lambda: session.run.state.status == "stopped", 60)
            stopped = session.run.state.done
            # without it, resuming does nothing
            await until(lambda: studio.actions.holds("resumable"), 30)
            studio.actions.trigger("run.resume")
            await until(lambda: session.run.state.done > stopped, LONG_S)
            await until(lambda: studio.actions.holds("stoppable"))
            studio.actions.trigger("run.stop_now")
            await until(lambda: session.run.state.status == "stopped", 60)

    async def whole() -> None:
        await first_session()
        await second_session()

    run(whole())
    assert len(list(shots.glob("*.png"))) >= len(PAGES) * 2 * len(SIZES)


async def take_pictures(studio: Studio, folder: Path) -> None:
    for theme in ("dark", "light"):
        studio.theme.set_mode(theme)
        for width, height in SIZES:
            studio.window.resize(width, height)
            for page in PAGES:
                studio.window.show_page(page)
                await asyncio.sleep(SETTLE_S)
                file = folder / f"{page}-{theme}-{width}.png"
                assert studio.window.grab().save(str(file))


def end_process(pid: int) -> None:
    """End the engine that this test has started, with its children."""
    process = psutil.Process(pid)
    process.terminate()
    process.wait(30)

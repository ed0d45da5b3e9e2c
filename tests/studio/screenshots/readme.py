"""Screenshots and the animation of README.md, made from a real training run.

`python -m tests.studio.screenshots.readme [FOLDER]`

Start an engine and a window (offscreen, device pixel ratio 2), train the sample "Yes, no, maybe"
with the starter model in a temporary workspace, and save into FOLDER (default:
resources/screenshots) run-{light,dark}.png, trajectories-{light,dark}.png and tour.webp (Train,
curve, inspector, label). The printed line has the facts for the captions.
"""

import asyncio
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ["QT_SCALE_FACTOR"] = "2"
os.environ.setdefault("QT_API", "pyside6")

from PIL import Image, ImageDraw
from PySide6.QtCore import QBuffer, QIODevice, QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from engine.protocol.records.runs import GroupSummary
from engine.protocol.requests.runs import EditProject, TrajectoryQuery
from studio.app import Studio
from studio.runtime.paths import resource
from tests.studio.buttons.every_button import buttons_of
from tests.studio.buttons.stage import words_of
from tests.studio.screenshots.pages import run_shots, wait_for

SAMPLE = "hello"
SIZE = (1280, 800)
ANIMATION_WIDTH = 1000
ANIMATION_BYTES = 3_000_000
PICTURES_AT_STEP = 12
STEPS = 24
"""Steps of the run, enough that it still trains while the pictures are taken."""
LOAD_S, LABEL_S, SETTLE_S, REDRAWN_S = 120.0, 60.0, 1.2, 2.0
SAMPLING_S = 2.0
"""Time between two frames of the animation while the curve grows."""
CURVE_FRAMES = 40
"""Maximum number of frames of that part."""

SCORE = "25"
"""Digits typed as a human score: 0.25."""

Pictures = dict[str, Image.Image]
"""Images by file name."""

Frames = list[tuple[Image.Image, int]]
"""Images with their display time in milliseconds."""


def image_of(window: QWidget) -> Image.Image:
    """Grab a window at its device pixel ratio."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    window.grab().save(buffer, "PNG")  # type: ignore[call-overload]
    return Image.open(io.BytesIO(bytes(buffer.data().data()))).convert("RGB")


class Tour:
    """Frames of the animation: the window scaled down, with a ring where the mouse clicks."""

    def __init__(self, window: QWidget) -> None:
        self._window = window
        self.frames: Frames = []

    def add(self, shown_ms: int, click: QPoint | None = None) -> None:
        image = image_of(self._window)
        if click is not None:
            x, y = click.x() * 2, click.y() * 2
            ImageDraw.Draw(image).ellipse((x - 36, y - 36, x + 36, y + 36), None, "#f59e0b", 6)
        height = round(image.height * ANIMATION_WIDTH / image.width)
        scaled = image.resize((ANIMATION_WIDTH, height), Image.Resampling.LANCZOS)
        self.frames.append((scaled, shown_ms))

    def thin(self, begin: int, most: int) -> None:
        """Keep at most that many frames from `begin` on, evenly chosen, with the last one."""
        tail = self.frames[begin:]
        every = -(-len(tail) // most)
        self.frames[begin:] = tail[::-1][::every][::-1]

    def save(self, file: Path) -> None:
        """Write an animated WebP of at most ANIMATION_BYTES, at the best quality that fits."""
        images, durations = [image for image, _ in self.frames], [ms for _, ms in self.frames]
        for quality in (90, 80, 70, 60, 50):
            images[0].save(
                file, save_all=True, append_images=images[1:], duration=durations, loop=0,
                quality=quality, method=6,
            )  # fmt: skip
            if file.stat().st_size <= ANIMATION_BYTES:
                return
        raise ValueError(f"{file} has {file.stat().st_size} bytes at the lowest quality")


async def shoot(app: QApplication, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="atelier-capture-") as scratch:
        workspace = isolate(Path(scratch)) / "workspace"
        workspace.mkdir()
        project = copy_sample(workspace)
        studio = Studio(app, str(workspace), workspace.parent / "studio.toml")
        studio.start()
        try:
            await wait_for(lambda: studio.session.connected, LOAD_S)
            pictures, tour = await take(studio, project)
        except BaseException:
            for log in Path(scratch).rglob("*.log"):
                print(f"--- {log}\n{log.read_text()[-4000:]}", file=sys.stderr)
            raise
        finally:
            if studio.session.connected:
                await studio.link.shut_down()
            else:
                studio.link.kill()
            studio.window.close()
            await studio.close()
    for name, image in pictures.items():
        image.save(folder / name, optimize=True)
    tour.save(folder / "tour.webp")


def copy_sample(workspace: Path) -> Path:
    """Make a project from the sample, as `engine new` does."""
    project = workspace / SAMPLE
    command = [sys.executable, "-m", "engine", "new", str(project), "--sample", SAMPLE]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return project


def isolate(home: Path) -> Path:
    """Point settings, keys and state to an empty folder; the model cache stays in place."""
    for name in ("CONFIG_HOME", "STATE_HOME", "DATA_HOME", "RUNTIME_DIR"):
        folder = home / name.lower()
        folder.mkdir(mode=0o700)
        os.environ[f"XDG_{name}"] = str(folder)
    return home


async def take(studio: Studio, project: Path) -> tuple[Pictures, Tour]:
    """Train, then visit the pages.

    Images are encoded later, to not stall the window's event loop.
    """
    session, window = studio.session, studio.window
    studio.settings.update(theme="dark")
    window.resize(*SIZE)
    session.open_project(str(project))
    await wait_for(lambda: session.project.path == str(project), LOAD_S)
    await session.client.edit_project(str(project), EditProject(values={"train.steps": STEPS}))
    window.show_page("run")
    await wait_for(lambda: studio.actions.holds("trainable"), LOAD_S)
    await asyncio.sleep(SETTLE_S)
    tour = Tour(window)
    tour.add(1200)
    tour.add(700, click=center_of(window, "Train"))
    studio.actions.trigger("run.train")
    await wait_for(lambda: session.run.run_id, LOAD_S)
    begin = len(tour.frames)
    while session.run.state.done < PICTURES_AT_STEP:
        await asyncio.sleep(SAMPLING_S)
        tour.add(140)
        assert session.run.state.status in (None, "queued", "starting", "running"), (
            session.run.state
        )
    tour.thin(begin, CURVE_FRAMES)
    tour.add(1200)
    pictures = await both_themes(studio, "run")
    pictures |= await inspect(studio, tour)
    state = session.run.state
    print(f"{session.project.name}, run {session.run.run_id}, {state.done} steps")
    return pictures, tour


async def inspect(studio: Studio, tour: Tour) -> Pictures:
    """Open the recent group with the widest rewards, score its second best trajectory, apply."""
    studio.window.show_page("trajectories")
    page: Any = studio.pages["trajectories"]
    await wait_for(lambda: page._siblings is not None, LOAD_S)
    best = await widest_group(studio)
    page.show_group(best.split, best.step, best.group)
    await wait_for(lambda: page._siblings.group == best, LOAD_S)
    await asyncio.sleep(SETTLE_S)
    pictures = await both_themes(studio, "trajectories")
    tour.add(2200)
    studio.window.windowHandle().requestActivate()
    await wait_for(lambda: QApplication.activeWindow() is studio.window)
    await wait_for_connection(studio)
    press_key(page, Qt.Key.Key_Right)
    tour.add(900)
    press_key(page, Qt.Key.Key_S)
    await asyncio.sleep(SETTLE_S)
    QTest.keyClicks(QApplication.focusWidget(), SCORE)
    tour.add(1200)
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
    await wait_for(lambda: page._labels.labelling.preview, LABEL_S)
    await asyncio.sleep(SETTLE_S)
    tour.add(2200)
    press_key(page, Qt.Key.Key_Return)
    await wait_for(lambda: page._labels.toast.isVisible(), LABEL_S)
    await asyncio.sleep(SETTLE_S)
    await wait_for_connection(studio)
    tour.add(2600)
    return pictures


async def widest_group(studio: Studio) -> GroupSummary:
    query = TrajectoryQuery(split="train", signal=True)
    groups = await studio.session.client.groups(studio.session.run.run_id, query)
    return max(groups.items[:40], key=lambda group: (len({*group.rewards}), group.std or 0.0))


def press_key(page: Any, key: Qt.Key) -> None:
    page._home().setFocus()
    QTest.keyClick(QApplication.focusWidget() or page._home(), key)


def center_of(window: QWidget, words: str) -> QPoint:
    """Return the center of the widest visible button that starts with `words`, in the window."""
    visible = [one for one in buttons_of(window) if one.isVisible()]
    button = max((one for one in visible if words_of(one).startswith(words)), key=QWidget.width)
    return button.mapTo(window, button.rect().center())


async def wait_for_connection(studio: Studio) -> None:
    """Wait for the engine, which may answer late on a busy machine, and dismiss the message."""
    await wait_for(lambda: studio.session.connected, LOAD_S)
    studio.notifier.resolved()
    await asyncio.sleep(0.1)


async def both_themes(studio: Studio, name: str) -> Pictures:
    pictures = {}
    for scheme in ("light", "dark"):
        studio.settings.update(theme=scheme)
        await asyncio.sleep(REDRAWN_S)
        await wait_for_connection(studio)
        pictures[f"{name}-{scheme}.png"] = image_of(studio.window)
    return pictures


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) if arguments else resource("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    run_shots(lambda app: shoot(app, folder))


if __name__ == "__main__":
    main(sys.argv[1:])

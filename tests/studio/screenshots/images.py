"""Screenshots of images in messages: the columns of a group, the reader, and one image large.

`python -m tests.studio.screenshots.images FOLDER [--sizes 1280x800,…]`
"""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.pictured import made_images
from tests.studio.screenshots.pages import (
    fill_workspace,
    open_project,
    run_command,
    settle,
    studio_on,
    take,
    wait_for,
)


async def shoot(app: QApplication, folder: Path) -> None:
    """Save the pictures in the folder."""
    engine = FakeEngine(folder / "workspace")
    engine.start()
    engine.reading.images = made_images()
    try:
        made = fill_workspace(engine)
        async with studio_on(engine, app, folder) as studio:
            state = studio.session.runs.state(made.spec.id)
            await wait_for(lambda: state.seq == len(made.events))
            await open_project(studio, engine, "inbox-scout")
            page: Any = studio.pages["trajectories"]
            studio.window.show_page("trajectories")
            await settle(1.5)
            await take(studio, folder, "images-columns")
            page.set_mode(1)
            await settle(1.5)
            await take(studio, folder, "images-reader")
            page._reader.transcript.focus_row(3)
            await settle(1.0)
            bar = page._reader.transcript.verticalScrollBar()
            bar.setValue(bar.value() - 420)
            await settle(1.0)
            await take(studio, folder, "images-tool")
            page._images.pictures.opened.emit(1, next(iter(engine.reading.images)))
            await settle(1.0)
            await take(studio, folder, "images-large")
    finally:
        engine.stop()


if __name__ == "__main__":
    run_command(shoot)

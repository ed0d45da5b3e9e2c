"""Studio window over a real engine process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from studio.app import Studio
from tests.studio.conftest import until

CONNECTED_S = 60.0


@asynccontextmanager
async def window(app: QApplication, workspace: Path) -> AsyncIterator[Studio]:
    """Open a studio connected to a new engine over `workspace`; close both on exit."""
    studio = Studio(app, str(workspace), workspace.parent / "studio.toml")
    studio.start()
    try:
        await until(lambda: studio.session.connected, CONNECTED_S)
        studio.window.resize(1280, 800)
        yield studio
        await studio.link.shut_down()
    finally:
        studio.window.close()
        await studio.close()
        studio.window.deleteLater()


def page_of(studio: Studio, key: str) -> Any:
    """Show a page and return it."""
    studio.window.show_page(key)
    return studio.pages[key]

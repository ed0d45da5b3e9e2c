"""Studio window over a real engine process."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from PySide6.QtWidgets import QApplication

from engine.launcher import local
from engine.launcher.interpreters import Interpreter
from studio.app import Studio
from tests.studio.conftest import until
from tests.support.engine_starter import Started, starter

CONNECTED_S = 60.0
execute = local._spawn


def fork(
    workspace: Path, engine: Interpreter, log: IO[bytes]
) -> "subprocess.Popen[bytes] | Started":
    """Start an engine as the launcher does, forked where that is possible."""
    ready = starter()
    if ready is None or engine.python != sys.executable:
        return execute(workspace, engine, log)
    argv = [engine.python, "-m", "engine", "serve", "--workspace", str(workspace)]
    return ready.start(argv, log.fileno(), engine.variables)


@contextmanager
def forked_engines() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_spawn", fork)
        yield


@asynccontextmanager
async def window(app: QApplication, workspace: Path) -> AsyncIterator[Studio]:
    """Open a studio connected to a new engine over `workspace`; close both on exit."""
    with forked_engines():
        async with opened_window(app, workspace) as studio:
            yield studio


@asynccontextmanager
async def opened_window(app: QApplication, workspace: Path) -> AsyncIterator[Studio]:
    """Like `window`, with an engine that is started as a new program."""
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

"""Pages are built when first shown, or in advance while the window is idle."""

from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from studio.pages.page import Page
from studio.shell.page_registry import KEYS
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import studio_on


def test_page_is_built_when_shown(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            before = set(studio.pages.built)
            assert "checkpoints" not in before
            studio.window.show_page("checkpoints")
            assert set(studio.pages.built) == before | {"checkpoints"}
            assert studio.window.page == "checkpoints"
            assert studio.pages["checkpoints"] is studio.pages.built["checkpoints"]

    run(job())


def test_all_pages_are_built_ahead_and_current_page_stays(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            shown = studio.window.page
            studio.pages.build_ahead(studio.window)
            assert len(studio.pages.built) < len(KEYS)  # one after the other
            await until(lambda: set(studio.pages.built) == set(KEYS))
            assert studio.window.page == shown

    run(job())


def test_page_that_is_built_while_the_pages_close_is_closed_too(
    engine: FakeEngine,
    run: Run,
    qapp: QApplication,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            pages, closed = studio.pages, list[str]()
            later = next(key for key in KEYS if key not in pages.built)
            close = Page.close_tasks

            async def close_tasks(page: Page) -> None:
                if not closed:
                    pages[later]
                closed.append(next(key for key, one in pages.built.items() if one is page))
                await close(page)

            monkeypatch.setattr(Page, "close_tasks", close_tasks)
            await pages.close()
            assert closed[-1] == later
            assert sorted(closed) == sorted(pages.built)
            monkeypatch.undo()

    run(job())

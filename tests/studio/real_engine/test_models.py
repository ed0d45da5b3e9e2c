"""Models page over a real engine and a hub on loopback: search, download, use in a project."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from tests.engine_http.conftest import make_project
from tests.studio.conftest import Run, until
from tests.studio.real_engine.test_engine import SOON_S, click
from tests.studio.real_window import page_of, window
from tests.support.model_hub import model_hub

NAME = "tiny/llama"


@pytest.mark.timeout(120)
def test_model_is_found_downloaded_and_used(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_TOKEN", raising=False)

    async def job() -> None:
        project = make_project(tmp_path / "workspace" / "lab", tiny_model)
        async with window(qapp, tmp_path / "workspace") as studio:
            session = studio.session
            session.open_project(str(project), "setup")
            await until(lambda: studio.window.page == "setup", SOON_S)
            setup: Any = page_of(studio, "setup")
            setup._form.models_wanted.emit()
            assert studio.window.page == "models"
            page: Any = page_of(studio, "models")
            await until(lambda: page.watch.list is not None, SOON_S)
            page.search_for("llama")
            await until(lambda: NAME in page._facts, SOON_S)
            assert page._facts[NAME].fit.verdict == "fits"
            click(page.detail._download)
            await until(lambda: page.detail._use.isVisible(), SOON_S)
            click(page.detail._use)
            await until(lambda: studio.window.page == "setup", SOON_S)
            assert 'name = "tiny/llama"' in (project / "project.toml").read_text()
            await until(lambda: any(one.name == NAME for one in setup._form._models), SOON_S)

    with model_hub() as hub:
        hub.add_folder(NAME, tiny_model, parameters={"F32": 91_000})
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        run(job())

"""Screenshots of the Models page: this machine, search, downloads, a gated model, offline.

`python -m tests.studio.screenshots.models FOLDER [--sizes 960x640,…]`
"""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.requests.models import ModelDownload
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.models import GATED, HUB, UNREACHABLE
from tests.studio.screenshots.pages import open_project, run_command, settle, studio_on, take

DOWNLOADS = [
    ModelDownload(
        name=HUB[1].id,
        title="Qwen2.5-7B-Instruct",
        state="downloading",
        done_bytes=4_200_000_000,
        total_bytes=15_231_233_024,
        speed=48e6,
        rest_s=230,
    ),
    ModelDownload(
        name=HUB[0].id,
        title="Qwen2.5-1.5B-Instruct",
        state="interrupted",
        done_bytes=1_200_000_000,
        total_bytes=3_087_000_000,
        problem=UNREACHABLE,
    ),
]


async def shoot(app: QApplication, folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    engine.add_project("inbox-scout")
    try:
        async with studio_on(engine, app, folder) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.show_page("models")
            page: Any = studio.pages["models"]
            await settle(0.6)
            await take(studio, folder, "models-here")
            page.search_for("qwen instruct")
            await settle(1.0)
            page.found.choose(HUB[1].id)
            await settle(0.5)
            await take(studio, folder, "models-search")
            waiting = DOWNLOADS[1].model_copy(
                update={"name": HUB[2].id, "title": "Qwen2.5-72B-Instruct", "state": "queued",
                        "problem": None, "done_bytes": 0, "total_bytes": 145_000_000_000}
            )  # fmt: skip
            engine.models.downloads = [*DOWNLOADS, waiting]
            engine.models.step_bytes = 0
            page.watch.start()
            page.search_for("Qwen/Qwen2.5-7B")
            await settle(1.0)
            page.found.choose("Qwen/Qwen2.5-7B")
            await take(studio, folder, "models-downloads")
            engine.models.downloads = [
                ModelDownload(
                    name=HUB[4].id, title="Llama-3.2-3B-Instruct", state="failed", problem=GATED
                )
            ]
            page.watch.start()
            page.search_for(HUB[4].id)
            await settle(1.0)
            await take(studio, folder, "models-gated")
            engine.models.offline = True
            page.search_for("llama")
            await settle(0.6)
            await take(studio, folder, "models-offline")
    finally:
        engine.stop()


if __name__ == "__main__":
    run_command(shoot)

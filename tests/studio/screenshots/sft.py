"""Screenshots of supervised training, in both themes and two sizes.

`python -m tests.studio.screenshots.sft FOLDER`
"""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from tests.studio.fakes import made_sft
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import open_project, run_command, settle, studio_on, take


async def shoot(app: QApplication, folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    try:
        engine.add_project("inbox-scout")
        made = made_sft.sft_run()
        engine.add_run(made)
        async with studio_on(engine, app, folder) as studio:
            await open_project(studio, engine, "inbox-scout")
            await _setup(studio, engine, folder)
            studio.session.select_run(made.spec.id)
            for page in ("run", "checkpoints"):
                studio.window.show_page(page)
                await settle(1.0)
                await take(studio, folder, f"sft-{page}")
            run: Any = studio.pages["run"]
            run.open_branch()
            await settle(0.6)
            await take(studio, folder, "sft-branch")
    finally:
        engine.stop()


async def _setup(studio: Any, engine: FakeEngine, folder: Path) -> None:
    setup: Any = studio.pages["setup"]
    for name, demonstrations in (
        ("good", made_sft.demonstrations()),
        ("bad", made_sft.demonstrations(bad=True)),
        ("none", made_sft.Demonstrations(files=[made_sft.NOTHING], problem=made_sft.REFUSED)),
    ):
        engine.project_store.demonstrations = demonstrations
        studio.actions.trigger("sft.open")
        await settle(0.6)
        await take(studio, folder, f"demonstrations-{name}")
    studio.actions.trigger("sft.teacher")
    await settle(0.6)
    await take(studio, folder, "teacher")
    setup._teacher.close_sheet()
    await settle(0.6)


if __name__ == "__main__":
    run_command(shoot)

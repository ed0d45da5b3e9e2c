"""Screenshots of the Checkpoints page and of the branch sheet, from the fake engine.

`python -m tests.studio.screenshots.checkpoints FOLDER`
"""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.requests.runs import StartEvaluation
from tests.studio.fakes.engine import FakeEngine
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
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    try:
        made = fill_workspace(engine)
        engine.checkpoints.pinned[19] = "before the rubric changed"
        async with studio_on(engine, app, folder) as studio:
            state = studio.session.runs.state(made.spec.id)
            await wait_for(lambda: state.seq == len(made.events))
            await open_project(studio, engine, "inbox-scout")
            page: Any = studio.pages["checkpoints"]
            studio.window.show_page("checkpoints")
            await settle(1.0)
            await take(studio, folder, "checkpoints-tested")
            engine._evaluate(StartEvaluation(project=str(workspace / "inbox-scout")))
            studio.session.refresh()
            await settle(1.5)
            arena = page._arena
            arena._ask.setText("Did the Halden contract get extended, and until when?")
            arena._put()
            await settle(1.5)
            await take(studio, folder, "checkpoints-evaluated")
            engine.checkpoints.votes = 20
            arena.load()
            arena._blind.setChecked(True)
            arena._ask.setText("Did the Halden contract get extended, and until when?")
            arena._put()
            await settle(1.5)
            await take(studio, folder, "checkpoints-blind")
            page._list.want_export(0)
            await settle(0.8)
            await take(studio, folder, "export-ready")
            page._export._press()
            await settle(1.2)
            await take(studio, folder, "export-equal")
            engine.checkpoints.verdict = "differs"
            page._list.want_export(1)
            page._export._press()
            await settle(1.2)
            await take(studio, folder, "export-differs")
            page._export.close_sheet()
            studio.window.show_page("run")
            await settle(0.8)
            studio.actions.trigger("run.branch")
            await settle(0.8)
            await take(studio, folder, "branch")
    finally:
        engine.stop()


if __name__ == "__main__":
    run_command(shoot)

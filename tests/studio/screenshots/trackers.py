"""Screenshots of trackers: Run page, Setup form, and keys in Settings.

`python -m tests.studio.screenshots.trackers FOLDER`
"""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.config.tracking import TrackerList, TrackerView
from engine.protocol.problems import Problem
from studio.pages.setup.form.advanced import AdvancedFold
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

DOWN = Problem(
    code="track.unreachable",
    message="MLflow cannot be reached at http://127.0.0.1:5000.",
    hint="Check the address and the network; unsent data is uploaded later.",
)
VIEWS = (
    TrackerView(name="wandb", state="in_step", url="https://wandb.ai/me/inbox/runs/1"),
    TrackerView(name="mlflow", state="failing", behind=12, problem=DOWN),
    TrackerView(name="tensorboard", state="behind", behind=3),
    TrackerView(name="langfuse", state="unsent", behind=40),
)


async def shoot(app: QApplication, folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    try:
        made = fill_workspace(engine)
        engine.tracking.views[made.spec.id] = TrackerList(trackers=list(VIEWS))
        async with studio_on(engine, app, folder) as studio:
            state = studio.session.runs.state(made.spec.id)
            await wait_for(lambda: state.seq == len(made.events))
            await open_project(studio, engine, "inbox-scout")
            run: Any = studio.pages["run"]
            studio.window.show_page("run")
            await settle(1.0)
            bar = run._side.verticalScrollBar()
            bar.rangeChanged.connect(lambda _, most: bar.setValue(most))
            bar.setValue(bar.maximum())
            await take(studio, folder, "run-trackers")
            await take_form(studio, folder)
            settings: Any = studio.pages["settings"]
            studio.window.show_page("settings")
            await settle(0.5)
            settings._area.ensureWidgetVisible(settings._api_keys[-1])
            await take(studio, folder, "settings-trackers")
    finally:
        engine.stop()


async def take_form(studio: Any, folder: Path) -> None:
    studio.window.show_page("setup")
    await settle(0.5)
    fold = studio.pages["setup"].findChild(AdvancedFold)
    fold.unfold(True)
    await settle(0.5)
    row = fold.rows["track.langfuse.content"]
    parent = row.parentWidget()
    while parent is not None and not hasattr(parent, "ensureWidgetVisible"):
        parent = parent.parentWidget()
    assert parent is not None
    parent.ensureWidgetVisible(row)
    await take(studio, folder, "setup-trackers")


if __name__ == "__main__":
    run_command(shoot)

"""Screenshots of backends: Setup, Run, and a failed run, in both themes and two sizes.

`python -m tests.studio.screenshots.backends FOLDER`
"""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from studio.app import Studio
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.made_backends import SETUPS, fill_backends
from tests.studio.screenshots.pages import open_project, run_command, settle, studio_on, take


async def shoot(app: QApplication, folder: Path, wanted: list[str]) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    (folder / "studio.toml").unlink(missing_ok=True)  # otherwise the window restores its last state
    engine = FakeEngine(workspace).start()
    try:
        runs = fill_backends(engine)
        async with studio_on(engine, app, folder) as studio:
            for name, (facts, backend, staleness) in SETUPS.items():
                if not wanted or name in wanted:
                    await show_setup(studio, engine, facts, backend, staleness)
                    await take(studio, folder, f"setup-{name}")
            for name, project in runs.items():
                if not wanted or name in wanted:
                    await open_project(studio, engine, project)
                    studio.window.show_page("run")
                    await settle(1.0)
                    await take(studio, folder, f"run-{name}")
                    side: Any = studio.pages["run"]._side  # type: ignore[attr-defined]
                    side._machine.grab().save(str(folder / f"machine-{name}.png"))
                    gap: Any = studio.pages["run"]._grid.bound["gap"].card  # type: ignore[attr-defined]
                    gap.grab().save(str(folder / f"gap-{name}.png"))
    finally:
        engine.stop()


async def show_setup(
    studio: Studio, engine: FakeEngine, facts: Any, backend: dict[str, Any], staleness: int
) -> None:
    """Show the unfolded backend card."""
    engine.project_store.backends = facts
    view = engine.add_project("inbox-scout")
    assert view.config is not None
    config = view.config.model_dump()
    config["backend"] |= backend
    config["train"]["staleness"] = staleness
    view = view.model_copy(update={"config": type(view.config).model_validate(config)})
    engine.project_store.projects[view.path] = view
    await open_project(studio, engine, "inbox-scout")
    studio.window.show_page("home")
    studio.window.show_page("setup")
    page: Any = studio.pages["setup"]
    await settle(0.8)
    card = page._form._backend
    card.unfold(True)
    await settle(0.2)
    scroll = page._stack.widget(0)
    scroll.verticalScrollBar().setValue(card.y() - 40)


if __name__ == "__main__":
    run_command(shoot, names=True)

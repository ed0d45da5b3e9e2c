"""Screenshots of chat formats: Setup with its settings, the reader with reasoning folded and shown,
and the columns of a group.

`python -m tests.studio.screenshots.chat_formats FOLDER [--sizes 1280x800,…]`
"""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication, QScrollArea

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
    """Save the pictures in the folder."""
    engine = FakeEngine(folder / "workspace")
    engine.start()
    engine.reading.reasons = True
    try:
        made = fill_workspace(engine)
        for event in made.events:
            if event.kind == "step.finished":
                event.metrics["tokens/reasoning_mean"] = 160 + 40 * (event.step % 5) + event.step
                event.metrics["malformed_calls"] = 0.08 / event.step
                event.metrics["reasoning_closed"] = 0.6 / event.step
        async with studio_on(engine, app, folder) as studio:
            state = studio.session.runs.state(made.spec.id)
            await wait_for(lambda: state.seq == len(made.events))
            await open_project(studio, engine, "inbox-scout")
            setup: Any = studio.pages["setup"]
            studio.window.show_page("setup")
            await settle(1.0)
            await take(studio, folder, "setup")
            _scroll(setup._preflight, setup._preflight._model_checks[-1])
            await take(studio, folder, "setup-preflight")
            setup._form._advanced.unfold(True)
            await settle(0.5)
            row = setup._form._advanced.rows["model.template_variables"]
            _scroll(setup._stack, row)
            await take(studio, folder, "setup-advanced")

            studio.window.show_page("run")
            await settle(1.0)
            await take(studio, folder, "run")
            page: Any = studio.pages["trajectories"]
            studio.window.show_page("trajectories")
            await settle(1.0)
            await take(studio, folder, "columns")
            page.set_mode(1)
            await settle(0.5)
            await take(studio, folder, "reader")
            page._reader.transcript.toggle_reasoning()
            await take(studio, folder, "reader-reasoning")
            page._reader.transcript.focus_row(len(page._reader._items) - 2)
            await take(studio, folder, "reader-branch")
    finally:
        engine.stop()


def _scroll(page: Any, widget: Any) -> None:
    """Scroll a part of a page to a widget in it."""
    for area in page.findChildren(QScrollArea):
        if area.isAncestorOf(widget):
            area.ensureWidgetVisible(widget, 0, 160)


if __name__ == "__main__":
    run_command(shoot)

"""Every page at the smallest and at usual sizes of the window: nothing is cut or overlaps."""

import asyncio
import time
from pathlib import Path

from PySide6.QtWidgets import QApplication, QWidget

from studio.main_window import LEAST
from tests.studio.clipping import flaws
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.models import DOWNLOADS
from tests.studio.screenshots.pages import fill_workspace, open_project, studio_on

SETTLED_S, ONE_LINE_PX = 0.1, 52
LONG = (
    "The adapter could not be read. Choose a folder that has adapter_config.json and the weights: "
    "/home/somebody/experiments/2026-11-03/inbox-scout-with-a-long-name/checkpoints/step-000120/"
    "adapter_model.safetensors"
)
"""Message of several lines, with a path that has no place to break."""
LASTING_S = 5.0
"""Seconds after which a flaw is there to stay."""


async def lasting_flaws(window: QWidget) -> list[str]:
    """Flaws that a busy machine does not explain: text that has just arrived is laid out next."""
    end = time.monotonic() + LASTING_S
    while (found := flaws(window)) and time.monotonic() < end:  # noqa: ASYNC110
        await asyncio.sleep(SETTLED_S)
    return found


def test_least_size_is_small() -> None:
    assert LEAST == (960, 640)


def test_nothing_is_cut_at_any_size(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> dict[str, list[str]]:
        made = fill_workspace(engine, steps=12)
        engine.models.downloads, engine.models.step_bytes = list(DOWNLOADS), 0
        found = {}
        async with studio_on(engine, qapp, tmp_path) as studio:
            state = studio.session.runs.state(made.spec.id)
            await until(lambda: state.seq == len(made.events))
            await open_project(studio, engine, "inbox-scout")
            for key in studio.pages:
                studio.window.show_page(key)
                await asyncio.sleep(3 * SETTLED_S)
                for size in (LEAST, (1100, 700), (1280, 800)):
                    studio.window.resize(*size)
                    await asyncio.sleep(SETTLED_S)
                    assert studio.window.size().toTuple() == size
                    if cut := await lasting_flaws(studio.window):
                        found[f"{key} at {size[0]}"] = cut
                studio.notifier.say(LONG)
                studio.window.resize(*LEAST)
                await asyncio.sleep(SETTLED_S)
                toast = studio.window.toast
                assert toast.words() == LONG
                assert toast.height() > ONE_LINE_PX
                if cut := await lasting_flaws(studio.window):
                    found[f"{key} with a toast"] = cut
                toast.hide()
        return found

    found = run(job())
    report = "\n".join(f"{place}: {flaw}" for place, cut in found.items() for flaw in cut)
    assert not found, report

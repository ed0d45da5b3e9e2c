"""Screenshots of the Runs page: the table, notes, and the parts of a comparison.

`python -m tests.studio.screenshots.runs FOLDER`
"""

import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.config.algorithm import Algorithm
from engine.protocol.records.run_notes import RunNotes
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import Made, Simulation, TrainConfig
from tests.studio.fakes.sweeps import make_sweep
from tests.studio.screenshots.pages import (
    open_project,
    run_command,
    settle,
    studio_on,
    take,
    wait_for,
)

NAMES = (
    "quiet-heron", "amber-fox", "brisk-otter", "calm-finch", "dusty-lark", "early-wren",
    "frank-mole",
)  # fmt: skip
TAGS = (("baseline",), (), ("lr sweep",), ("lr sweep", "long"), (), (), ("lr sweep",))


@cache
def simulated_run(place: int, project: str) -> Made:
    """Simulate the run at a place of `NAMES`, once per process; the seven take 0.8 s."""
    train = TrainConfig(
        steps=40,
        validate_every=5,
        lr=(1e-5, 1e-5, 3e-5, 1e-4, 1e-5, 2e-5, 3e-5)[place],
        group_size=(8, 8, 8, 8, 4, 16, 8)[place],
        seed=place // 2,
        algorithm=Algorithm(preset="gspo" if place == 4 else "atelier"),
    )
    clock = time.time() - 86_400 * (8 - place) + 3000 * place
    run = Simulation(f"01JD5TILES{place}", NAMES[place], project, train, 20 + place, clock=clock)
    run.begin()
    last = 40 if place < 5 else 17
    for step in range(1, last + 1):
        run.step(step)
    if place < 4:
        run.end(40)
    elif place == 4:
        run.fail(41)
    return run.made


def add_runs(engine: FakeEngine, project: str = "tiles") -> list[str]:
    """Add seven runs with different settings to a project; the last one is active."""
    engine.add_project(project, description="2048")
    ids = []
    for place in range(len(NAMES)):
        made = simulated_run(place, project)
        run_id = made.spec.id
        # an engine adds to its own lists
        lists = {"events": [*made.events], "trajectories": [*made.trajectories]}
        engine.add_run(replace(made, **lists, groups=[*made.groups]), project)
        notes = RunNotes(
            tags=TAGS[place], pinned=place == 0, note="The one to beat." if place == 0 else ""
        )
        summary = engine.summaries[run_id]
        engine.summaries[run_id] = summary.model_copy(update={"notes": notes})
        ids.append(run_id)
    return ids


async def shoot(app: QApplication, folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    try:
        ids = add_runs(engine)
        engine.sweeps.views.append(make_sweep(str(workspace / "tiles")))
        engine.add_project("hello", description="Yes, no, maybe")
        async with studio_on(engine, app, folder) as studio:
            await open_project(studio, engine, "tiles")
            studio.window.show_page("runs")
            page: Any = studio.pages["runs"]
            await wait_for(lambda: page.model.total)
            await take(studio, folder, "runs")
            for row in range(4):
                page._choose(row)
            await take(studio, folder, "runs-chosen")
            page._sheet.show_runs(page._targets())
            await settle(0.6)
            await take(studio, folder, "runs-notes")
            page._sheet.close_sheet()
            page.compare(ids[:5])
            await wait_for(lambda: page.compare_view.isVisible())
            await settle(2.0)
            for part, name in enumerate(("charts", "validation", "settings")):
                page.compare_view._part.set_index(part)
                page.compare_view._show_part(part)
                await settle(0.6)
                await take(studio, folder, f"compare-{name}")
            page._close_comparison()
            page._show_sweeps()
            await wait_for(lambda: page.sweeps._view)
            await settle()
            await take(studio, folder, "sweeps")
            page.sweeps.open_form()
            await settle(1.2)
            await take(studio, folder, "sweeps-form")
            page.sweeps._sheet.close_sheet()
            await open_project(studio, engine, "hello")
            studio.window.show_page("runs")
            await settle(0.6)
            await take(studio, folder, "runs-empty")
    finally:
        engine.stop()


if __name__ == "__main__":
    run_command(shoot)

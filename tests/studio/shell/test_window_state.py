"""Header over a fake engine: its controls keep their place, and a requested pause is shown."""

import asyncio
from pathlib import Path
from typing import Any, get_args

import pytest
from PySide6.QtWidgets import QApplication, QWidget

from engine.protocol.records.runs import RunState
from studio.app import Studio
from studio.main_window import PROJECTLESS
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.screenshots.pages import open_project, studio_on

RUN = "01JD5MAMBERKESTREL00000000"
LONG_NAME = "a-project-with-a-name-that-does-not-fit-into-the-header"
SIZES = ((960, 640), (1280, 800), (1920, 1080))


@pytest.fixture(params=["inbox-scout", LONG_NAME])
def project(engine: FakeEngine, request: pytest.FixtureRequest) -> str:
    simulation = Simulation(run_id=RUN, project=request.param)
    simulation.begin()
    for step in range(1, 4):
        simulation.step(step)
    engine.add_project(request.param)
    engine.add_run(simulation.made, request.param)
    name: str = request.param
    return name


def places(studio: Studio) -> dict[str, tuple[Any, ...]]:
    """Places of the header's controls, in the window."""
    header: Any = studio.window.header
    header.layout().activate()
    parts: dict[str, QWidget] = {
        name: getattr(header, name) for name in ("_pause", "_stop", "_branch", "train")
    }
    return {
        name: (part.mapTo(studio.window, part.rect().topLeft()).toTuple(), part.size().toTuple())
        for name, part in parts.items()
        if part.isVisible()
    }


def test_controls_keep_their_place_in_every_state_and_page(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, project: str
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, project)
            session, frame = studio.session, studio.frame
            known = session.runs.summary(RUN)
            assert known is not None
            for size in SIZES:
                studio.window.resize(*size)
                found = set()
                for key in (key for key in studio.pages if key not in PROJECTLESS):
                    studio.window.show_page(key)
                    for state in get_args(RunState):
                        seq = session.run.state.seq + 1
                        update = {"state": state, "seq": seq, "step": 99_999, "steps": 100_000}
                        session.runs.put(known.model_copy(update=update))
                        frame.refresh()
                        found.add(tuple(places(studio).items()))
                assert len(found) == 1, found
                (place,) = found
                assert [name for name, _ in place] == ["_pause", "_stop", "_branch", "train"]
                right = max(left + width for _, ((left, _), (width, _)) in place)
                assert right == size[0] - 16

    run(job())


def test_view_switches_keep_their_place(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, project: str
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, project)
            trajectories: Any = studio.pages["trajectories"]
            setup: Any = studio.pages["setup"]
            switches = (
                ("trajectories", trajectories._head.mode, trajectories.set_mode, 5),
                ("setup", setup._tabs, setup._choose, 4),
            )
            for size in SIZES[:2]:
                studio.window.resize(*size)
                for page, switch, choose, count in switches:
                    studio.window.show_page(page)
                    if page == "trajectories":
                        await until(lambda: trajectories._siblings)
                    found = set()
                    for view in range(count):
                        choose(view)
                        await asyncio.sleep(0.05)
                        corner = switch.mapTo(studio.window, switch.rect().topRight())
                        found.add(corner.toTuple())
                    assert len(found) == 1, (page, size, found)

    run(job())


def test_pausing_is_shown_until_the_run_has_paused(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        simulation = Simulation(run_id=RUN)
        simulation.begin()
        simulation.step(1)
        engine.add_project("inbox-scout")
        engine.add_run(simulation.made)
        engine.pauses_late = True
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            header: Any = studio.window.header
            studio.window.show_page("run")
            await until(lambda: header._pause.isEnabled())
            assert not header._pause.is_busy()
            header._pause.click()
            await until(lambda: header._pause.is_busy())
            assert header._pause.accessibleName() == "Pausing…"
            assert header.chip.words() == "Pausing…"
            assert header.train.state() == "training"
            engine.pauses_late = False
            header._pause.click()
            assert [one.action for one in engine.commands] == ["pause"], "busy: no second request"
            studio.actions.trigger("run.pause")
            await until(lambda: [one.action for one in engine.commands][-1] == "continue")
            await until(lambda: not header._pause.is_busy())
            studio.actions.trigger("run.pause")
            await until(lambda: header.chip.words() == "Paused at step 1")
            assert not header._pause.is_busy()
            assert not header._pause.isEnabled()
            assert header.train.state() == "paused"

    run(job())

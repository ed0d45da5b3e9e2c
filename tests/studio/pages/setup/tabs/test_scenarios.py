"""Scenarios tab of Setup: unsaved edits stay with their file when responses arrive."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from engine.protocol.events.run import RunFinished
from engine.protocol.problems import Problem
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.pages.setup.test_page import open_project_setup, path_of, setting_up


@pytest.fixture
def small(engine: FakeEngine) -> FakeEngine:
    add = engine.add_project

    def with_few(name: str) -> Any:
        view = add(name)
        for split, letter in (("train", "s"), ("validation", "v")):
            rows = [{"id": f"{letter}{place}", "prompt": name} for place in range(3)]
            engine.project_store.scenario_files[view.path, split] = rows
        return view

    engine.add_project = with_few  # type: ignore[assignment]
    return engine


def prompts(tab: Any) -> list[str]:
    return [row["prompt"] for row in tab.model.rows]


def write(tab: Any, words: str, row: int = 0) -> None:
    assert tab.model.setData(tab.model.index(row, tab.model.columns.index("prompt")), words)


def stored_prompts(engine: FakeEngine, name: str, split: str = "train") -> list[str]:
    return [
        row["prompt"] for row in engine.project_store.scenario_files[path_of(engine, name), split]
    ]


async def open_scenarios(setup: Any, split: str = "train") -> Any:
    setup.show_scenarios(split)
    tab = setup._scenarios
    await until(lambda: tab.model.loaded and not setup.tasks.busy("scenarios"))
    return tab


def test_unsaved_edits_of_a_split_are_kept_on_switch(
    qapp: QApplication, run: Run, small: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(small, qapp, tmp_path) as (_, setup):
            tab = await open_scenarios(setup)
            write(tab, "mine")
            await open_scenarios(setup, "validation")
            assert prompts(tab) == ["first"] * 3
            assert not tab._save.isEnabled()
            write(tab, "mine too", 2)
            await open_scenarios(setup)
            assert prompts(tab) == ["mine", "first", "first"]
            assert tab._words.words() == "3 scenarios · not saved"
            tab.model.undo.undo()
            assert prompts(tab) == ["first"] * 3
            tab.model.undo.redo()
            setup.save()
            await until(lambda: stored_prompts(small, "first")[0] == "mine")
            await open_scenarios(setup, "validation")
            assert prompts(tab) == ["first", "first", "mine too"]

    run(work())


def test_edit_during_reload_is_kept(
    qapp: QApplication, run: Run, small: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(small, qapp, tmp_path) as (_, setup):
            tab = await open_scenarios(setup)
            small.held.add("GET /scenarios")
            setup._choose(0)
            setup.show_scenarios("train")
            assert setup.tasks.busy("scenarios")
            write(tab, "mine")
            small.held.clear()
            await until(lambda: not setup.tasks.busy("scenarios"))
            assert prompts(tab) == ["mine", "first", "first"]
            assert tab.model.undo.canUndo()

    run(work())


def test_scenarios_cannot_be_edited_before_loading(
    qapp: QApplication, run: Run, small: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(small, qapp, tmp_path) as (_, setup):
            small.refuse["/scenarios"] = Problem(code="scenarios.gone", message="Not there.")
            setup.show_scenarios("train")
            tab = setup._scenarios
            await until(lambda: tab._words.words().startswith("Not there."))
            assert not any(button.isEnabled() for button, _ in tab._tools)
            setup.save()
            assert stored_prompts(small, "first") == ["first"] * 3

    run(work())


def test_edit_during_save_stays_unsaved(
    qapp: QApplication, run: Run, small: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(small, qapp, tmp_path) as (_, setup):
            tab = await open_scenarios(setup)
            write(tab, "one")
            small.held.add("PUT /scenarios")
            setup.save()
            await until(lambda: stored_prompts(small, "first")[0] == "one")
            write(tab, "two")
            small.held.clear()
            await until(lambda: not any("save" in name for name in setup.tasks._jobs))
            assert tab._save.isEnabled()
            await open_scenarios(setup, "validation")
            await open_scenarios(setup)
            assert prompts(tab)[0] == "two"
            tab.model.undo.undo()
            assert not tab.model.dirty, "equal to the stored file"
            tab.model.undo.undo()
            assert tab.model.dirty
            assert not tab.model.undo.isClean()
            tab.model.undo.setIndex(2)
            setup.save()
            await until(lambda: stored_prompts(small, "first")[0] == "two")

    run(work())


def test_each_project_has_its_own_scenario_edits(
    qapp: QApplication, run: Run, small: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(small, qapp, tmp_path) as (studio, setup):
            tab = await open_scenarios(setup)
            write(tab, "mine")
            await open_project_setup(studio, small, "second")
            await until(lambda: tab.model.loaded)
            assert prompts(tab) == ["second"] * 3
            setup.save()
            write(tab, "yours")
            small.held.add("PUT /scenarios")
            setup.save()
            await until(lambda: stored_prompts(small, "second")[0] == "yours")
            assert stored_prompts(small, "first") == ["first"] * 3
            await open_project_setup(studio, small, "first")
            small.held.clear()
            await until(lambda: not any("save" in name for name in setup.tasks._jobs))
            assert studio.session.project.name == "first", "a late response opens no project"
            assert prompts(tab) == ["mine", "first", "first"]

    run(work())


def test_scenarios_without_signal_are_shown_and_selected(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    simulation = Simulation(kind="baseline")
    simulation.begin()
    simulation.made.say(RunFinished(step=0, seconds=12.0))
    measured: list[list[float | None]] = [[0.0, 0.0, 0.0], [0.0, 1.0, None]]
    for group, rewards in enumerate(measured):
        for place, reward in enumerate(rewards):
            made = simulation._trajectory(0, group, place, f"Find mail {group}", 0.5, False)
            update = {"split": "validation", "reward": reward}
            simulation.made.trajectories.append(made.model_copy(update=update))

    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            rows = [{"id": f"s{n}", "prompt": f"Find mail {n}"} for n in range(3)]
            engine.project_store.scenario_files[path_of(engine, "first"), "train"] = rows
            tab = await open_scenarios(setup)
            assert tab.model.columnCount() == 2
            assert not tab._silent.isVisible()
            engine.add_run(simulation.made, "first")
            studio.session.refresh()
            await until(lambda: tab.model.columnCount() == 3)
            words = [tab.model.index(row, 2).data() for row in range(3)]
            assert words == ["0.00 · no signal", "0.50", "not measured"]
            widths = [tab._table.columnWidth(place) for place in range(3)]
            assert widths[0] < widths[2] < 200, "the text column gets the remaining width"
            assert tab._silent.words() == "Select 1 without signal"
            tab._silent.click()
            assert [index.row() for index in tab._table.selectionModel().selectedRows()] == [0]
            tab._delete()
            assert [row["id"] for row in tab.model.rows] == ["s1", "s2"]
            assert not tab._silent.isVisible()
            await open_scenarios(setup, "validation")
            assert tab.model.columnCount() == len(tab.model.columns)

    run(work())

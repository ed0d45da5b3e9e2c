"""The Scenarios tab of Setup: unsaved edits stay with their file, and answers take nothing away."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from tests.studio.conftest import Run, until
from tests.studio.fake_engine import FakeEngine
from tests.studio.pages.test_setup import path_of, setting_up, turn_to


@pytest.fixture
def small(engine: FakeEngine) -> FakeEngine:
    add = engine.add_project

    def with_few(name: str) -> Any:
        view = add(name)
        for split, letter in (("train", "s"), ("validation", "v")):
            rows = [{"id": f"{letter}{place}", "prompt": name} for place in range(3)]
            engine.homes.scenario_files[view.path, split] = rows
        return view

    engine.add_project = with_few  # type: ignore[assignment]
    return engine


def prompts(tab: Any) -> list[str]:
    return [row["prompt"] for row in tab.model.rows]


def write(tab: Any, words: str, row: int = 0) -> None:
    assert tab.model.setData(tab.model.index(row, tab.model.columns.index("prompt")), words)


def stored(engine: FakeEngine, name: str, split: str = "train") -> list[str]:
    return [row["prompt"] for row in engine.homes.scenario_files[path_of(engine, name), split]]


async def shown(setup: Any, split: str = "train") -> Any:
    setup.show_scenarios(split)
    tab = setup._scenarios
    await until(lambda: tab.model.loaded and not setup.tasks.busy("scenarios"))
    return tab


def test_edits_of_a_split_wait_for_its_return(
    qapp: QApplication, run: Run, small: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(small, qapp, tmp_path) as (_, setup):
            tab = await shown(setup)
            write(tab, "mine")
            await shown(setup, "validation")
            assert prompts(tab) == ["first"] * 3
            assert not tab._save.isEnabled()
            write(tab, "mine too", 2)
            await shown(setup)
            assert prompts(tab) == ["mine", "first", "first"]
            assert tab._words.words() == "3 scenarios · not saved"
            tab.model.undo.undo()
            assert prompts(tab) == ["first"] * 3
            tab.model.undo.redo()
            setup.save()
            await until(lambda: stored(small, "first")[0] == "mine")
            await shown(setup, "validation")
            assert prompts(tab) == ["first", "first", "mine too"]

    run(work())


def test_an_edit_while_it_is_read_stays(
    qapp: QApplication, run: Run, small: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(small, qapp, tmp_path) as (_, setup):
            tab = await shown(setup)
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


def test_nothing_is_changed_before_it_was_read(
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
            assert stored(small, "first") == ["first"] * 3

    run(work())


def test_an_edit_while_it_is_saved_is_saved_later(
    qapp: QApplication, run: Run, small: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(small, qapp, tmp_path) as (_, setup):
            tab = await shown(setup)
            write(tab, "one")
            small.held.add("PUT /scenarios")
            setup.save()
            await until(lambda: stored(small, "first")[0] == "one")
            write(tab, "two")
            small.held.clear()
            await until(lambda: not any("save" in name for name in setup.tasks._jobs))
            assert tab._save.isEnabled()
            await shown(setup, "validation")
            await shown(setup)
            assert prompts(tab)[0] == "two"
            tab.model.undo.undo()
            assert not tab.model.dirty, "that is what the file has"
            tab.model.undo.undo()
            assert tab.model.dirty
            assert not tab.model.undo.isClean()
            tab.model.undo.setIndex(2)
            setup.save()
            await until(lambda: stored(small, "first")[0] == "two")

    run(work())


def test_another_project_has_its_own(
    qapp: QApplication, run: Run, small: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(small, qapp, tmp_path) as (studio, setup):
            tab = await shown(setup)
            write(tab, "mine")
            await turn_to(studio, small, "second")
            await until(lambda: tab.model.loaded)
            assert prompts(tab) == ["second"] * 3
            setup.save()
            write(tab, "yours")
            small.held.add("PUT /scenarios")
            setup.save()
            await until(lambda: stored(small, "second")[0] == "yours")
            assert stored(small, "first") == ["first"] * 3
            await turn_to(studio, small, "first")
            small.held.clear()
            await until(lambda: not any("save" in name for name in setup.tasks._jobs))
            assert studio.session.project.name == "first", "an answer opens nothing"
            assert prompts(tab) == ["mine", "first", "first"]

    run(work())

"""Engines on the Settings page: what a row says and offers, and what its buttons do."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from engine.protocol.records.environments import (
    ChosenEngine,
    EngineChoice,
    EnvironmentList,
    EnvironmentTicked,
)
from studio.app import Studio
from studio.store.projects.environments import Row, built_in_row, row_of
from studio.widgets.controls.buttons import Button
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.environments import DAMAGED, HOME, NO_CARD, FakeEnvironments, at_home
from tests.studio.screenshots.pages import studio_on

GPU = "engine-gpu"
CHOSEN = ChosenEngine(name=GPU, home=HOME.format(GPU))


def row(
    name: str = GPU, choice: EngineChoice | None = None, running: Any = None, **values: Any
) -> Row:
    beside = FakeEnvironments(lambda: 0)
    beside.change(name, **values)
    found = EnvironmentList(
        environments=list(beside.views.values()),
        choice=choice or EngineChoice(),
        running=running or ChosenEngine(),
    )
    return row_of(beside.views[name], found)


def verbs(shown: Row) -> list[str]:
    return [f"{one.words}{' (refused)' if one.refused else ''}" for one in shown.offers]


def test_before_it_is_installed_it_says_what_it_takes_and_lacks() -> None:
    shown = row()
    assert shown.chip[0] == "not installed"
    assert shown.facts.startswith("4.1 GB to download · 9.4 GB on disk · for Linux")
    assert shown.warning == NO_CARD
    assert verbs(shown) == ["Install"]
    assert row(unfit="It is made for Linux.").offers == ()


def test_under_way_it_can_only_be_cancelled() -> None:
    tick = EnvironmentTicked(stage="installing", words="numpy", done=100, total=228, share=0.7)
    shown = row(action="install", tick=tick)
    assert shown.progress == ("Installing · numpy", 0.7)
    assert verbs(shown) == ["Cancel"]
    assert row(action="install").progress == ("Starting", 0.0)
    elsewhere = row(elsewhere=True)
    assert elsewhere.offers == ()
    assert "Another process" in elsewhere.warning


def test_cut_off_it_goes_on_or_is_discarded() -> None:
    shown = row(state="partial", arrived=107)
    assert shown.facts.startswith("107 of 228 packages installed")
    assert verbs(shown) == ["Resume", "Discard"]


def test_an_engine_in_use_cannot_be_removed() -> None:
    used = row(choice=EngineChoice(current=CHOSEN), running=CHOSEN, **at_home(GPU))
    assert used.chip[0] == "in use"
    assert verbs(used) == ["Repair", "Remove (refused)"]
    waiting = row(choice=EngineChoice(current=CHOSEN), **at_home(GPU))
    assert waiting.chip[0] == "after restart"
    assert "the built-in engine is still running" in waiting.warning
    assert verbs(waiting)[0] == "Restart with this engine"
    assert verbs(row(**at_home(GPU))) == ["Use", "Repair", "Remove"]
    assert verbs(row("judge")) == ["Repair", "Remove"]


def test_damage_is_named_and_repair_comes_first() -> None:
    shown = row(**{**at_home(GPU), "state": "broken", "wrong": ["torch.py is gone."]})
    assert (shown.chip[0], shown.problem) == ("damaged", "torch.py is gone.")
    assert verbs(shown) == ["Repair", "Remove"]
    assert row(problem=DAMAGED).problem == f"{DAMAGED.message} {DAMAGED.hint}"


def test_the_built_in_engine_is_a_way_back() -> None:
    found = EnvironmentList(environments=[], choice=EngineChoice(), running=ChosenEngine())
    assert built_in_row(found).offers == ()
    other = found.model_copy(update={"choice": EngineChoice(current=CHOSEN), "running": CHOSEN})
    assert verbs(built_in_row(other)) == ["Use"]


def button(studio: Studio, name: str, words: str) -> Button | None:
    shown = studio.pages["settings"]._engines._rows.get(name)  # type: ignore[attr-defined]
    if shown is None:
        return None
    return next(
        (b for b in shown.findChildren(Button) if b.words() == words and b.isVisible()), None
    )


async def press(studio: Studio, name: str, words: str) -> None:
    """By keyboard, once it can be pressed."""
    await until(lambda: (there := button(studio, name, words)) and there.isEnabled())
    found = button(studio, name, words)
    assert found is not None
    assert found.toolTip()
    found.setFocus()
    QTest.keyClick(found, Qt.Key.Key_Return)


def test_install_cancel_resume_use_and_back(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.beside.steps = 10_000
        async with studio_on(engine, qapp, tmp_path) as studio:
            studio.window.show_page("settings")
            cards: Any = studio.pages["settings"]._engines  # type: ignore[attr-defined]
            await press(studio, GPU, "Install")
            await until(lambda: cards._rows[GPU]._meter.isVisible())
            await press(studio, GPU, "Cancel")
            await until(lambda: button(studio, GPU, "Resume"))
            assert not cards._rows[GPU]._meter.isVisible()
            engine.beside.steps = 1
            await press(studio, GPU, "Resume")
            await press(studio, GPU, "Use")
            await until(lambda: engine.beside.running.name == GPU and studio.session.connected)
            await until(lambda: not button(studio, GPU, "Use"))
            assert cards._rows[GPU]._chip.words() == "in use"
            assert cards._back.toolTip().endswith("Built-in engine")
            QTest.mouseClick(cards._back, Qt.MouseButton.LeftButton)
            await until(lambda: engine.beside.running.built_in)
            await press(studio, GPU, "Remove")
            await until(lambda: button(studio, GPU, "Install"))
        asked = [("install"), ("cancel"), ("install"), ("use"), ("use"), ("remove")]
        assert [verb for _, verb in engine.beside.asked] == asked

    run(job())


@pytest.mark.parametrize("refused", ["use", "list"])
def test_what_is_refused_is_said_in_the_card(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, refused: str
) -> None:
    problem = Problem(code="run.lives", message="A run is going on.", hint="Stop it first.")
    engine.beside.change(GPU, **at_home(GPU))
    engine.refuse = {"/engine/use": problem} if refused == "use" else {"/environments": problem}

    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            studio.window.show_page("settings")
            cards: Any = studio.pages["settings"]._engines  # type: ignore[attr-defined]
            if refused == "use":
                await press(studio, GPU, "Use")
            await until(lambda: cards._words.words() == "A run is going on. Stop it first.")
            assert engine.pid == 0, "nothing was restarted"

    run(job())


def test_a_chosen_interpreter_and_a_fallen_engine_are_told(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    engine.notice = "The GPU engine is gone. The built-in engine was started instead."

    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: "started instead" in studio.notifier.words())
            studio.window.show_page("settings")
            cards: Any = studio.pages["settings"]._engines  # type: ignore[attr-defined]
            await until(lambda: cards._rows)
            assert not cards._by_hand.isVisible()
            studio.settings.update(engine_python="/opt/python")
            assert cards._by_hand.isVisible()

    run(job())

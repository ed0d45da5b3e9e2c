"""Engines on the Settings page: state, actions and buttons of each row."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from engine.protocol.records.machine.environments import (
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
    environments = FakeEnvironments(lambda: 0)
    environments.change(name, **values)
    listing = EnvironmentList(
        environments=list(environments.views.values()),
        choice=choice or EngineChoice(),
        running=running or ChosenEngine(),
    )
    return row_of(environments.views[name], listing)


def verbs(engine_row: Row) -> list[str]:
    return [f"{one.words}{' (refused)' if one.refused else ''}" for one in engine_row.offers]


def test_missing_engine_shows_size_and_missing_requirements() -> None:
    engine_row = row()
    assert engine_row.chip[0] == "not installed"
    assert engine_row.facts.startswith("4.1 GB to download · 9.4 GB on disk · for Linux")
    assert engine_row.warning == NO_CARD
    assert verbs(engine_row) == ["Install"]
    assert row(unfit="It is made for Linux.").offers == ()


def test_running_installation_can_only_be_cancelled() -> None:
    tick = EnvironmentTicked(stage="installing", words="numpy", done=100, total=228, share=0.7)
    engine_row = row(action="install", tick=tick)
    assert engine_row.progress == ("Installing · numpy", 0.7)
    assert verbs(engine_row) == ["Cancel"]
    assert row(action="install").progress == ("Starting", 0.0)
    other_process = row(elsewhere=True)
    assert other_process.offers == ()
    assert "Another process" in other_process.warning


def test_partial_installation_can_be_resumed_or_discarded() -> None:
    engine_row = row(state="partial", arrived=107)
    assert engine_row.facts.startswith("107 of 228 packages installed")
    assert verbs(engine_row) == ["Resume", "Discard"]


def test_engine_in_use_cannot_be_removed() -> None:
    used = row(choice=EngineChoice(current=CHOSEN), running=CHOSEN, **at_home(GPU))
    assert used.chip[0] == "in use"
    assert verbs(used) == ["Repair", "Remove (refused)"]
    waiting = row(choice=EngineChoice(current=CHOSEN), **at_home(GPU))
    assert waiting.chip[0] == "after restart"
    assert "the built-in engine is still running" in waiting.warning
    assert verbs(waiting)[0] == "Restart with this engine"
    assert verbs(row(**at_home(GPU))) == ["Use", "Repair", "Remove"]
    assert verbs(row("judge")) == ["Repair", "Remove"]


def test_damaged_engine_offers_repair_first() -> None:
    engine_row = row(**{**at_home(GPU), "state": "broken", "wrong": ["torch.py is gone."]})
    assert (engine_row.chip[0], engine_row.problem) == ("damaged", "torch.py is gone.")
    assert verbs(engine_row) == ["Repair", "Remove"]
    assert row(problem=DAMAGED).problem == f"{DAMAGED.message} {DAMAGED.hint}"


def test_built_in_engine_can_be_selected_again() -> None:
    listing = EnvironmentList(environments=[], choice=EngineChoice(), running=ChosenEngine())
    assert built_in_row(listing).offers == ()
    other = listing.model_copy(update={"choice": EngineChoice(current=CHOSEN), "running": CHOSEN})
    assert verbs(built_in_row(other)) == ["Use"]


def button(studio: Studio, name: str, words: str) -> Button | None:
    engine_row = studio.pages["settings"]._engines._rows.get(name)  # type: ignore[attr-defined]
    if engine_row is None:
        return None
    return next(
        (b for b in engine_row.findChildren(Button) if b.words() == words and b.isVisible()), None
    )


async def press_button(studio: Studio, name: str, words: str) -> None:
    """Press a button by keyboard, as soon as it is enabled."""
    await until(lambda: (there := button(studio, name, words)) and there.isEnabled())
    shown_button = button(studio, name, words)
    assert shown_button is not None
    assert shown_button.toolTip()
    shown_button.setFocus()
    QTest.keyClick(shown_button, Qt.Key.Key_Return)


def test_install_cancel_resume_use_and_remove(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.environments.steps = 10_000
        async with studio_on(engine, qapp, tmp_path) as studio:
            studio.window.show_page("settings")
            cards: Any = studio.pages["settings"]._engines  # type: ignore[attr-defined]
            await press_button(studio, GPU, "Install")
            await until(lambda: cards._rows[GPU]._meter.isVisible())
            await press_button(studio, GPU, "Cancel")
            await until(lambda: button(studio, GPU, "Resume"))
            assert not cards._rows[GPU]._meter.isVisible()
            engine.environments.steps = 1
            await press_button(studio, GPU, "Resume")
            await press_button(studio, GPU, "Use")
            await until(
                lambda: engine.environments.running.name == GPU and studio.session.connected
            )
            await until(lambda: not button(studio, GPU, "Use"))
            assert cards._rows[GPU]._chip.words() == "in use"
            assert cards._back.toolTip().endswith("Built-in engine")
            QTest.mouseClick(cards._back, Qt.MouseButton.LeftButton)
            await until(lambda: engine.environments.running.built_in)
            await press_button(studio, GPU, "Remove")
            await until(lambda: button(studio, GPU, "Install"))
        actions = [("install"), ("cancel"), ("install"), ("use"), ("use"), ("remove")]
        assert [verb for _, verb in engine.environments.asked] == actions

    run(job())


@pytest.mark.parametrize("refused", ["use", "list"])
def test_rejected_request_is_shown_in_card(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, refused: str
) -> None:
    problem = Problem(code="run.lives", message="A run is going on.", hint="Stop it first.")
    engine.environments.change(GPU, **at_home(GPU))
    engine.refuse = {"/engine/use": problem} if refused == "use" else {"/environments": problem}

    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            studio.window.show_page("settings")
            cards: Any = studio.pages["settings"]._engines  # type: ignore[attr-defined]
            if refused == "use":
                await press_button(studio, GPU, "Use")
            await until(lambda: cards._words.words() == "A run is going on. Stop it first.")
            assert engine.pid == 0, "nothing was restarted"

    run(job())


def test_fallback_engine_and_selected_interpreter_are_shown(
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

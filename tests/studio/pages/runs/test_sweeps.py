"""Sweeps of the Runs page over the fake engine: charts, table, commands, form."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.protocol.config.sweep import Range
from studio.pages.runs.sweeps.form import _line
from studio.pages.runs.sweeps.parallel import ParallelCoordinates, axes_of
from studio.pages.runs.sweeps.rows import ordered
from studio.pages.runs.sweeps.view import best_words, facts
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.sweeps import STEPS, make_sweep
from tests.studio.pages.runs.test_page import runs_page
from tests.studio.screenshots.runs import add_runs


def test_axes_are_logarithmic_or_evenly_spaced() -> None:
    view = make_sweep("/p")
    lr, size, preset, result = axes_of(view)
    for trial in view.trials:
        assert trial.result
        value = float(trial.values["train.lr"])
        assert lr.places[trial.number] == pytest.approx((_log(value) + 5) / 2)
    assert set(size.places.values()) <= {0.0, 0.5, 1.0}
    assert [words for _, words in preset.labels] == ["grpo", "gspo"]
    assert (min(result.places.values()), max(result.places.values())) == (0.0, 1.0)


def _log(value: float) -> float:
    import math

    return math.log10(value)


def test_click_near_a_line_chooses_its_trial(qtbot: QtBot) -> None:
    lines = ParallelCoordinates()
    qtbot.addWidget(lines)
    lines.resize(700, 300)
    view = make_sweep("/p")
    lines.show_sweep(view)
    lines.show()
    number = max((t for t in view.trials if t.result), key=lambda t: t.result.mean).number  # type: ignore[union-attr]
    end: QPointF = lines._points(number)[-1]
    with qtbot.waitSignal(lines.trial_chosen) as chosen:
        QTest.mouseClick(lines, Qt.MouseButton.LeftButton, pos=end.toPoint())
    assert chosen.args == [number]
    assert lines._at(QPointF(QPoint(2, 2))) == 0


def test_words_of_a_sweep() -> None:
    view = make_sweep("/p")
    assert facts(view).startswith("11 of 20 trials · ")
    assert "pruning saved 90 steps (11 %)" in facts(view)
    assert best_words(view).startswith(f"Trial {view.best}: 0.7")
    assert best_words(view.model_copy(update={"best": None})) == "No trial has finished yet."
    states = [trial.state for trial in ordered(view.trials)]
    assert states == sorted(states, key=["finished", "running", "pruned"].index)
    assert _line("train.lr", Range(low=1e-5, high=1e-3, log=True)) == (
        "train.lr = { low = 1e-05, high = 0.001, log = true }"
    )
    assert _line("a.b", (True, 3, "x", 1e-5)) == 'a.b = [true, 3, "x", 1e-05]'


def test_sweep_is_shown_paused_and_another_one_started(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        add_runs(engine)
        engine.sweeps.views.append(make_sweep(str(engine.workspace / "tiles")))
        async with runs_page(engine, qapp, tmp_path) as page:
            page._switch._choose(1)
            sweeps: Any = page.sweeps
            await until(lambda: sweeps._view)
            assert sweeps._model.rows[0].number == sweeps._view.best
            sweeps._choose(sweeps._model.rows[3].number)
            assert sweeps._lines._chosen == sweeps._model.rows[3].number
            sweeps._pause.click()
            await until(lambda: sweeps._view.state == "paused")
            assert sweeps._pause.words() == "Resume"
            assert engine.sweeps.actions == ["pause"]

            sweeps._new.click()
            sheet = sweeps._sheet
            sheet._space.set_text("train.lr = [1e-5, ")
            sheet._want_plan()
            assert "not valid TOML" in sheet._plan.words()
            assert not sheet._go.isEnabled()
            sheet._space.set_text("train.lr = [1e-5, 1e-4]")
            sheet._seeds.set_value(2)
            sheet._steps.set_value(STEPS)
            sheet._changed()
            await until(sheet._go.isEnabled)
            assert "2 trials × 2 seeds = 4 runs, 160 steps" in sheet._plan.words()
            sheet._go.click()
            await until(lambda: engine.sweeps.started)
            overrides = engine.sweeps.started[0].overrides
            assert overrides["sweep.parameters"] == {"train": {"lr": [1e-5, 1e-4]}}
            await until(lambda: sweeps._view.name == "new-sweep")
            page._switch_back._choose(0)
            assert page.table.isVisible()

    run(job())

"""Charts of the Run page: metrics of the agent, criteria of the rubric, layout that is kept."""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.events.run import StepFinished
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.made_validations import CRITERIA, add_validations
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.screenshots.pages import open_project, studio_on


def add_run(engine: FakeEngine) -> None:
    simulation = Simulation()
    simulation.begin()
    simulation.step(1)
    metrics = {"reward/mean": 0.4, "agent/moves": 12.0, "agent/searches": 3.0}
    simulation.made.say(StepFinished(step=2, metrics=metrics), 1.0)
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)


def test_agent_metrics_have_charts_and_the_layout_is_kept(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        add_run(engine)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.show_page("run")
            page: Any = studio.pages["run"]
            charts = page._grid
            await until(lambda: "agent/moves" in charts.bound)
            moves = charts.bound["agent/moves"].card
            await until(moves.has_data)
            assert moves.isVisible()
            assert charts.cards.index(moves) > charts.cards.index(charts.bound["length"].card)

            charts.bound["parts"].card.hide_requested.emit()
            assert charts.bound["parts"].card not in charts.cards
            reward, length = charts.bound["reward"].card, charts.bound["length"].card
            charts.follow_drag(length, reward.mapToGlobal(reward.rect().center()))
            length.dropped.emit()
            assert charts.cards[0] is length
            kept = studio.settings.current
            assert kept.hidden_charts == ["parts"]
            assert kept.chart_order[:2] == ["length", "reward"]
            charts._show_charts()
            assert charts.cards[0] is length
            charts._standard_layout()
            assert charts.cards[0] is reward
            assert charts.bound["parts"].card in charts.cards

    run(job())


def test_criteria_of_a_rubric_have_a_chart_with_a_line_each(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.add_project("inbox-scout")
        simulation = Simulation()
        simulation.begin()
        for step in range(1, 21):
            simulation.step(step)
        add_validations(simulation.made, judged=True)
        engine.add_run(simulation.made)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.show_page("run")
            charts: Any = studio.pages["run"]._grid  # type: ignore[attr-defined]
            await until(lambda: "criteria" in charts.bound)
            card = charts.bound["criteria"].card
            await until(card.has_data)
            assert card in charts.cards
            lines = [line for line, _ in card.view.tip_for(20).lines]
            assert [line.words.strip() for line in lines] == list(CRITERIA)

    run(job())


def test_run_without_criteria_has_no_chart_of_them(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        add_run(engine)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.show_page("run")
            charts: Any = studio.pages["run"]._grid  # type: ignore[attr-defined]
            await until(lambda: "agent/moves" in charts.bound)
            assert "criteria" not in charts.bound

    run(job())

"""Charts of the Run page: metrics of the agent, hidden charts, order, all of it kept."""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.events.run import StepFinished
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
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

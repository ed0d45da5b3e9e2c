"""Scenario table of the Trajectories page, over a fake engine on HTTP and a real run.db."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from studio.models.scenario_curves import COLUMNS, change
from studio.pages.trajectories.views import COLUMNS as IN_COLUMNS
from studio.pages.trajectories.views import SCENARIOS
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.screenshots.pages import open_project, studio_on

GAIN = [column.title for column in COLUMNS].index("Gain")


def test_scenario_table_is_sorted_and_opens_groups(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    simulation = Simulation(run_id="01JD5MAMBERKESTREL00000000")
    simulation.begin()
    for step in range(1, 5):
        simulation.step(step)
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)

    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.show_page("trajectories")
            page: Any = studio.pages["trajectories"]
            await until(lambda: page._siblings is not None)
            studio.window.activateWindow()
            page._home().setFocus()
            await until(studio.window.isActiveWindow)
            QTest.keyClick(page._home(), Qt.Key.Key_P)
            await until(lambda: page._view == SCENARIOS)
            table, rows = page._scenarios, page._scenarios.rows
            await until(lambda: rows.is_loaded)
            trained = [t for t in simulation.made.trajectories if t.split == "train"]
            assert rows.total == len({t.scenario_id for t in trained})
            assert engine.reading.curves_asked[0].sort == "difficulty"
            hard = [rows.record(row).difficulty for row in range(rows.total)]
            assert hard == sorted(hard, reverse=True)

            table.sortByColumn(GAIN, Qt.SortOrder.DescendingOrder)
            await until(lambda: rows.is_loaded)
            assert rows.query.sort == "gain"
            gains = [rows.record(row).gain for row in range(rows.total)]
            assert gains == sorted(gains, reverse=True)

            table.selectRow(1)
            scenario_id = rows.record(1).scenario_id
            QTest.keyClick(table, Qt.Key.Key_Return)
            assert page._view == IN_COLUMNS
            await until(lambda: page._groups.is_loaded)
            shown = {group.scenario_id for group in page._groups._pages[0]}
            assert shown == {scenario_id}
            assert page._panel._step.isVisible()
            page._panel._step.removed.emit()
            await until(lambda: page._groups.is_loaded)
            assert page._groups.query.scenario_id is None

    run(job())


@pytest.mark.parametrize(
    ("value", "words"), [(None, "–"), (0.0, "0 %"), (0.25, "+25 %"), (-0.5, "−50 %")]
)
def test_change_is_formatted_with_sign(value: float | None, words: str) -> None:
    assert change(value) == words

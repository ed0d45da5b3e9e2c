"""Validation examples of a checkpoint, and Export of the checked one."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from engine.protocol.records.runs import GroupSummary
from studio.store.runs.examples import examples_of, validation_at
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.made_validations import FALLS, SCENARIOS, add_validations
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.screenshots.pages import open_project, studio_on


def group(name: str, mean: float | None, step: int = 0) -> GroupSummary:
    return GroupSummary(
        split="validation", step=step, group=0, scenario_id=name, title=name,
        rewards=[mean], mean=mean, std=None, signal=False,
    )  # fmt: skip


def test_largest_changes_come_first_and_unscored_ones_last() -> None:
    before = [group("a", 0.2), group("b", 0.5), group("c", 0.9), group("d", 0.1)]
    after = [group(n, m, 4) for n, m in (("a", 0.3), ("b", 0.5), ("c", 0.1), ("d", None))]
    found = examples_of(before, [*after, group("new", 0.4, 4)])
    assert [one.title for one in found] == ["c", "a", "b", "d", "new"]
    assert [one.changed for one in found] == [True, True, False, False, False]
    assert found[3].change is None, "invalid is never zero"


def test_judged_rewards_tell_no_change_but_the_judge_does() -> None:
    before, after = [group("a", 0.9), group("b", 0.1)], [group("a", 0.1, 4), group("b", 0.9, 4)]
    found = examples_of(before, after, {"b": 0.0})
    assert [(one.title, one.change) for one in found] == [("b", -0.5), ("a", None)]


@pytest.mark.parametrize(("step", "at"), [(0, 0), (9, 0), (10, 10), (25, 20), (-1, None)])
def test_newest_validation_up_to_a_step(step: int, at: int | None) -> None:
    assert validation_at([0, 10, 20], step) == at


@pytest.mark.parametrize("judged", [False, True])
def test_examples_and_export_follow_the_checked_row(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, judged: bool
) -> None:
    async def job() -> None:
        simulation = Simulation(judged=judged)
        simulation.begin()
        for step in range(1, 21):
            simulation.step(step)
        add_validations(simulation.made, judged)
        engine.add_project("inbox-scout")
        engine.add_run(simulation.made)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.resize(1920, 1080)
            studio.window.show_page("checkpoints")
            page: Any = studio.pages["checkpoints"]
            listed, examples = page._list, page.examples
            await until(lambda: examples.model.rows)
            await until(lambda: examples.after._name.words() == "step 20")
            assert examples.before._name.words() == "baseline"
            assert examples.isVisible()
            assert page._arena.isVisible(), "both in a wide window"
            assert len(examples.model.rows) == SCENARIOS
            assert examples.model.rows[0].changed
            assert any(
                one.after.group == FALLS and (one.change or 0) < 0 for one in examples.model.rows
            )
            assert examples.table.isColumnHidden(1) is judged
            rows = [row for row in page._model.rows if row.is_checkpoint]
            newest, older = rows[0], rows[-1]
            page._model.choose(["base", older.name])
            listed.table.selectRow(0)  # the current row is another one
            assert listed._save.words() == f"Export {older.words}"
            assert listed._save._price
            await until(lambda: examples.header.words.words().startswith(older.words))
            listed._save.click()
            assert page._export._step == older.step != newest.step
            page._export.close_sheet()
            page._model.choose(["base"])
            assert not listed._save.isEnabled()
            assert not examples.table.isVisible()
            studio.window.resize(1280, 800)
            await until(lambda: not examples.isVisible())
            page._lower.show_part(0)
            assert examples.isVisible()
            assert not page._arena.isVisible()

    run(job())

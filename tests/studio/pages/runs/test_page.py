"""Runs page over the fake engine: table, choice, notes, comparison, changes by others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.records.run_table import MOST_COMPARED
from studio.pages.runs.compare.charts import VALIDATION
from studio.pages.runs.rows import COLUMNS
from studio.pages.runs.table import BY_IMPORTANCE, CHOICE, LEAST_NAME_PX, columns_in
from studio.store.runs.chosen_runs import TOKENS, ChosenRuns
from studio.text.settings import differences, setting_words
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import open_project, studio_on
from tests.studio.screenshots.runs import add_runs


@asynccontextmanager
async def runs_page(engine: FakeEngine, app: QApplication, folder: Path) -> AsyncIterator[Any]:
    async with studio_on(engine, app, folder) as studio:
        await open_project(studio, engine, "tiles")
        studio.window.resize(1440, 900)
        studio.window.show_page("runs")
        page: Any = studio.pages["runs"]
        await until(lambda: page.model.total)
        studio.window.activateWindow()
        yield page


@pytest.fixture
def ids(engine: FakeEngine) -> list[str]:
    return add_runs(engine)


def names(page: Any) -> list[str]:
    return [page.table.run_at(row).name for row in range(page.model.total)]


def cell(page: Any, row: int, title: str) -> str:
    titles = [column.title for column in page.model.columns]
    text = page.model.index(row, titles.index(title)).data()
    assert isinstance(text, str)
    return text


def test_narrow_table_shows_the_most_important_columns() -> None:
    assert columns_in(5000) == list(BY_IMPORTANCE)
    assert set(BY_IMPORTANCE) == {column.title for column in COLUMNS}
    assert columns_in(700) == ["", "Run", "State", "Best", "Differs in"]
    assert columns_in(0) == []


def test_names_of_runs_are_readable_in_a_narrow_window(
    run: Run, engine: FakeEngine, qapp: QApplication, tmp_path: Path, ids: list[str]
) -> None:
    async def job() -> None:
        async with runs_page(engine, qapp, tmp_path) as page:
            for width in (960, 1080, 1280, 1920):
                page.window().resize(width, 640)
                await until(lambda: page.table.columnWidth(1) >= LEAST_NAME_PX)

    run(job())


def test_chosen_runs_keep_their_colour() -> None:
    chosen = ChosenRuns()
    chosen.choose(["a", "b", "c"])
    assert [chosen.token(one) for one in "abc"] == list(TOKENS[:3])
    chosen.toggle("a")
    assert (chosen.token("a"), chosen.token("b")) == (None, TOKENS[1])
    chosen.toggle("d")
    assert chosen.token("d") == TOKENS[0]
    chosen.choose(["d", "b"])
    assert (chosen.ids, chosen.token("b")) == (["d", "b"], TOKENS[1])
    for number in range(MOST_COMPARED - 2):
        assert chosen.toggle(str(number))
    assert chosen.full
    assert not chosen.toggle("one more")


def test_settings_are_compared_with_those_of_another_run() -> None:
    base = {"train.lr": 3e-5, "train.seed": 1}
    assert differences(base, {}) == ["lr 3e−5", "seed 1"]
    assert differences({"train.seed": 2}, base) == ["lr default", "seed 2"]
    preset = {"train.algorithm.preset": "gspo", "train.algorithm.updates": 4, "train.lr": 3e-5}
    assert differences(preset, base) == ["preset gspo", "seed default"]
    assert setting_words([True, None, 0.5]) == "on, –, 0.5"


def test_table_marks_differences_and_sorts_on_the_engine(
    engine: FakeEngine, ids: list[str], run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with runs_page(engine, qapp, tmp_path) as page:
            assert names(page)[0] == "quiet-heron"
            page.table.selectRow(0)
            assert cell(page, 0, "Differs in") == "selected"
            assert "lr 3e−5" in cell(page, 1, "Differs in")
            page.table.sortByColumn(4, Qt.SortOrder.DescendingOrder)
            await until(lambda: engine.run_table.queries[-1].sort == "best")
            await until(lambda: page.model.is_loaded)
            best = [engine.summaries[one].best for one in ids]
            highest = max(one.mean for one in best if one)
            assert max(float(cell(page, row, "Best")) for row in (1, 2)) == round(highest, 2)

    run(job())


def test_click_and_space_choose_runs_to_compare(
    engine: FakeEngine, ids: list[str], run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with runs_page(engine, qapp, tmp_path) as page:
            table = page.table
            place = table.visualRect(page.model.index(1, CHOICE)).center()
            QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(place))
            assert len(page.chosen.ids) == 1
            assert not page._compare.isEnabled()
            table.setFocus()
            table.selectRow(0)
            QTest.keyClick(table, Qt.Key.Key_Space)
            assert page._compare.words() == "Compare 2 runs"
            page._compare.click()
            view = page.compare_view
            await until(lambda: view.isVisible() and len(view._charts) > 8)
            await until(lambda: view._charts[VALIDATION].card.has_data())
            assert view._legend.hidden() == frozenset()
            lines = view._charts["reward/mean"]._lines
            assert {line.token for line in lines.values()} == set(TOKENS[:2])
            await until(lambda: sorted(len(line.steps) for line in lines.values()) == [17, 40])
            next(iter(view._legend._keys.values())).click()
            await until(lambda: sum(len(line.steps) > 0 for line in lines.values()) == 1)
            QTest.keyClick(view, Qt.Key.Key_Escape)
            assert table.isVisible()

    run(job())


def test_comparison_says_which_run_is_better_and_why_they_differ(
    engine: FakeEngine, ids: list[str], run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with runs_page(engine, qapp, tmp_path) as page:
            page.compare([ids[0], ids[3]])
            view = page.compare_view
            await until(lambda: view._settings.rows)
            assert "train.lr" in [row.key for row in view._settings.rows]
            words = [line.words() for line in view._validation._lines]
            assert words[0].startswith("calm-finch")
            assert "quiet-heron" in words[0]
            assert "likely too high" in words[-1]
            assert len(view._validation._model.rows) == 24
            view._at._choose(1)
            await until(lambda: len(view._validation._lines) == 1)
            view._axis._choose(1)
            await until(lambda: "reward/mean" in view._charts)
            line = view._charts["reward/mean"]._lines[ids[0]]
            await until(lambda: line.steps[-1] > 1000)  # seconds of training

    run(job())


def test_notes_are_stored_and_archived_runs_hidden(
    engine: FakeEngine, ids: list[str], run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with runs_page(engine, qapp, tmp_path) as page:
            rows = [names(page).index(name) for name in ("calm-finch", "brisk-otter")]
            for row in rows:
                page._choose(row)
            page._sheet.show_runs(page._targets())
            assert page._sheet._tags.value() == "lr sweep"
            page._sheet._tags.set_value("short, lr sweep")
            page._sheet._save()
            await until(lambda: engine.summaries[ids[2]].notes.tags == ("short", "lr sweep"))
            assert engine.summaries[ids[3]].notes.tags == ("short", "lr sweep", "long")
            page._archive.click()
            await until(lambda: page.model.total == 5)
            assert page.chosen.ids == []
            page._archived.click()
            await until(lambda: page.model.total == 2)
            assert set(names(page)) == {"calm-finch", "brisk-otter"}

    run(job())


def test_search_and_state_restrict_rows(
    engine: FakeEngine, ids: list[str], run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with runs_page(engine, qapp, tmp_path) as page:
            page._search.setText("sweep")
            await until(lambda: page.model.total == 3)
            assert page._count.words() == "3 runs of 7"
            page._state._choose(1)
            await until(lambda: names(page) == ["frank-mole"])

    run(job())


def test_open_shows_a_run_that_no_list_had(
    engine: FakeEngine, ids: list[str], run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with runs_page(engine, qapp, tmp_path) as page:
            row = names(page).index("amber-fox")
            page.session.runs._summaries.pop(ids[1])
            page.table.selectRow(row)
            QTest.keyClick(page.table, Qt.Key.Key_Return)
            await until(lambda: page.session.run.run_id == ids[1])
            await until(lambda: page.session.run.state.done == 40)

    run(job())


def test_empty_project_offers_to_train(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.add_project("hello")
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "hello")
            studio.window.show_page("runs")
            page: Any = studio.pages["runs"]
            await until(lambda: page._empty.isVisible())

    run(job())

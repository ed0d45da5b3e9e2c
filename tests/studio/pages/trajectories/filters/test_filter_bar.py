"""Filter bar over the fake engine: completion, mistakes, saved filters, hits in the reader."""

from pathlib import Path

from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.requests.runs import TrajectoryLine, TrajectoryQuery
from studio.pages.trajectories.views import READER, TABLE
from studio.theme.item_roles import HITS_ROLE
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.pages.trajectories.labels.test_labels import (
    RUN,
    TRAIN,
    trajectories_page,
    with_judged_run,
)

__all__ = ["with_judged_run"]
Key = Qt.Key


def test_filter_is_completed_and_mistakes_are_shown(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            bar = page._panel.bar
            page._focus_filter()
            await until(lambda: bool(bar.input._names.tools))
            QTest.keyClicks(bar.input, "tur")
            assert bar.input.popup.isVisible()
            QTest.keyClick(bar.input, Key.Key_Tab)
            assert bar.input.text() == "turns "
            QTest.keyClick(bar.input, Key.Key_Down)
            QTest.keyClick(bar.input.popup, Key.Key_Down)
            QTest.keyClick(bar.input.popup, Key.Key_Down)
            QTest.keyClick(bar.input.popup, Key.Key_Return)
            assert bar.input.text() == "turns <= "
            await until(bar._mistake.isVisible)
            assert bar._mistake.words() == "After `<=`, a number is missing (character 9)."
            assert page._groups.query.filter == ""
            QTest.keyClicks(bar.input, "1")
            await until(lambda: page._groups.query.filter == "turns <= 1")
            assert not bar._mistake.isVisible()
            assert page._rows.query.filter == "turns <= 1"

    run(job())


def test_hits_are_marked_in_table_and_reader(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            record = page._columns.record()
            word = next(m for m in record.messages if m.role == "user").content.split()[0]
            page._panel._change(filter=f"prompt:{word}")
            await until(lambda: page._groups.is_loaded and page._rows.is_loaded)
            page.set_mode(TABLE)
            columns = [one.title for one in page._rows.columns]
            index = page._rows.index(0, columns.index("Prompt"))
            assert index.data(HITS_ROLE)
            await until(lambda: not page.tasks.busy("siblings"))
            page.set_mode(READER)
            reader = page._reader
            assert reader.transcript.hit_count() >= 1
            QTest.keyClick(reader.transcript, Key.Key_F3)
            count = reader.transcript.hit_count()
            assert reader._hit_words.words() == f"1 of {count}"
            QTest.mouseClick(reader._hit_before, Qt.MouseButton.LeftButton)
            assert reader._hit_words.words() == f"{count} of {count}"
            page._panel._change(filter="")
            assert not reader._hit_words.isVisibleTo(reader)

    run(job())


def test_return_from_another_run_loads_the_lists_again(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    other = Simulation(run_id="01JD5OTHER1", name="quiet-heron", train=TRAIN)
    other.begin()
    with_judged_run.add_run(other.made)

    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            page._panel._change(filter="turns > 1")
            await until(lambda: page._groups.is_loaded)
            studio.window.show_page("checkpoints")
            for run_id in ("01JD5OTHER1", RUN):
                studio.session.select_run(run_id)
                await until(lambda wanted=run_id: studio.session.run.run_id == wanted)
            studio.window.show_page("trajectories")
            await until(lambda: page._siblings is not None)
            assert page._groups.query == TrajectoryQuery()
            assert page._panel.bar.input.text() == ""

    run(job())


def test_columns_are_chosen_and_kept(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            page.set_mode(TABLE)
            actions = {one.text(): one for one in page._table.column_menu().actions()}
            assert actions["Labels"].isChecked()
            actions["Labels"].trigger()
            actions["Judge's reason"].trigger()
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            page.set_mode(TABLE)
            shown = page._table.shown_columns()
            assert "Labels" not in shown
            assert "Judge's reason" in shown
            column = [one.title for one in page._rows.columns].index("Judge's reason")
            await until(lambda: page._rows.is_loaded)
            reasons = [page._rows.index(row, column).data() for row in range(20)]
            assert any(reasons)
            page._table.column_menu().actions()[-1].trigger()
            assert "Labels" in page._table.shown_columns()

    run(job())


def test_selection_or_all_matches_are_exported(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            notices: list[str] = []
            studio.session.notice.connect(notices.append)
            page._panel._change(filter="step = 1 and split:train")
            await until(lambda: page._rows.is_loaded)
            page.set_mode(TABLE)
            export, total = page._filter.export, page._rows.total
            export.start(tmp_path / "all.jsonl", [], False)
            await until(lambda: len(notices) == 1)
            for row in (0, 2):
                flags = QItemSelectionModel.SelectionFlag
                page._table.selectionModel().select(
                    page._rows.index(row, 0), flags.Select | flags.Rows
                )
            first = export.menu().actions()[0]
            assert first.text() == "Export 2 selected…"
            export.start(tmp_path / "some.jsonl", export._selected(), True)
            await until(lambda: len(notices) == 2)
            export.start(tmp_path / "missing" / "x.jsonl", [], False)
            await until(lambda: not page.tasks.busy("export trajectories"))
            lines = (tmp_path / "all.jsonl").read_text().splitlines()
            some = (tmp_path / "some.jsonl").read_text().splitlines()
            assert len(lines) == total
            assert [TrajectoryLine.model_validate_json(one).id for one in some] == [
                page._rows.record(row).id for row in (0, 2)
            ]
            assert len(notices) == 2
            assert sorted(one.name for one in tmp_path.glob("*.tmp")) == []

    run(job())

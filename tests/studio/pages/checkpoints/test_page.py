"""The Checkpoints page over the fake engine: choosing, evaluating, talking, voting, keeping."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.config.project import TrainConfig
from engine.protocol.records.judging import Verdict
from engine.protocol.requests.runs import Siblings
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.held import hold
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.screenshots.pages import open_project, studio_on


@pytest.fixture
def kept(engine: FakeEngine) -> FakeEngine:
    train = TrainConfig(steps=8, groups=2, group_size=4, validate_every=2, checkpoint_every=2)
    simulation = Simulation(train=train, seed=12)
    simulation.begin()
    for step in range(1, 7):
        simulation.step(step)
    simulation.end(6)
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)
    return engine


@asynccontextmanager
async def looking(engine: FakeEngine, app: QApplication, folder: Path) -> AsyncIterator[Any]:
    async with studio_on(engine, app, folder) as studio:
        await open_project(studio, engine, "inbox-scout")
        studio.window.resize(1440, 900)
        studio.window.show_page("checkpoints")
        page: Any = studio.pages["checkpoints"]
        await until(lambda: len(page._model.chosen()) == 2)
        studio.window.activateWindow()
        yield page


def names(page: Any) -> list[str]:
    return [one.words for one in page._model.chosen()]


def test_base_and_best_are_chosen_first_and_space_changes_that(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with looking(kept, qapp, tmp_path) as page:
            best = max((r for r in page._model.rows if r.kept), key=lambda r: r.validation.mean)
            assert names(page) == ["base", best.words]
            assert "best" in best.marks
            table = page._list.table
            table.setFocus()
            table.selectRow(0)
            for _ in range(len(page._model.rows)):
                row = table.currentIndex().row()
                if page._model.rows[row].words not in names(page):
                    QTest.keyClick(table, Qt.Key.Key_Space)
                QTest.keyClick(table, Qt.Key.Key_Down)
            assert len(names(page)) == len(page._model.rows)
            page._model.make_baseline(0)
            assert names(page)[0] == page._model.rows[0].words
            assert [s.name for s in page._arena._talk.sides] == [
                one.name for one in page._model.chosen()
            ]

    run(job())


def test_an_evaluation_says_better_only_where_it_is(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with looking(kept, qapp, tmp_path) as page:
            shown = [line.words() for line in page._compare._lines]
            assert "measured during training" in shown[0]
            QTest.mouseClick(page._evaluate, Qt.MouseButton.LeftButton)
            await until(lambda: page._evaluation.result is not None)
            (line,) = page._compare._lines
            assert "is better than base, +0.33" in line.words()
            assert line.property("tone") == "good"
            rows = page._compare._chart._rows
            assert rows[0].words == "all 96"
            by_tag = {row.words: row.intervals[1].token for row in rows[1:]}
            assert by_tag["later change"] == "plot-1"
            assert by_tag["not in inbox"] == "faint"

    run(job())


def test_a_talk_is_streamed_and_a_blind_vote_is_a_label(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with looking(kept, qapp, tmp_path) as page:
            arena, given = page._arena, []

            async def add_label(run_id: str, label: Any) -> None:
                given.append((run_id, label))
                kept.kept.votes += 1

            page.session.client.add_label = add_label
            arena._blind.setChecked(True)
            arena._ask.setFocus()
            QTest.keyClicks(arena._ask, "Until when?")
            QTest.keyClick(arena._ask, Qt.Key.Key_Return)
            await until(lambda: arena._left.isEnabled())
            assert arena._columns[0]._name.words() == "Model A"
            assert arena._columns[0]._facts.words() == ""
            left, right = (arena._talk.sides[place] for place in arena._talk.order)
            arena.setFocus()
            QTest.keyClick(arena, Qt.Key.Key_Right)
            await until(lambda: bool(given) and arena._tally.votes == 1)
            run_id, label = given[0]
            assert run_id == "01JD5ARENA"
            assert label.words[0].order == ((right.attempt.id,), (left.attempt.id,))
            assert arena._columns[0]._name.words() in ("base", names(page)[1])
            assert not arena._left.isEnabled()
            asked = kept.kept.asked[0]
            assert asked.chats[0][-1]["content"] == "Until when?"
            QTest.keyClicks(arena._ask, "And then?")
            QTest.keyClick(arena._ask, Qt.Key.Key_Return)
            await until(lambda: len(kept.kept.asked) == 2)
            assert len(kept.kept.asked[1].chats[0]) == 3, "each goes on from its own answer"
            await until(lambda: not arena._talk.asking)

    run(job())


def test_the_judge_speaks_beside_the_answers(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with looking(kept, qapp, tmp_path) as page:
            arena, client, asked = page._arena, page.session.client, []

            async def try_judge(run_id: str, request: Any) -> AsyncIterator[Any]:
                asked.append((run_id, request.places))
                return
                yield

            async def siblings(run_id: str, *place: object) -> Any:
                ids = [side.attempt.id for side in arena._talk.sides]
                verdicts = [
                    Verdict(trajectory_id=one, judge="j", rubric="1", score=score, reason=reason)
                    for one, score, reason in zip(
                        ids, (0.3, 0.9), ("Guesses.", "Right."), strict=True
                    )
                ]
                return Siblings(group=arena._talk.group, trajectories=[], verdicts=verdicts)

            client.try_judge, client.siblings = try_judge, siblings
            assert arena._judge.isVisible()
            assert not arena._judge.isEnabled()
            arena._ask.setText("Until when?")
            arena._put()
            await until(lambda: arena._judge.isEnabled())
            QTest.mouseClick(arena._judge, Qt.MouseButton.LeftButton)
            await until(lambda: arena._columns[1]._verdict.words() == "0.90  Right.")
            assert asked == [("01JD5ARENA", [("validation", 1, 0)])]
            arena._ask.setText("And then?")
            arena._put()
            await until(lambda: arena._judge.isEnabled())
            assert not arena._columns[1]._verdict.isVisible()

    run(job())


def test_pinning_and_deleting(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with looking(kept, qapp, tmp_path) as page:
            page._pin(2, True)
            await until(
                lambda: any(
                    "pinned" in (r.kept.kept_by if r.kept else ()) for r in page._model.rows
                )
            )
            rows, client, run_id = page._model, page.session.client, page._run.run_id
            page._change(client.delete_checkpoint(run_id, 4))
            await until(lambda: all(r.step != 4 for r in rows.rows))

    run(job())


def test_an_export_that_differs_is_not_kept_unless_somebody_insists(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with looking(kept, qapp, tmp_path) as page:
            page._list.table.setFocus()
            page._list.table.selectRow(0)
            QTest.keyClick(page._list.table, Qt.Key.Key_Return)
            sheet = page._export
            assert sheet.is_open()
            assert sheet._go.words() == "Export merged"
            sheet._choose("gguf")
            sheet._dtype.set_value("q8_0")
            kept.kept.verdict = "differs"
            QTest.mouseClick(sheet._go, Qt.MouseButton.LeftButton)
            await until(lambda: sheet._go.words() == "Export despite differences")
            assert sheet._proof._chip.words() == "differs"
            assert "Exported: 31 March" in sheet._proof._difference.words()
            assert not sheet._commands.isVisible()
            QTest.mouseClick(sheet._go, Qt.MouseButton.LeftButton)
            await until(lambda: sheet._go.words() == "Open the folder")
            asked = [(one.format, one.dtype, one.force) for one in kept.kept.exports]
            assert asked == [("gguf", "q8_0", False), ("gguf", "q8_0", True)]

    run(job())


def test_a_stopped_export_can_be_made_again(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with looking(kept, qapp, tmp_path) as page:
            kept.kept.export_s = 20.0
            page._list.want_export(0)
            sheet = page._export
            QTest.mouseClick(sheet._go, Qt.MouseButton.LeftButton)
            await until(lambda: sheet._cancel.words() == "Stop" and bool(kept.kept.exports))
            QTest.mouseClick(sheet._cancel, Qt.MouseButton.LeftButton)
            assert "Partial files were deleted" in sheet._words.words()
            assert sheet._go.isEnabled()
            kept.kept.export_s = 0.0
            QTest.mouseClick(sheet._go, Qt.MouseButton.LeftButton)
            await until(lambda: sheet._go.words() == "Open the folder")

    run(job())


def test_the_branch_sheet_asks_for_what_it_shows(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(kept, qapp, tmp_path) as studio:
            await open_project(studio, kept, "inbox-scout")
            studio.window.show_page("run")
            await until(lambda: studio.actions.holds("branchable"))
            page: Any = studio.pages["run"]
            page._strip.strip.set_chosen(5)
            page._strip.strip.branch_wanted.emit(5)
            sheet = page._branch
            assert sheet.is_open()
            assert sheet._from.value() == 4, "the newest checkpoint that is not after the step"
            sheet._steps.set_value(12)
            sheet._lr.set_value(5e-5)
            sheet._refresh()
            assert sheet._command.words().endswith(
                "--from amber-kestrel@4 --set train.steps=12 --set train.lr=5e-05"
            )
            QTest.mouseClick(sheet._go, Qt.MouseButton.LeftButton)
            await until(lambda: bool(kept.started))
            asked = kept.started[0]
            assert (asked.origin, asked.replay) == ("amber-kestrel@4", False)
            assert asked.overrides == {"train.steps": 12, "train.lr": 5e-5}
            studio.actions.trigger("run.branch")
            sheet._way.set_index(1)
            sheet._refresh()
            assert "--replay" in sheet._command.words()
            assert sheet.request().overrides == {}

    run(job())


async def another_run(engine: FakeEngine, page: Any) -> str:
    """Of the same project, begun meanwhile."""
    simulation = Simulation("01JD5MQUIETHERON0000000000", "quiet-heron")
    simulation.begin()
    name = engine.add_run(simulation.made).id
    page.session.refresh()
    await until(lambda: page.session.runs.known(name))
    return name


def test_the_checkpoint_that_is_deleted_is_of_the_run_that_was_asked_about(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with looking(kept, qapp, tmp_path) as page:
            other = await another_run(kept, page)
            run_id, deleted = page._run.run_id, []
            delete = page.session.client.delete_checkpoint

            async def noted(of: str, step: int) -> None:
                deleted.append((of, step))
                await delete(of, step)

            page.session.client.delete_checkpoint = noted
            page._delete(4)
            await until(QApplication.activeModalWidget)
            page.session.select_run(other)
            dialog: Any = QApplication.activeModalWidget()
            dialog._answered("delete")
            await until(lambda: not page.tasks.busy("change"))
            assert deleted == [(run_id, 4)]

    run(job())


def test_checkpoints_that_are_told_late_are_not_shown_under_another_run(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with looking(kept, qapp, tmp_path) as page:
            other = await another_run(kept, page)
            held = hold(page, "checkpoints")
            page._look_again()
            await held.asked.wait()
            asking = page.tasks._jobs["kept"]
            page.window().show_page("home")
            page.session.select_run(other)
            held.on.set()
            await asyncio.wait([asking])
            assert not page._kept

    run(job())


@pytest.mark.parametrize("how", ["new chat", "blind"])
def test_a_fresh_talk_hears_nothing_of_the_one_before(
    kept: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, how: str
) -> None:
    async def job() -> None:
        async with looking(kept, qapp, tmp_path) as page:
            arena = page._arena
            kept.kept.go_on.clear()
            arena._ask.setText("Until when?")
            arena._put()
            await until(lambda: arena._talk.sides[0].text)
            asking = arena._tasks._jobs["ask"]
            if how == "blind":
                arena._blind.setChecked(True)
            else:
                QTest.mouseClick(arena._anew, Qt.MouseButton.LeftButton)
            kept.kept.go_on.set()
            await asyncio.wait([asking])
            assert not any(side.shown or side.attempt for side in arena._talk.sides)
            assert not arena._talk.can_vote
            assert not arena._left.isEnabled()

    run(job())

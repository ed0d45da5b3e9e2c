"""Checkpoints page over the fake engine: selection, evaluation, arena, export, branching."""

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
from engine.protocol.problems import Problem
from engine.protocol.records.judging import Verdict
from engine.protocol.requests.runs import Siblings
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.held import hold
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.screenshots.pages import open_project, studio_on


@pytest.fixture
def with_checkpoints(engine: FakeEngine) -> FakeEngine:
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
async def checkpoints_page(
    engine: FakeEngine, app: QApplication, folder: Path
) -> AsyncIterator[Any]:
    async with studio_on(engine, app, folder) as studio:
        await open_project(studio, engine, "inbox-scout")
        studio.window.resize(1440, 900)
        studio.window.show_page("checkpoints")
        page: Any = studio.pages["checkpoints"]
        await until(lambda: len(page._model.chosen()) == 2)
        studio.window.activateWindow()
        yield page


def selected_names(page: Any) -> list[str]:
    return [one.words for one in page._model.chosen()]


def test_base_and_best_are_selected_first_and_space_toggles(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
            best = max((r for r in page._model.rows if r.kept), key=lambda r: r.validation.mean)
            assert selected_names(page) == ["base", best.words]
            assert "best" in best.marks
            table = page._list.table
            table.setFocus()
            table.selectRow(0)
            for _ in range(len(page._model.rows)):
                row = table.currentIndex().row()
                if page._model.rows[row].words not in selected_names(page):
                    QTest.keyClick(table, Qt.Key.Key_Space)
                QTest.keyClick(table, Qt.Key.Key_Down)
            assert len(selected_names(page)) == len(page._model.rows)
            page._model.make_baseline(0)
            assert selected_names(page)[0] == page._model.rows[0].words
            assert [s.name for s in page._arena._talk.sides] == [
                one.name for one in page._model.chosen()
            ]

    run(job())


def test_evaluation_marks_only_significant_differences(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
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


def test_evaluation_is_exported_for_inspect(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
            button = page._compare.export
            assert not button.isVisible()
            QTest.mouseClick(page._evaluate, Qt.MouseButton.LeftButton)
            await until(button.isVisible)
            notices: list[str] = []
            page.session.notice.connect(notices.append)
            logs = tmp_path / "logs"
            logs.mkdir()
            page._logs.start(logs)
            await until(lambda: bool(notices))
            assert notices == [f"2 logs written to {logs}. Open them with Inspect View."]
            found = {file.name: file.read_bytes() for file in logs.iterdir()}
            assert found == {"a.eval": b"log 0", "b.eval": b"log 1"}
            problems: list[Problem] = []
            page.session.problem_raised.connect(problems.append)
            page._logs.start(tmp_path / "missing")
            await until(lambda: bool(problems))
            assert problems[0].message.startswith("The logs could not be written: No such file")
            assert button.isEnabled()

    run(job())


def test_arena_streams_answers_and_blind_vote_is_stored_as_label(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
            arena, labels = page._arena, []

            async def add_label(run_id: str, label: Any) -> None:
                labels.append((run_id, label))
                with_checkpoints.checkpoints.votes += 1

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
            await until(lambda: bool(labels) and arena._tally.votes == 1)
            run_id, label = labels[0]
            assert run_id == "01JD5ARENA"
            assert label.words[0].order == ((right.attempt.id,), (left.attempt.id,))
            assert arena._columns[0]._name.words() in ("base", selected_names(page)[1])
            assert not arena._left.isEnabled()
            request = with_checkpoints.checkpoints.asked[0]
            assert request.chats[0][-1]["content"] == "Until when?"
            QTest.keyClicks(arena._ask, "And then?")
            QTest.keyClick(arena._ask, Qt.Key.Key_Return)
            await until(lambda: len(with_checkpoints.checkpoints.asked) == 2)
            assert len(with_checkpoints.checkpoints.asked[1].chats[0]) == 3, (
                "each chat continues from its own answer"
            )
            await until(lambda: not arena._talk.asking)

    run(job())


def test_arena_shows_judge_verdicts_beside_answers(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
            arena, client, judged = page._arena, page.session.client, []

            async def try_judge(run_id: str, request: Any) -> AsyncIterator[Any]:
                judged.append((run_id, request.places))
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
            assert judged == [("01JD5ARENA", [("validation", 1, 0)])]
            arena._ask.setText("And then?")
            arena._put()
            await until(lambda: arena._judge.isEnabled())
            assert not arena._columns[1]._verdict.isVisible()

    run(job())


def test_checkpoints_can_be_pinned_and_deleted(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
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


def test_export_that_differs_needs_force(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
            page._list.table.setFocus()
            page._list.table.selectRow(0)
            QTest.keyClick(page._list.table, Qt.Key.Key_Return)
            sheet = page._export
            assert sheet.is_open()
            assert sheet._go.words() == "Export merged"
            sheet._choose("gguf")
            sheet._dtype.set_value("q8_0")
            with_checkpoints.checkpoints.verdict = "differs"
            QTest.mouseClick(sheet._go, Qt.MouseButton.LeftButton)
            await until(lambda: sheet._go.words() == "Export despite differences")
            assert sheet._proof._chip.words() == "differs"
            assert "Exported: 31 March" in sheet._proof._difference.words()
            assert not sheet._commands.isVisible()
            QTest.mouseClick(sheet._go, Qt.MouseButton.LeftButton)
            await until(lambda: sheet._go.words() == "Open the folder")
            requests = [
                (one.format, one.dtype, one.force) for one in with_checkpoints.checkpoints.exports
            ]
            assert requests == [("gguf", "q8_0", False), ("gguf", "q8_0", True)]

    run(job())


def test_cancelled_export_can_be_repeated(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
            with_checkpoints.checkpoints.export_s = 20.0
            page._list.want_export(0)
            sheet = page._export
            QTest.mouseClick(sheet._go, Qt.MouseButton.LeftButton)
            await until(
                lambda: (
                    sheet._cancel.words() == "Stop" and bool(with_checkpoints.checkpoints.exports)
                )
            )
            QTest.mouseClick(sheet._cancel, Qt.MouseButton.LeftButton)
            assert "Partial files were deleted" in sheet._words.words()
            assert sheet._go.isEnabled()
            with_checkpoints.checkpoints.export_s = 0.0
            QTest.mouseClick(sheet._go, Qt.MouseButton.LeftButton)
            await until(lambda: sheet._go.words() == "Open the folder")

    run(job())


def test_branch_sheet_command_matches_its_request(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(with_checkpoints, qapp, tmp_path) as studio:
            await open_project(studio, with_checkpoints, "inbox-scout")
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
            await until(lambda: bool(with_checkpoints.started))
            request = with_checkpoints.started[0]
            assert (request.origin, request.replay) == ("amber-kestrel@4", False)
            assert request.overrides == {"train.steps": 12, "train.lr": 5e-5}
            studio.actions.trigger("run.branch")
            sheet._way.set_index(1)
            sheet._refresh()
            assert "--replay" in sheet._command.words()
            assert sheet.request().overrides == {}

    run(job())


async def another_run(engine: FakeEngine, page: Any) -> str:
    """Start another run of the same project."""
    simulation = Simulation("01JD5MQUIETHERON0000000000", "quiet-heron")
    simulation.begin()
    name = engine.add_run(simulation.made).id
    page.session.refresh()
    await until(lambda: page.session.runs.known(name))
    return name


def test_deletion_applies_to_run_selected_when_dialog_opened(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
            other = await another_run(with_checkpoints, page)
            run_id, deleted = page._run.run_id, []
            delete = page.session.client.delete_checkpoint

            async def record(of: str, step: int) -> None:
                deleted.append((of, step))
                await delete(of, step)

            page.session.client.delete_checkpoint = record
            page._delete(4)
            await until(QApplication.activeModalWidget)
            page.session.select_run(other)
            dialog: Any = QApplication.activeModalWidget()
            dialog._answered("delete")
            await until(lambda: not page.tasks.busy("change"))
            assert deleted == [(run_id, 4)]

    run(job())


def test_late_checkpoints_are_not_shown_under_another_run(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
            other = await another_run(with_checkpoints, page)
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
def test_new_chat_ignores_answers_of_previous_chat(
    with_checkpoints: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, how: str
) -> None:
    async def job() -> None:
        async with checkpoints_page(with_checkpoints, qapp, tmp_path) as page:
            arena = page._arena
            with_checkpoints.checkpoints.go_on.clear()
            arena._ask.setText("Until when?")
            arena._put()
            await until(lambda: arena._talk.sides[0].text)
            asking = arena._tasks._jobs["ask"]
            if how == "blind":
                arena._blind.setChecked(True)
            else:
                QTest.mouseClick(arena._anew, Qt.MouseButton.LeftButton)
            with_checkpoints.checkpoints.go_on.set()
            await asyncio.wait([asking])
            assert not any(side.shown or side.attempt for side in arena._talk.sides)
            assert not arena._talk.can_vote
            assert not arena._left.isEnabled()

    run(job())

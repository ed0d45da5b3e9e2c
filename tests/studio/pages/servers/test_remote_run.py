"""Run on a remote server in the window: disconnected server, remote judge, fetching, moving."""

import time
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.requests.runs import StartEvaluation
from studio.app import Studio
from studio.pages.connection_bar import AwayBar, away_spans, judge_waits
from studio.services.notifications import Question
from studio.store.runs.state import RunState
from studio.widgets.controls.buttons import Button
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.servers import UNREACHABLE, view
from tests.studio.fakes.simulated_run import SMALL, Simulation
from tests.studio.screenshots.pages import open_project, studio_on

RUN = "01JD5MAMBERKESTREL00000000"


def add_remote_run(engine: FakeEngine, ended: bool = True) -> None:
    """Add a run on server box whose checkpoints are only there."""
    simulation = Simulation(run_id=RUN, train=SMALL, judged=True)
    simulation.begin()
    for step in range(1, 5):
        simulation.step(step)
    if ended:
        simulation.end(4)
    engine.servers.put(view(state="connected"))
    engine.servers.lives_on[RUN] = "box"
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)
    state = RunState(RUN).fold(simulation.made.events)
    engine.checkpoints.elsewhere |= {one.step for one in state.checkpoints}


async def open_run(studio: Studio, engine: FakeEngine) -> None:
    await until(lambda: studio.session.hosts.all and studio.session.runs.known(RUN))
    await open_project(studio, engine, "inbox-scout")
    await until(lambda: studio.session.run.state.seq == len(engine.runs[RUN].events))


def dialog() -> Any:
    shown = QApplication.activeModalWidget()
    return shown if isinstance(shown, Question) else None


def press_in_dialog(words: str) -> None:
    button = next(b for b in dialog().findChildren(Button) if b.words() == words)
    button.setFocus()
    QTest.keyClick(button, Qt.Key.Key_Return)


def test_disconnected_server_is_shown_on_run_page(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        add_remote_run(engine, ended=False)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_run(studio, engine)
            studio.window.show_page("run")
            bar = studio.pages["run"].findChild(AwayBar)
            chip = studio.window.header.chip
            assert bar.isHidden()
            await until(lambda: chip.words().endswith("on box"))
            later = time.time() + 60
            engine.servers.meets["box"] = UNREACHABLE
            engine.servers.change("box", state="reconnecting", failures=1, retry_at=later)
            await until(bar.isVisible)
            assert bar.words().startswith("box has been disconnected since ")
            assert "The run continues on the server" in bar.words()
            assert chip.words().endswith("box is disconnected")
            del engine.servers.meets["box"]
            bar._again.setFocus()
            QTest.keyClick(bar._again, Qt.Key.Key_Return)
            await until(bar.isHidden)
            assert ("box", "connect") in engine.servers.acted
            engine.servers.change("box", behind=12_400)
            await until(lambda: "12,400 events not mirrored" in bar.words())
            studio.window.show_page("home")
            home: Any = studio.pages["home"]
            assert "is training on box" in home._banner._title.words()
            assert home._model.rows[0].run.host == "box"
            index = home._model.index(0, 4)
            assert index.data() == "box · H200 · 140 GB"

    run(job())


def test_judge_with_local_keys_waits_while_disconnected() -> None:
    simulation = Simulation(run_id=RUN, train=SMALL, judged=True)
    simulation.begin()
    state = RunState(RUN).fold(simulation.made.events)
    assert state.spec is not None
    assert not judge_waits(state)
    state.spec = state.spec.model_copy(update={"keys_at_home": True})
    waits = judge_waits(state)
    assert waits == bool(state.spec.config.judge.models)
    summary: Any = type("Summary", (), {"changed_at": 0.0})
    words = "".join(s.words for s in away_spans(view(), None, summary, True, 1.0))
    assert words.startswith("box is disconnected; the last event is from 1 Jan, ")
    assert words.endswith("Judge calls wait until then.")


def test_fetched_checkpoint_becomes_local(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        add_remote_run(engine)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_run(studio, engine)
            studio.window.show_page("checkpoints")
            page: Any = studio.pages["checkpoints"]
            listing = page._list
            await until(lambda: listing.model.rows and listing.model.rows[0].elsewhere == "box")
            assert not listing.model.rows[0].damaged
            listing.table.selectRow(0)
            await until(listing._fetch.isVisible)
            assert listing._fetch.words().startswith("Fetch step ")
            QTest.keyClick(listing._fetch, Qt.Key.Key_Return)
            await until(lambda: listing._fetch.is_busy())
            await until(lambda: "of 84 MB" in listing._fetch.accessibleName())
            step = listing.model.rows[0].step
            await until(lambda: step not in engine.checkpoints.elsewhere)
            await until(lambda: not listing.model.rows[0].elsewhere)
            await until(lambda: not listing._fetch.isVisible())

    run(job())


def test_second_fetch_is_queued_after_first(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        add_remote_run(engine)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_run(studio, engine)
            studio.window.show_page("checkpoints")
            page: Any = studio.pages["checkpoints"]
            await until(lambda: sum(bool(one.elsewhere) for one in page._model.rows) > 1)
            first, second = [one for one in page._model.rows if one.elsewhere][:2]
            page._fetch(first)
            await until(lambda: page._fetches.coming == first)
            page._fetch(second)
            assert f"{second.words} is fetched after {first.words}" in studio.notifier.words()
            await until(lambda: not {first.step, second.step} & engine.checkpoints.elsewhere)
            await until(lambda: page._fetches.coming is None)
            await until(lambda: not any(page.tasks.busy(job) for job in page._fetches._jobs))

    run(job())


@pytest.mark.parametrize("answer", ["Evaluate on box", "Fetch and continue"])
def test_evaluation_of_remote_checkpoints_asks_for_location(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, answer: str
) -> None:
    started: list[StartEvaluation] = []
    begin = engine.checkpoints._put
    engine.checkpoints._put = lambda body: started.append(body) or begin(body)  # type: ignore[func-returns-value]

    async def job() -> None:
        add_remote_run(engine)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_run(studio, engine)
            studio.window.show_page("checkpoints")
            page: Any = studio.pages["checkpoints"]
            await until(lambda: any(one.elsewhere for one in page._model.chosen()))
            for choice in ("Cancel", answer):
                assert not started
                page._press_evaluate()
                await until(dialog)
                press_in_dialog(choice)
                await until(lambda: dialog() is None)
                await until(lambda: not page.tasks.busy("place"))
            await until(lambda: started)
            assert started[0].host == ("box" if "box" in answer else "")
            if not started[0].host:
                await until(lambda: not any(one.elsewhere for one in page._model.chosen()))

    run(job())


def test_chat_with_remote_checkpoint_asks_to_fetch(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        add_remote_run(engine)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_run(studio, engine)
            studio.window.show_page("checkpoints")
            page: Any = studio.pages["checkpoints"]
            await until(lambda: any(one.elsewhere for one in page._model.chosen()))
            page._arena._ask.setText("Is it there?")
            page._arena._put()
            await until(dialog)
            assert not engine.checkpoints.asked
            press_in_dialog("Fetch and continue")
            await until(lambda: engine.checkpoints.asked, 15)
            await until(lambda: not page._arena._talk.asking)

    run(job())


def test_run_is_moved_to_this_machine_and_back(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        add_remote_run(engine)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_run(studio, engine)
            studio.window.show_page("run")
            await until(lambda: studio.actions.holds("remote"))
            studio.actions.trigger("run.bring_home")
            moves: Any = studio.servers.moves
            assert moves.is_open()
            assert moves._go.hasFocus()
            engine.servers.pace_s = 0.5
            QTest.keyClick(moves._go, Qt.Key.Key_Return)
            await until(lambda: "of 84 MB" in moves._now.words())
            QTest.keyClick(moves._cancel, Qt.Key.Key_Return)
            assert "next transfer continues" in moves._problem.words()
            engine.servers.pace_s = 0.02
            QTest.keyClick(moves._go, Qt.Key.Key_Return)
            await until(lambda: "is now on this machine" in studio.notifier.words())
            await until(lambda: studio.actions.holds("sendable"))
            assert not moves.is_open()
            studio.frame.send_wanted.emit("box")
            engine.servers.meets["box"] = UNREACHABLE
            engine.servers.change("box", state="away", info=None)
            await until(lambda: studio.session.hosts.away("box"))
            QTest.keyClick(moves._go, Qt.Key.Key_Return)
            await until(lambda: UNREACHABLE.message in moves._problem.words())
            await until(lambda: not moves._moving)
            del engine.servers.meets["box"]
            QTest.keyClick(moves._go, Qt.Key.Key_Return)
            await until(lambda: studio.actions.holds("remote"))
            assert engine.servers.lives_on[RUN] == "box"

    run(job())

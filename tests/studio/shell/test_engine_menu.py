"""Engine menu: shows, selects and applies the machine on which a project trains."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.config.project import BackendConfig
from engine.protocol.requests.remote import HostTick
from studio.app import Studio
from tests.studio.conftest import Run, until
from tests.studio.fakes.clusters import HOSTED, REPORT
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.servers import HOST_KEY, UNREACHABLE, view
from tests.studio.fakes.simulated_run import SMALL, Simulation
from tests.studio.screenshots.pages import open_project, studio_on

RUN = "01JD5MAMBERKESTREL00000000"


@pytest.fixture
def filled(engine: FakeEngine) -> FakeEngine:
    simulation = Simulation(run_id=RUN, train=SMALL)
    simulation.begin()
    simulation.step(1)
    simulation.end(1)
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)
    return engine


def entries(studio: Studio) -> list[str]:
    studio.actions.trigger("engine.choose")
    return [action.text() for action in studio.frame.switcher.menu.actions()]


def choose(studio: Studio, start: str) -> None:
    entries(studio)
    menu = studio.frame.switcher.menu
    action = next(one for one in menu.actions() if one.text().startswith(start))
    menu.setActiveAction(action)
    QTest.keyClick(menu, Qt.Key.Key_Return)


def pill(studio: Studio) -> Any:
    return studio.window.header.pill


def test_server_is_selected_by_keyboard_and_connected(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        filled.servers.put(view())
        filled.servers.installed.add("box")
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            await until(lambda: studio.session.hosts.all)
            assert entries(studio)[0].endswith("trains here")
            assert entries(studio)[1] == "box · not connected"
            assert {"Add a server…", "Servers…"} <= set(entries(studio))
            choose(studio, "box")
            await until(lambda: pill(studio).text() == "box · H200 · 140 GB")
            assert pill(studio).state() == "connected"
            assert filled.servers.acted == [("box", "connect")]
            path = str(filled.workspace / "inbox-scout")
            assert studio.settings.current.trains_on == {path: "box"}
            assert entries(studio)[1].endswith("trains here")
            studio.window.show_page("home")
            assert pill(studio).text().startswith("This machine")
            studio.window.show_page("run")
            choose(studio, "This machine")
            assert studio.settings.current.trains_on == {}

    run(job())


def test_pill_counts_down_to_retry(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        filled.servers.put(view())
        filled.servers.meets["box"] = UNREACHABLE
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            await until(lambda: studio.session.hosts.all)
            choose(studio, "box")
            await until(lambda: "retry in 8 s" in pill(studio).text())
            assert pill(studio).state() == "reconnecting"
            await until(lambda: "retry in 7 s" in pill(studio).text())
            assert "the server is unreachable" in pill(studio).toolTip()

    run(job())


def test_run_starts_on_selected_server(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        filled.servers.put(view())
        filled.servers.installed.add("box")
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            await until(lambda: studio.session.hosts.all)
            path = str(filled.workspace / "inbox-scout")
            studio.settings.update(trains_on={path: "box"})
            filled.delay_s = 0.3  # until the start is answered
            studio.session.train()
            train = studio.window.header.train
            await until(lambda: train.words() == "Connecting to box")
            await until(lambda: filled.servers.views["box"].state == "connected")
            tick = HostTick(stage="syncing", words="inbox-scout", done=12_000_000, total=40_000_000)
            filled.servers.change("box", tick=tick)
            await until(lambda: train.words() == "Syncing 12 of 40 MB")
            filled.delay_s = 0.0
            await until(lambda: filled.started)
            await until(lambda: studio.session.run.summary.host == "box")  # type: ignore[union-attr]
            assert filled.started[0].host == "box"
            assert "on box" in studio.window.header.chip.words()
            await until(lambda: studio.actions.holds("stoppable"))
            studio.actions.trigger("run.stop_now")
            await until(lambda: not studio.session.runs.active())
            branch = filled.started[0].model_copy(update={"origin": f"{RUN}@1", "host": ""})
            assert studio.session.place_of(branch) == "", "its weights are local"

    run(job())


def test_unreachable_server_starts_no_run_and_notifies(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        filled.servers.put(view())
        filled.servers.meets["box"] = UNREACHABLE
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            await until(lambda: studio.session.hosts.all)
            path = str(filled.workspace / "inbox-scout")
            studio.settings.update(trains_on={path: "box"})
            studio.session.train()
            await until(lambda: "cannot be reached" in studio.notifier.words())
            assert not filled.started
            await until(lambda: not studio.session.tasks.busy("train"))

    run(job())


def test_api_keys_are_lent_only_on_request(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        filled.servers.put(view(state="connected"))
        made = filled.project_store.projects[str(filled.workspace / "inbox-scout")]
        assert made.config is not None
        judge = made.config.judge.model_copy(
            update={"enabled": True, "models": ("openai/gpt-5.4",)}
        )
        config = made.config.model_copy(update={"judge": judge})
        filled.project_store.projects[made.path] = made.model_copy(update={"config": config})
        filled.summaries.clear()
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            await until(lambda: studio.session.hosts.all)
            studio.window.show_page("run")
            assert not studio.actions.holds("lendable")
            studio.session.hosts.choose(made.path, "box")
            await until(lambda: studio.actions.holds("lendable"))
            train = studio.window.header.train
            train.setFocus()
            QTest.keyClick(train, Qt.Key.Key_Down)
            menu = next(
                m for m in train.children() if type(m).__name__ == "QMenu" and m.isVisible()
            )  # type: ignore[attr-defined]
            lend = next(a for a in menu.actions() if "lend the judge's API keys to" in a.text())  # type: ignore[attr-defined]
            menu.setActiveAction(lend)  # type: ignore[attr-defined]
            QTest.keyClick(menu, Qt.Key.Key_Return)  # type: ignore[arg-type]
            await until(lambda: filled.started)
            assert (filled.started[0].host, filled.started[0].lend_keys) == ("box", True)
            await until(lambda: not studio.session.tasks.busy("train"))
            studio.session.train()
            await until(lambda: len(filled.started) == 2 and not studio.session.tasks.busy("train"))
            assert not filled.started[1].lend_keys

    run(job())


def test_longest_names_fit_smallest_window(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        name = "gpu-" * 15 + "box"
        filled.servers.put(view(name, "asking", questions=[HOST_KEY]))
        filled.servers.lives_on[RUN] = name
        filled._refresh(filled.runs[RUN], "inbox-scout")
        async with studio_on(filled, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all and studio.session.runs.known(RUN))
            await open_project(studio, filled, "inbox-scout")
            studio.session.hosts.choose(str(filled.workspace / "inbox-scout"), name)
            studio.window.resize(1080, 680)
            for key in studio.pages:
                studio.window.show_page(key)
                await asyncio.sleep(0.05)
                assert studio.window.width() == 1080, f"{key} widens the window"
            dialog = QApplication.activeModalWidget()
            assert dialog is not None
            QTest.keyClick(dialog, Qt.Key.Key_Escape)
            studio.servers.wizard.begin()
            studio.servers.sheet.show_host(name)
            await asyncio.sleep(0.3)
            assert studio.window.width() == 1080

    run(job())


def test_cluster_server_and_this_machine_exclude_each_other(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        filled.servers.put(view())
        filled.servers.installed.add("box")
        filled.clusters.put(HOSTED, report=REPORT)
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            await until(lambda: studio.session.hosts.all and studio.session.clusters.all)
            box, hosted = entries(studio)[1:3]
            assert (box, hosted) == ("box · not connected", "hosted · cluster, serves 3 models")
            assert {"Add a cluster…", "Clusters…"} <= set(entries(studio))
            path = str(filled.workspace / "inbox-scout")
            choose(studio, "hosted")
            assert studio.settings.current.clusters == {path: "hosted"}
            assert entries(studio)[2].endswith("trains here")
            assert not entries(studio)[0].endswith("trains here")
            assert pill(studio).text() == "hosted · cluster"
            choose(studio, "box")
            assert studio.settings.current.clusters == {}
            assert studio.settings.current.trains_on == {path: "box"}
            assert studio.session.cluster == ""
            choose(studio, "hosted")
            assert studio.settings.current.trains_on == {}
            studio.window.show_page("home")
            assert pill(studio).text().startswith("This machine")
            studio.window.show_page("run")
            choose(studio, "This machine")
            assert studio.settings.current.clusters == {}
            assert pill(studio).text().startswith("This machine")

    run(job())


def test_choice_in_the_header_takes_precedence_over_project_toml(
    filled: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        filled.clusters.put(HOSTED, report=REPORT)
        path = str(filled.workspace / "inbox-scout")
        project = filled.project_store.projects[path]
        assert project.config is not None
        backend = BackendConfig(cluster="hosted")
        config = project.config.model_copy(update={"backend": backend})
        filled.project_store.projects[path] = project.model_copy(update={"config": config})
        async with studio_on(filled, qapp, tmp_path) as studio:
            await open_project(studio, filled, "inbox-scout")
            await until(lambda: studio.session.clusters.all)
            assert studio.session.cluster == "hosted"
            assert entries(studio)[1].endswith("trains here")
            studio.session.train()
            await until(lambda: len(filled.started) == 1)
            choose(studio, "This machine")
            assert studio.settings.current.clusters == {path: ""}
            await until(lambda: not studio.session.tasks.busy("train"))
            studio.session.train()
            await until(lambda: len(filled.started) == 2)
            await until(lambda: not studio.session.tasks.busy("train"))
            assert [one.overrides for one in filled.started] == [{}, {"backend.cluster": ""}]

    run(job())

"""Supervised training in the window: demonstration files, teacher models, charts of the run."""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.requests.runs import StartRun
from studio.pages.run.page import RunPage
from studio.pages.setup.page import SetupPage
from studio.pages.setup.tabs.demonstrations import DemonstrationsTab
from studio.pages.setup.teacher_sheet import TeacherSheet, command_of
from studio.store.runs.state import HELD_OUT, RunState
from tests.studio.conftest import Run
from tests.studio.fakes import made_sft
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import open_project, studio_on, wait_for


def tab_of(studio: Any) -> DemonstrationsTab:
    setup = studio.pages["setup"]
    assert isinstance(setup, SetupPage)
    return setup._demonstrations


def test_files_are_counted_and_invalid_lines_listed(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        engine.add_project("inbox-scout")
        engine.project_store.demonstrations = made_sft.demonstrations(bad=True)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.actions.trigger("sft.open")
            tab = tab_of(studio)
            await wait_for(lambda: bool(tab.bad.rows))
            assert [row.path for row in tab.files.rows] == ["demonstrations.jsonl", "gold.jsonl"]
            assert [row.line for row in tab.bad.rows] == [17, 88, 191]
            assert "fix them or turn on" in tab._bad_words.words()
            assert not tab.train.isEnabled()
            assert tab._bad_table.isVisible()

            path = str(engine.workspace / "inbox-scout")
            demonstrations = made_sft.demonstrations(bad=True)
            engine.project_store.demonstrations = demonstrations.model_copy(
                update={"problem": None}
            )
            tab._rows["sft.skip_bad_lines"].field.editor.click()  # type: ignore[attr-defined]
            await wait_for(lambda: _config(engine, path).sft.skip_bad_lines)
            await wait_for(tab.train.isEnabled)
            assert "skipped in training" in tab._bad_words.words()
            assert tab.train.accessibleName() == "Train on demonstrations, 120 updates"
            tab.train.click()
            await wait_for(lambda: bool(engine.started))
            assert engine.started[-1].kind == "sft"

    run(work())


def _config(engine: FakeEngine, path: str) -> ProjectConfig:
    config = engine.project_store.projects[path].config
    assert config is not None
    return config


def test_teacher_request_matches_the_form(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        engine.add_project("inbox-scout")
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.actions.trigger("sft.teacher")
            setup: Any = studio.pages["setup"]
            sheet: TeacherSheet = setup._teacher
            await wait_for(sheet.is_open)
            sheet.model.set_value("gpt")
            sheet._refresh()
            assert not sheet._go.isEnabled()
            assert "PROVIDER/MODEL" in sheet._rows["model"].problem()
            sheet.model.set_value("openai/gpt-5.4")
            sheet.attempts.set_value(3)
            sheet.keep.set_value("above:0.8")
            sheet.budget.set_value(2.5)
            sheet._refresh()
            assert sheet._go.accessibleName() == "Generate, 144 rollouts · up to $2.50"
            request = sheet.request()
            assert request.demonstrate is not None
            assert (request.models, request.scenarios, request.demonstrate.keep) == (
                ["openai/gpt-5.4"],
                "train",
                "above:0.8",
            )
            assert request.overrides["evaluate.budget_usd"] == 2.5
            assert command_of(request).endswith(
                "--teacher openai/gpt-5.4 --attempts 3 --keep above:0.8 --budget 2.5"
            )
            sheet._go.click()
            await wait_for(lambda: any(r.kind == "evaluation" for r in engine.summaries.values()))

    run(work())


def test_teacher_form_is_kept_until_request_succeeds(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        engine.add_project("inbox-scout")
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.actions.trigger("sft.teacher")
            setup: Any = studio.pages["setup"]
            sheet: TeacherSheet = setup._teacher
            await wait_for(sheet.is_open)
            sheet.model.set_value("openai/gpt-5.4")
            sheet.budget.set_value(2.5)
            sheet._refresh()
            engine.refuse["/evaluations"] = Problem(code="judge.key_missing", message="No key.")
            sheet._go.click()
            assert sheet._go.is_busy()
            await wait_for(lambda: sheet._problem.words() == "No key.")
            assert sheet.is_open()
            sheet.close_sheet()
            setup._demonstrations.open_teacher()
            assert sheet.budget.value() == 2.5
            engine.refuse.clear()
            sheet._go.click()
            await wait_for(lambda: not sheet.is_open())
            assert [r.kind for r in engine.summaries.values()] == ["evaluation"]
            setup._demonstrations.open_teacher()
            assert sheet.budget.value() == 5.0

    run(work())


def test_sft_run_shows_losses_and_no_rewards(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        engine.add_project("inbox-scout")
        made = made_sft.sft_run()
        engine.add_run(made)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.session.select_run(made.spec.id)
            state = studio.session.runs.state(made.spec.id)
            await wait_for(lambda: state.seq == len(made.events))
            studio.window.show_page("run")
            page: Any = studio.pages["run"]
            assert isinstance(page, RunPage)
            await wait_for(lambda: "sft_held_out" in page._grid.bound and page._grid.supervised)
            await wait_for(lambda: page._grid.bound["sft_held_out"].card.has_data())
            shown = [one for one in page._grid.bound.values() if one.card.isVisible()]
            titles = {one.title for one in shown}
            assert len(shown) == len(page._grid._cards)
            assert {"Loss", "Held-out loss", "Learning rate"} <= titles
            assert not any(title.startswith(("Reward", "Group")) for title in titles)
            words = page._strip._facts.words()
            assert words.startswith("Update 120 of 120")
            assert "3 invalid lines skipped" in words
            assert not page._side._flight.isVisible()

            requests: list[StartRun] = []
            page._branch.ordered.disconnect()
            page._branch.ordered.connect(requests.append)
            page.open_branch()
            page._branch._accept()
            assert requests[0].origin == "mellow-otter@100", "the lowest held-out loss"
            assert requests[0].overrides == {"train.steps": 120, "train.lr": 1e-5, "train.seed": 0}

    run(work())


def test_sft_state_is_folded_from_events() -> None:
    made = made_sft.sft_run(done=45)
    state = RunState(made.spec.id).fold(made.events)
    assert (state.done, state.planned, state.active) == (45, 120, True)
    assert list(state.series[HELD_OUT].xs) == [0, 20, 40]
    assert not state.validations

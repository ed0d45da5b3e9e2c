"""Backend settings: selected in the form, shown on the run, changed after a failure."""

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from studio.pages.run.failure import failure_card, onwards, ways
from studio.pages.run.side_column import SideColumn, _phases
from studio.pages.run.strip import _facts
from studio.pages.setup.form.backend import LABELS, BackendCard
from studio.store.runs.state import RunState
from studio.theme.theme import Theme
from studio.widgets.cards.error_card import _RemedyRow
from tests.studio.conftest import Run
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.made_backends import (
    BARE_CARD,
    NOT_STARTED,
    active_run,
    failed_run,
    fill_backends,
    restarted_run,
)
from tests.studio.screenshots.pages import open_project, studio_on, wait_for

CODES = {
    "sampler.not_started": ["set.sampler", "run.resume"],
    "sampler.not_installed": ["engines.open", "set.sampler", "run.resume"],
    "sampler.out_of_memory": ["set.fewer", "set.sampler", "go.setup"],
    "sampler.died": ["run.resume", "set.sampler"],
    "sampler.refused": ["set.sampler", "run.resume"],
    "policy.stale_adapter": ["run.resume", "set.sampler"],
    "trainer.not_installed": ["engines.open", "set.trainer", "run.resume"],
    "model.segments_unseen": ["set.trainer", "run.resume"],
    "model.needs_unsloth": ["set.unsloth", "go.setup", "run.resume"],
    "backend.too_few_cards": ["go.setup", "set.one", "run.resume"],
    "run.card_held": ["run.resume", "set.share", "go.setup"],
    "policy.out_of_memory": ["go.setup", "run.resume"],
    "store.disk_full": ["run.resume", "go.setup"],
}


@pytest.mark.parametrize(("code", "keys"), CODES.items())
def test_failure_offers_remedies(code: str, keys: list[str]) -> None:
    problem = Problem(code=code, message="It stopped.", hint="Change something.")
    state = RunState("r").fold(failed_run(problem, steps=2).events)
    assert [way.remedy.key for way in ways(problem, state)] == keys


def test_remedy_continues_from_last_checkpoint(engine: FakeEngine) -> None:
    made = failed_run(steps=3)
    summary, state = engine.add_run(made), RunState("r").fold(made.events)
    values = {"backend.sampler": "torch"}
    request = onwards(summary, state, values)
    assert request.origin == "failed@2"
    assert request.overrides == {**values, "train.steps": 12}
    nothing = RunState("r").fold(failed_run().events)
    assert onwards(summary, nothing, values).origin == ""  # the project has the values by then


def test_backend_card_works_by_keyboard_and_explains_fields(qapp: QApplication) -> None:
    Theme.install(qapp, mode="dark")
    card = BackendCard()
    edits: list[tuple[str, Any]] = []
    card.edited.connect(lambda key, value: edits.append((key, value)))
    for key in LABELS:
        row = card.rows[key]
        assert key in row.toolTip()
        assert row.field.editor.focusPolicy() & Qt.FocusPolicy.TabFocus
        assert row.field.editor.accessibleDescription()
    QTest.keyClick(card.rows["backend.weights"].field.editor, Qt.Key.Key_End)
    assert edits == [("backend.weights", "4bit")]
    share: Any = card.rows["backend.memory_share"].field
    QTest.keyClicks(share.editor, "0.")
    assert edits[1:] == []
    assert card.rows["backend.memory_share"].problem() == "A share between 0 and 1"
    QTest.keyClicks(share.editor, "6")
    assert edits[1:] == [("backend.memory_share", 0.6)]
    share.editor.clear()
    share.editor.textEdited.emit("")
    assert edits[2:] == [("backend.memory_share", None)]
    card.deleteLater()


def test_incomplete_pair_is_rejected_and_fixed_by_link(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Any
) -> None:
    async def work() -> None:
        path = engine.add_project("inbox-scout").path
        engine.project_store.backends = BARE_CARD
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.show_page("setup")
            setup: Any = studio.pages["setup"]
            card = setup._form._backend
            row = card.rows["backend.weights"]
            row.field.edited.emit("4bit")
            row.field.set_value("4bit")
            await wait_for(lambda: "backend.trainer to unsloth" in row.problem())
            assert backend(engine, path).weights == "full"
            row.setFocus()
            QTest.keyClick(row._note, Qt.Key.Key_Return)  # press its link
            await wait_for(lambda: backend(engine, path).weights == "4bit")
            assert backend(engine, path).trainer == "unsloth"
            trainer = card.rows["backend.trainer"]
            await wait_for(lambda: "Install the GPU engine" in trainer.problem())
            checks = [line.accessibleName() for line in setup._preflight._checks]
            assert "Unsloth is not installed , bad" in checks
            trainer.link_activated.emit("engines.open")
            await wait_for(lambda: studio.window.page == "settings")

    run(work())


def backend(engine: FakeEngine, path: str) -> Any:
    config = engine.project_store.projects[path].config
    assert config is not None
    return config.backend


def test_failed_start_continues_with_torch_by_one_click(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Any
) -> None:
    async def work() -> None:
        fill_backends(engine)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "failed")
            studio.window.show_page("run")
            page: Any = studio.pages["run"]
            await wait_for(lambda: page._failure.isVisible())
            first = page._failure.findChildren(_RemedyRow)[0]
            first._button.click()
            await wait_for(lambda: bool(engine.started))
            assert backend(engine, str(engine.workspace / "failed")).sampler == "torch"
            assert engine.started[0].origin == ""

    run(work())


def test_side_column_names_both_programs_and_marks_differences(qapp: QApplication) -> None:
    Theme.install(qapp, mode="dark")
    side = SideColumn()
    for made, marked in ((active_run(), False), (active_run("differs", dtype="bfloat16"), True)):
        side.show_run(RunState("r").fold(made.events))
        assert "Sampler vLLM 0.31.0, float32" in side._machine._programs.accessibleName()
        assert side._machine._unlike.isHidden() is not marked
        facts = "".join(span.words for span in _facts(RunState("r").fold(made.events)))
        assert ("sampler in float32, trainer in bfloat16" in facts) is marked
    state = RunState("r").fold(restarted_run().events)
    side.show_run(state)
    card = side._diagnoses[0]
    assert card.accessibleName().startswith("Notice: The sampler was restarted 2 times")
    clicks: list[bool] = []
    side.log_wanted.connect(lambda: clicks.append(True))
    card.evidence_requested.emit()
    card.dismissed.emit()
    side.show_run(state)
    assert clicks == [True]
    assert "sampler was started" not in " ".join(c.accessibleName() for c in side._diagnoses)
    side.deleteLater()


def test_phases_have_switch_bar_only_when_gpu_is_shared() -> None:
    state = RunState("r").fold(active_run().events)
    bars = _phases(state, state.phase_at + 3.25)
    assert [bar.words for bar in bars] == ["Rollouts", "Switch", "Train", "Publish"]
    assert bars[1].share == 0.5
    assert _phases(state, state.phase_at + 30)[1].share == 1
    plain = RunState("r").fold(failed_run().events)
    assert [bar.words for bar in _phases(plain, plain.at)] == ["Rollouts", "Train", "Publish"]


def test_failed_start_states_that_sampling_had_not_started(qapp: QApplication) -> None:
    Theme.install(qapp, mode="light")
    card = failure_card(NOT_STARTED, RunState("r").fold(failed_run().events))
    assert "sampling had not started" in card.accessibleName()
    card.deleteLater()


def test_rejected_edit_is_kept_while_engine_reports_other_changes(qapp: QApplication) -> None:
    Theme.install(qapp, mode="dark")
    card = BackendCard()
    config = ProjectConfig()
    card.show_config(config)
    row = card.rows["backend.weights"]
    row.field.set_value("4bit")
    card.set_problem("backend.weights", "Only with Unsloth.")
    card.show_facts(BARE_CARD)
    card.show_config(config.model_copy())
    assert row.problem().startswith("Only with Unsloth.")
    assert row.field.value() == "4bit"
    card.show_config(config.model_copy(update={"name": "another"}))
    assert row.problem() == ""
    assert row.field.value() == "full"
    card.deleteLater()

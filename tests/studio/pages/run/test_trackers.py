"""Trackers in the window: a line each on the Run page, sending, and lending of keys."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.tracking import TrackConfig, TrackerList, TrackerView, WandbConfig
from engine.protocol.problems import Problem
from studio.pages.run.trackers import TrackersCard
from studio.pages.setup.form.fields import label_of, section_of, specs
from studio.services import api_keys
from tests.studio.conftest import Run
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import fill_workspace, open_project, studio_on, wait_for

DOWN = Problem(code="track.unreachable", message="MLflow cannot be reached.", hint="Wait.")


def test_run_page_shows_tracker_states_and_sends(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    made = fill_workspace(engine, steps=4)
    views = [
        TrackerView(name="wandb", state="in_step", url="https://wandb.ai/x"),
        TrackerView(name="mlflow", state="unsent", behind=2, problem=DOWN),
    ]

    async def work() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.show_page("run")
            card: Any = studio.pages["run"].findChild(TrackersCard)
            assert card.isHidden()  # no trackers, so nothing is shown
            engine.tracking.views[made.spec.id] = TrackerList(trackers=views)
            card.look()
            await wait_for(lambda: not card.isHidden())
            texts = [line._words.words() for line in card._lines]
            assert texts == ["W&B: up to date", "MLflow cannot be reached. Wait. (2 not sent)"]
            assert [line._open.isHidden() for line in card._lines] == [False, True]
            card._send.click()
            await wait_for(lambda: engine.tracking.sent == [made.spec.id])
            await wait_for(lambda: card._send.isHidden())
            assert card._lines[1]._words.words() == "MLflow: up to date"
            studio.actions.trigger("run.track")
            await wait_for(lambda: len(engine.tracking.sent) == 2)

    run(work())


def test_tracker_key_is_lent_before_run(
    qapp: QApplication,
    run: Run,
    engine: FakeEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def stored_key(name: str) -> str | None:
        return {"tracker wandb": "wb-1"}.get(name)

    monkeypatch.setattr(api_keys, "get", stored_key)
    engine.add_project("inbox-scout")
    path = str(engine.workspace / "inbox-scout")
    view = engine.project_store.projects[path]
    track = TrackConfig(wandb=WandbConfig(on=True))
    config = (view.config or ProjectConfig()).model_copy(update={"track": track})
    engine.project_store.projects[path] = view.model_copy(update={"config": config})

    async def work() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.session.train()
            await wait_for(lambda: bool(engine.started))
            assert engine.tracking.lent == {"wandb": "wb-1"}

    run(work())


def test_form_has_a_section_for_every_tracker() -> None:
    tracker_specs = [spec for spec in specs() if spec.key.startswith("track.")]
    assert {section_of(spec.key) for spec in tracker_specs} == {
        "Tracking · W&B", "Tracking · MLflow", "Tracking · trackio", "Tracking · TensorBoard",
        "Tracking · OpenTelemetry", "Tracking · Langfuse",
    }  # fmt: skip
    assert label_of("track.mlflow.uri") == "Address"
    assert all(spec.help for spec in tracker_specs)

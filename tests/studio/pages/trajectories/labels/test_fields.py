"""Custom label fields on the page: asked one after the other, stored, undone."""

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.config.labels import LabelField, LabelsConfig
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import TrajectorySummary
from studio.pages.trajectories.labels import wording
from studio.pages.trajectories.labels.draft import Draft
from studio.pages.trajectories.labels.fields import hint, parsed
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.pages.trajectories.labels.test_labels import (
    RUN,
    TRAIN,
    Key,
    active_labels,
    commit_label,
    press_key,
    trajectories_page,
)

TONE = LabelField(kind="choice", choices=("rude", "neutral", "kind"))
STEPS = LabelField(kind="number", low=0, high=10)


@pytest.fixture
def with_fields(engine: FakeEngine) -> FakeEngine:
    simulation = Simulation(run_id=RUN, train=TRAIN, seed=12, judged=True)
    config = simulation.made.spec.config
    weights = {**config.reward.weights, "label/tone": 2.0}
    update = {
        "labels": LabelsConfig(fields={"tone": TONE, "steps": STEPS}),
        "reward": config.reward.model_copy(update={"weights": weights}),
    }
    config = config.model_copy(update=update)
    simulation.made.spec = simulation.made.spec.model_copy(update={"config": config})
    simulation.begin()
    simulation.step(1)
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)
    return engine


def test_typed_values() -> None:
    assert [parsed(TONE, text) for text in ("2", "Ki", "rude", "4", "")] == [
        "neutral", "kind", "rude", "4", "",
    ]  # fmt: skip
    assert [parsed(STEPS, text) for text in ("7", "2,5", "x")] == [7.0, 2.5, "x"]
    assert hint(TONE) == "1 rude  2 neutral  3 kind"


def test_draft_and_chips_of_fields() -> None:
    one = TrajectorySummary(
        id="a", split="train", step=1, group=0, index=0, scenario_id="s", title="S", reward=0.5
    )
    draft = Draft().answered("a", "tone", "kind").answered("a", "steps", 7.0)
    words = draft.words([one], {"a": ("a", "b")})
    assert [(w.trajectory_id, w.name, w.text, w.value) for w in words] == [
        ("a", "tone", "kind", None), ("b", "tone", "kind", None),
        ("a", "steps", "", 7.0), ("b", "steps", "", 7.0),
    ]  # fmt: skip
    assert draft.answered("a", "tone", None).kinds_of("a") == ["=steps: 7"]
    stored = [
        Label(id=text, step=1, group=0, words=Draft().answered("a", "tone", text).words([one]))
        for text in ("rude", "neutral")
    ]
    chips = wording.chips_of(one, stored, Draft().answered("a", "steps", 7.0))
    assert [(chip.words, chip.pending) for chip in chips] == [
        ("tone: neutral", False), ("steps: 7", True),
    ]  # fmt: skip
    assert wording.gist(stored[0], {"a": 3}) == "3 tone: rude"


def test_fields_are_asked_stored_and_undone(
    with_fields: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_fields, qapp, tmp_path) as (_, opened):
            page: Any = opened
            bar, labelling = page._bar, page._labels.labelling
            page._refresh()
            first = page._columns.record().id
            press_key(page, Key.Key_A)
            assert bar.asking()
            QTest.keyClicks(bar._field, "9")
            press_key(page, Key.Key_Return)
            assert bar._hint.words() == "Choose one of: rude, neutral, kind."
            bar._field.setText("kind")
            press_key(page, Key.Key_Return)
            assert bar._question.words() == f"steps · {page._columns.record().index + 1}"
            QTest.keyClicks(bar._field, "7")
            press_key(page, Key.Key_Return)
            assert not bar.asking()
            assert labelling.draft.fields == {(first, "tone"): "kind", (first, "steps"): 7.0}
            await until(lambda: "“tone” affects rewards once all" in bar.sentence())
            for one in labelling.attempts[:]:
                labelling.answer(one.id, "tone", "rude" if one.id != first else "kind")
            await until(lambda: labelling.preview is not None)
            moved = {o.trajectory_id: o for o in labelling.outcomes()}[first]
            assert moved.new_reward == pytest.approx((moved.reward or 0) + 2.0)
            await commit_label(page, with_fields, 1)
            (label,) = active_labels(with_fields)
            assert label.who
            rows = {one.id: one for one in with_fields.runs[RUN].trajectories}
            assert rows[first].fields == {"tone": "kind", "steps": 7.0}
            press_key(page, Key.Key_U)
            await until(lambda: not active_labels(with_fields))
            rows = {one.id: one for one in with_fields.runs[RUN].trajectories}
            assert rows[first].fields == {}

    run(job())

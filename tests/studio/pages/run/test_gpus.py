"""GPU memory in Setup and Run: estimated while fields change, fixed by one click, shown live."""

import math
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from engine.hardware.memory_plan import vram_plan
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.events import run as e
from engine.protocol.records.machine.hardware import CardProcess
from studio.pages.run.gpus import CardBlock, CardsCard, strangers_words
from studio.pages.setup.page import SetupPage
from studio.pages.setup.preflight.gpu_memory import GROUPS, CardMemory, grouped
from studio.store.runs.gpus import CardWatch
from studio.store.runs.state import RunState
from studio.theme.theme import Theme
from studio.widgets.controls.buttons import Button
from tests.engine.hardware.models import write_headers
from tests.studio.conftest import Run
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.gpus import GB, card
from tests.studio.screenshots.pages import open_project, studio_on, wait_for

VLLM = changed_config(ProjectConfig(), {"backend.sampler": "vllm"})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_headers(tmp_path_factory.mktemp("models") / "llama-8b")


def fix_buttons(cards: CardMemory) -> dict[str, Button]:
    widgets = (cards._fixes.itemAt(i).widget() for i in range(cards._fixes.count()))
    return {button.accessibleName(): button for button in widgets}


def test_suggested_fix_makes_plan_fit_and_can_be_undone(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path, model: Path
) -> None:
    async def work() -> None:
        engine.add_project("inbox-scout")
        engine.project_store.cards, engine.project_store.model = (
            (card(total=24 * GB, ours=0),),
            model,
        )
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.resize(1280, 800)
            studio.window.show_page("setup")
            setup: Any = studio.pages["setup"]
            assert isinstance(setup, SetupPage)
            cards = setup._preflight.cards
            await wait_for(lambda: cards.isVisible() and bool(fix_buttons(cards)))
            assert setup._preflight._memory.isHidden()
            name = next(n for n in fix_buttons(cards) if n.startswith("Weights in 4 bits"))
            assert name.endswith("fits")
            fix_buttons(cards)[name].click()
            path = str(engine.workspace / "inbox-scout")
            await wait_for(lambda: backend(engine, path) == ("4bit", "unsloth"))
            await wait_for(lambda: not fix_buttons(cards))
            assert cards._undo.isVisible()
            cards._undo.click()
            await wait_for(lambda: backend(engine, path) == ("full", "torch"))
            await wait_for(lambda: bool(fix_buttons(cards)))
            assert cards._undo.isHidden()

    run(work())


def test_unsaved_field_changes_are_forecast(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path, model: Path
) -> None:
    async def work() -> None:
        engine.add_project("inbox-scout")
        engine.project_store.cards, engine.project_store.model = (
            (card(total=80 * GB, ours=0),),
            model,
        )
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.show_page("setup")
            setup: Any = studio.pages["setup"]
            await wait_for(lambda: bool(engine.project_store.forecasts))
            engine.project_store.forecasts.clear()
            setup._form._advanced.unfold(True)
            field = setup._form._advanced.rows["train.batch_tokens"].field
            engine.delay_s = 0.4  # the file is written after the forecast request
            for value in (3000, 4000, 5000):
                field.edited.emit(value)
            await wait_for(lambda: {"train.batch_tokens": 5000} in engine.project_store.forecasts)
            assert len(engine.project_store.forecasts) <= 2  # not one for each move
            await wait_for(lambda: engine.project_store.forecasts[-1] == {})
            field.edited.emit(1)  # rejected
            await wait_for(lambda: bool(setup._form._advanced.rows["train.batch_tokens"].problem()))
            assert setup._forecast is not None
            assert setup._edits.under_way() == {}

    run(work())


def backend(engine: FakeEngine, path: str) -> tuple[str, str]:
    config = engine.project_store.projects[path].config
    assert config is not None
    return config.backend.weights, config.backend.trainer


def test_grouped_parts_sum_to_plan(model: Path) -> None:
    plan = vram_plan(VLLM, model, [card(ours=0)])
    assert plan is not None
    (only,) = plan.cards
    for phase, total in (
        ("sampling_bytes", only.sampling_bytes),
        ("training_bytes", only.training_bytes),
    ):
        assert sum(size for _, size in grouped(only.parts, phase)) == total
    assert len({group.token for group in GROUPS}) == len(GROUPS)


def test_two_gpus_and_overlapping_phases_are_shown(qapp: QApplication, model: Path) -> None:
    Theme.install(qapp, mode="dark")
    widget = CardMemory()
    two = vram_plan(VLLM, model, [card(ours=0), card(1, ours=0)])
    both = vram_plan(changed_config(VLLM, {"train.staleness": 1}), model, [card(ours=0)])
    assert two is not None
    assert both is not None
    widget.show_plan(two)
    assert [block._rows[1].isHidden() for block in widget._cards] == [False, False]
    widget.show_plan(both)
    assert [block._rows[1].isHidden() for block in widget._cards] == [True]
    widget.deleteLater()


def tick(*cards: Any) -> e.ProgressTicked:
    return e.ProgressTicked(step=1, phase="training", done=0, total=1, cards=tuple(cards))


def test_gpu_history_is_kept_per_run() -> None:
    watch = CardWatch()
    assert watch.take("one", tick(card()))
    assert not watch.take("one", tick(card()))  # the same measurement, reported twice
    assert not watch.take("one", None)
    assert watch.take("one", tick(card(ours=12 * GB, used_bytes=None, busy_percent=None)))
    history = watch.cards["GPU-0"]
    assert history.memory[0] == 0.5
    assert math.isnan(history.memory[1])
    assert math.isnan(history.busy[1])
    watch.take("two", None)
    assert watch.cards == {}


def test_gpu_card_is_shown_only_for_runs_with_gpu(qapp: QApplication) -> None:
    Theme.install(qapp, mode="dark")
    widget, state = CardsCard(), RunState("r", status="running")
    widget.show_run(state)
    assert widget.isHidden()
    state.progress = tick(card(others=6 * GB))
    widget.show_run(state)
    assert not widget.isHidden()
    block = widget.findChild(CardBlock)
    assert block is not None
    assert block._memory.accessibleName() == "Memory 30.0 / 48.0 GB"
    assert block._power.accessibleName() == "Power 268 / 350 W"
    assert block._strangers.words() == "blender (process 4242) uses 6 GB."
    state.progress = tick(card(used_bytes=None, power_w=None, temperature_c=None))
    widget.show_run(state)
    assert block._memory.accessibleName() == "Memory \u2013"
    state.status = "finished"
    widget.show_run(state)
    assert widget.isHidden()
    widget.deleteLater()


def test_other_gpu_processes_are_named_if_known() -> None:
    nameless = CardProcess(pid=9, bytes=6_100_000_000)
    silent = CardProcess(pid=10)
    small = CardProcess(pid=11, bytes=4_000_000, name="Xorg")
    shown = strangers_words(card(processes=(nameless, silent, small)))
    assert shown.splitlines() == [
        "Another program (process 9) uses 6.1 GB.",
        "Another program (process 10) is using this GPU.",
    ]
    assert strangers_words(card()) == ""

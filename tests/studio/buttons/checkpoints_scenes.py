"""Button scenes of Checkpoints over a real engine: list, arena, evaluation, export."""

from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from studio.store.runs.chat import TurnPrompt
from tests.studio.buttons.stage import Row, Scene, Stage


async def open_checkpoints(stage: Stage) -> Any:
    await stage.open_run(stage.backend.lab, stage.backend.trained)
    page = stage.page("checkpoints")
    await stage.until(lambda: page._model.rows)
    return page


async def checkpoints_open(stage: Stage) -> None:
    await open_checkpoints(stage)


async def asking_name(stage: Stage) -> None:
    await open_checkpoints(stage)
    if not stage.dialog("Add a model to compare"):
        stage.press("Add a model")
        await stage.until(lambda: stage.dialog("Add a model to compare"))


async def named(stage: Stage) -> None:
    await asking_name(stage)
    dialog: Any = stage.dialog("Add a model to compare")
    dialog.field.set_value("openai/scripted")


async def deleting(stage: Stage) -> None:
    page = await open_checkpoints(stage)
    if not stage.dialog("Delete step "):
        page._list.delete_wanted.emit(1)
        await stage.until(lambda: stage.dialog("Delete step "))


async def pair(stage: Stage) -> Any:
    """Select two local checkpoints."""
    page = await open_checkpoints(stage)
    chosen = [row.name for row in page._model.chosen()]
    local_models = [row.name for row in page._model.rows if "/" not in row.name][:2]
    for name in [one for one in chosen if one not in local_models] + [
        n for n in local_models if n not in chosen
    ]:
        page._list.toggle_name(name)
    return page


async def talk(stage: Stage) -> None:
    await pair(stage)


async def answered(stage: Stage) -> None:
    """Both models have answered, without a vote."""
    page = await pair(stage)
    if not page._arena._talk.can_vote:
        QTest.keyClicks(page._arena._ask, "Say 1")
        QTest.keyClick(page._arena._ask, Qt.Key.Key_Return)
        await stage.until(lambda: page._arena._talk.can_vote, 90)


async def scenario_run(stage: Stage) -> None:
    """Both models have run a scenario, so a judge can score it."""
    page = await pair(stage)
    arena = page._arena
    talk = arena._talk
    for _ in range(3):  # repeat a question that could not be asked yet
        if talk.group is None:
            arena._try_scenario(arena._scenarios[0])
            await stage.until(lambda: talk.group is not None or not talk.asking, 90)
    assert talk.group is not None


async def prompted(stage: Stage) -> Any:
    """A prompt of a turn waits for responses."""
    page = await pair(stage)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say 1"}]
    page.open_prompt(TurnPrompt(messages, title="turn 1"))
    return page


async def editing_prompt(stage: Stage) -> None:
    page = await prompted(stage)
    await stage.until(page.prompt_sheet.isHidden)  # a previous sheet may still be closing
    page._arena._edit.click()
    await stage.until(page.prompt_sheet.is_open)


async def evaluated(stage: Stage) -> None:
    page = await pair(stage)
    await stage.until(lambda: page._evaluation.active is None, 60)
    await stage.until(lambda: page._evaluation.result is not None, 60)


async def export(stage: Stage) -> Any:
    page = await open_checkpoints(stage)
    sheet = page._export
    await stage.until(sheet.isHidden)  # a previous sheet may still be closing
    sheet._folder_edited = False
    page._list.want_export(1)
    await stage.until(lambda: sheet.is_open())
    return sheet


async def exporting(stage: Stage) -> None:
    sheet = await export(stage)
    if sheet._report is None:
        places = Path(stage.backend.workspace).parent / "exported"
        out = next(place for n in range(9) if not (place := places / f"adapter-{n}").exists())
        sheet._choose("adapter")
        sheet._folder.set_value(str(out))


async def exported(stage: Stage) -> None:
    await exporting(stage)
    sheet = stage.page("checkpoints")._export
    # wait for an export that is still running
    await stage.until(lambda: not sheet._tasks.busy("export"), 60)
    if sheet._report is None:
        await stage.press_when_reachable("Export adapter")
    await stage.until(lambda: sheet._report is not None, 60)


CHECKPOINTS = [
    Scene(
        "kept",
        checkpoints_open,
        [
            Row("ListCard._add", "shown Question Add a model to compare"),
            Row("ListCard._save", "shown ExportSheet"),
            Row("ArenaCard._how", "shown QMenu"),
        ],
    ),
    Scene("adding a model", asking_name, [Row("Question: Cancel", "hidden Question")]),
    Scene("a model is named", named, [Row("Question: Add", "words Table .*rows")]),
    Scene(
        "deleting",
        deleting,
        [
            Row("Question: Cancel", "hidden Question"),
            Row("Question: Delete", "DELETE .*/checkpoints/1"),
        ],
    ),
    Scene(
        "pair",
        talk,
        [Row("ArenaCard._try", "shown QMenu Say"), Row("ListCard.evaluate", "POST /evaluations")],
    ),
    Scene(
        "a prompt",
        prompted,
        [Row("ArenaCard._edit", "shown PromptSheet"), Row("ArenaCard._answer", "POST /arena")],
    ),
    Scene(
        "editing the prompt",
        editing_prompt,
        [
            Row("MessageEditor.remove", "hidden MessageEditor"),
            Row("PromptSheet._add", "shown MessageEditor"),
            Row("PromptSheet: Cancel", "hidden PromptSheet"),
            Row("PromptSheet: Apply", "hidden PromptSheet"),
            Row("PromptSheet: Close", "hidden PromptSheet"),
        ],
    ),
    Scene(
        "evaluated",
        evaluated,
        [
            Row("CompareCard.export", "shown QFileDialog Folder for the logs"),
            Row("CompareCard._open", "page trajectories"),
        ],
    ),
    Scene("tried", scenario_run, [Row("ArenaCard._judge", "POST /runs/.*/judge")]),
    Scene(
        "answered",
        answered,
        [
            Row("ArenaCard._left", "POST .*/labels .*"),
            Row("ArenaCard._right", "POST .*/labels .*"),
            Row("ArenaCard._tie", "POST .*/labels .*"),
        ],
    ),
    Scene(
        "voted",
        talk,
        [
            Row("ArenaCard._anew", "hidden SideColumn"),
            Row("ArenaCard._blind", "checked Toggle Blind"),
            Row("ArenaCard._blind", "unchecked Toggle Blind"),
        ],
    ),
    Scene(
        "exporting",
        exporting,
        [
            Row("PathField: Browse of ExportSheet", "shown QFileDialog Export destination"),
            Row("ExportSheet: Close", "hidden ExportSheet"),
            Row("ExportSheet._cancel", "hidden ExportSheet", "Cancel"),
            Row("ExportSheet._go", "POST .*/export"),
        ],
    ),
    Scene(
        "exported",
        exported,
        [Row("CommandBlock._copy of Commands", "copied "), Row("ExportSheet._go", "url file:")],
    ),
]

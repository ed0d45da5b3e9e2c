"""Button scenes of New project from a description, over a real engine and a writing provider."""

import time
from typing import Any

from tests.engine_http.test_authoring import PRICE, TASK, DraftWriter
from tests.studio.buttons.stage import Row, Scene, Stage

SLOWLY_S = 0.4


async def open_wizard(stage: Stage) -> Any:
    wizard = stage.studio.describing.sheet
    if not wizard.is_open():
        stage.page("home")
        stage.studio.actions.trigger("project.describe")
    return wizard


async def task(stage: Stage) -> None:
    wizard = await open_wizard(stage)
    fill_in_first_step(stage, wizard.task, "first")


def fill_in_first_step(stage: Stage, step: Any, name: str) -> None:
    """Fill in everything the first step asks for."""
    step.name.set_value(name)
    step.description.set_value(TASK)
    step.count.set_value(10)
    writer = step.writer
    writer.unfold(True)
    writer.model.set_value("openai/scripted")
    writer.url.set_value(stage.backend.script.url)
    writer.price_in.set_value(PRICE["price_prompt"])
    writer.price_out.set_value(PRICE["price_completion"])


async def draft_written(stage: Stage) -> Any:
    """Show a whole draft in the second step."""
    wizard = await open_wizard(stage)
    stage.backend.script.writes = DraftWriter()
    if wizard._at == "task":
        fill_in_first_step(stage, wizard.task, "second")
        wizard._press()
    elif wizard._at == "finish":
        wizard._step_back()
    await stage.until(lambda: wizard._at == "draft" and not wizard.writing, 40)
    wizard.draft.scenarios.table.selectRow(0)
    return wizard


async def draft(stage: Stage) -> None:
    await draft_written(stage)


async def writing(stage: Stage) -> None:
    """The provider is slow: drafts are still being written."""
    wizard = await open_wizard(stage)
    pen = DraftWriter()

    def slowly(messages: list[dict[str, str]]) -> str:
        time.sleep(SLOWLY_S)
        return pen(messages)

    stage.backend.script.writes = slowly
    if not wizard.writing:
        if wizard._at != "task":
            wizard._step_back()
        fill_in_first_step(stage, wizard.task, "third")
        wizard.task.count.set_value(60)
        wizard._press()
    await stage.until(lambda: wizard.writing and wizard.draft.has_content)


async def cut_off(stage: Stage) -> None:
    """Show a draft whose writing was cancelled."""
    wizard = await open_wizard(stage)
    await stage.until(lambda: not wizard.writing)


async def back_at_task(stage: Stage) -> None:
    wizard = await open_wizard(stage)
    if wizard._at != "task":
        wizard._step_back()


async def finish(stage: Stage) -> None:
    wizard = await open_wizard(stage)
    if wizard._at != "finish":
        await draft_written(stage)
        wizard._press()
    wizard.finish.learner.set_value(str(stage.backend.model))


DESCRIBING = [
    Scene(
        "task",
        task,
        [
            Row("DescribeSheet: Close", "hidden DescribeSheet"),
            Row("WriterFields._fold", "hidden FormRow"),
            Row("ToolsPart.wanted", "shown Button Choose an mcp.json"),
            Row("ToolsPart._file", "shown QFileDialog Choose an mcp.json"),
            Row("ToolsPart.wanted", "hidden Button Choose an mcp.json"),
            Row("DescribeSheet._main", "POST /drafts|POST .*draft", "Generate"),
        ],
    ),
    Scene(
        "draft",
        draft,
        [
            Row("ScenarioTable: Add", "words Table .*rows"),
            Row(
                "ScenarioTable: Training or validation",
                "words Text .* for training, 1 for validation",
            ),
            Row("ScenarioTable: Delete", "words Table .*rows"),
            Row("DescribeSheet._back", "shown Button Start over"),
        ],
    ),
    Scene("writing", writing, [Row("DescribeSheet._stop", "shown Button Generate more")]),
    Scene("cut off", cut_off, [Row("DescribeSheet._more", "POST .*draft")]),
    Scene("again", back_at_task, [Row("DescribeSheet._anew", "hidden Button Start over")]),
    Scene(
        "finish",
        finish,
        [
            Row("FinishStep.measure", "unchecked Toggle Measure the baseline"),
            Row("DescribeSheet._main", "PUT /drafts .*second|page setup", "Create", rest=True),
        ],
    ),
]

"""A project from a description, over a real engine and a provider that writes."""

import time
from typing import Any

from tests.engine_http.test_authoring import PRICE, TASK, Pen
from tests.studio.buttons.stage import Row, Scene, Stage

SLOWLY_S = 0.4


async def sheet(stage: Stage) -> Any:
    found = stage.studio.describing.sheet
    if not found.is_open():
        stage.page("home")
        stage.studio.actions.trigger("project.describe")
    return found


async def task(stage: Stage) -> None:
    shown = await sheet(stage)
    fields(stage, shown.task, "first")


def fields(stage: Stage, step: Any, name: str) -> None:
    """Everything that is asked for in the first step."""
    step.name.set_value(name)
    step.description.set_value(TASK)
    step.count.set_value(10)
    writer = step.writer
    writer.unfold(True)
    writer.model.set_value("openai/scripted")
    writer.url.set_value(stage.behind.script.url)
    writer.price_in.set_value(PRICE["price_prompt"])
    writer.price_out.set_value(PRICE["price_completion"])


async def written(stage: Stage) -> Any:
    """A whole draft, in the second step."""
    shown = await sheet(stage)
    stage.behind.script.writes = Pen()
    if shown._at == "task":
        fields(stage, shown.task, "second")
        shown._press()
    elif shown._at == "finish":
        shown._step_back()
    await stage.until(lambda: shown._at == "draft" and not shown.writing, 40)
    shown.draft.scenarios.table.selectRow(0)
    return shown


async def draft(stage: Stage) -> None:
    await written(stage)


async def writing(stage: Stage) -> None:
    """The provider takes its time."""
    shown = await sheet(stage)
    pen = Pen()

    def slowly(messages: list[dict[str, str]]) -> str:
        time.sleep(SLOWLY_S)
        return pen(messages)

    stage.behind.script.writes = slowly
    if not shown.writing:
        if shown._at != "task":
            shown._step_back()
        fields(stage, shown.task, "third")
        shown.task.count.set_value(60)
        shown._press()
    await stage.until(lambda: shown.writing and shown.draft.has_content)


async def cut_off(stage: Stage) -> None:
    """Open a run that was stopped in the middle."""
    shown = await sheet(stage)
    await stage.until(lambda: not shown.writing)


async def again(stage: Stage) -> None:
    shown = await sheet(stage)
    if shown._at != "task":
        shown._step_back()


async def finish(stage: Stage) -> None:
    shown = await sheet(stage)
    if shown._at != "finish":
        await written(stage)
        shown._press()
    shown.finish.learner.set_value(str(stage.behind.model))


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
    Scene("again", again, [Row("DescribeSheet._anew", "hidden Button Start over")]),
    Scene(
        "finish",
        finish,
        [
            Row("FinishStep.measure", "unchecked Toggle Measure the baseline"),
            Row("DescribeSheet._main", "PUT /drafts .*second|page setup", "Create", rest=True),
        ],
    ),
]

"""Button scenes of the Judge page over a real engine, a judge process and a local provider."""

import time
from typing import Any

from PySide6.QtTest import QTest

from engine.protocol.records.judging import Tried
from engine.protocol.records.labels import Label, Word
from engine.protocol.requests.runs import SaveRubric, StartRun, TryJudge
from studio.pages.judge.judge_settings import OTHER
from tests.studio.buttons.stage import Row, Scene, Stage

SLOWLY_S = 1.0


async def judge(stage: Stage) -> Any:
    """Open the page with the imported run, without a draft."""
    stage.backend.script.grade = stage.backend.letters
    await stage.open_run(stage.backend.lab, stage.backend.imported)
    page = stage.page("judge")
    await stage.until(lambda: page.editor.isEnabled())
    if page.editor.dirty:
        page.editor.discard()
    return page


async def plain(stage: Stage) -> None:
    page = await judge(stage)
    await stage.until(
        lambda: page.choice.price._button.isEnabled() and not page.tasks.busy("price")
    )


async def starters(stage: Stage) -> None:
    """Project without a rubric."""
    await stage.open_run(stage.backend.fresh)
    page = stage.page("judge")
    await stage.until(lambda: page.editor.isEnabled())
    if page.editor.dirty:
        page.editor.discard()


async def edited(stage: Stage) -> None:
    page = await judge(stage)
    QTest.keyClicks(page.editor.text, "Fewer digits. ")


async def slow(stage: Stage) -> None:
    """Rubric without cached verdicts, and a slow provider."""
    page = await judge(stage)
    QTest.keyClicks(page.editor.text, f"{time.time()} ")

    def grade(place: int, text: str) -> float:
        time.sleep(SLOWLY_S)
        return 0.5

    stage.backend.script.grade = grade
    await stage.until(lambda: "2 calls" in page.choice.price._button.accessibleName())
    stage.press("Re-judge 2 groups")


async def over_budget(stage: Stage) -> None:
    page = await judge(stage)
    await stage.edit_settings({"judge.budget_usd": 0.0001})
    QTest.keyClicks(page.editor.text, f"{time.time()} ")


async def naming(stage: Stage) -> None:
    """Judge model typed by hand."""
    page = await judge(stage)
    await stage.edit_settings({"judge.budget_usd": None})
    if not page.choice._use.isVisible():
        page.choice._pick.edited.emit(OTHER)
    page.choice._name.set_value("openai/scripted")


async def agreement_measured(stage: Stage) -> Any:
    """Two rubrics have judged, and a label contradicts an order."""
    page = await judge(stage)
    client, run = stage.session.client, stage.backend.imported
    if len(await client.agreement(run)) < 2 or not await _cases(stage):
        for source in ("More digits are better.\n", page.editor.source):
            rejudged: list[Tried] = [
                one async for one in client.try_judge(run, TryJudge(source=source))
            ]
        first = next(one for one in rejudged if one.group == 0)
        ranked = sorted(first.after, key=lambda name: first.after[name])
        word = Word(kind="order", order=tuple((name,) for name in ranked))
        await client.add_label(run, Label(id="turned", step=1, group=0, words=(word,), blind=True))
        stage.page("home")
        page = stage.page("judge")
    await stage.until(lambda: page.agreement._show.isVisible())
    return page


async def _cases(stage: Stage) -> list[Any]:
    client, run = stage.session.client, stage.backend.imported
    rows = await client.agreement(run)
    return list(await client.disagreements(run, rows[0].judge, rows[0].rubric)) if rows else []


async def agreement(stage: Stage) -> None:
    await agreement_measured(stage)


async def disagreements(stage: Stage) -> None:
    page = await agreement_measured(stage)
    if not page._sheet.is_open():
        page.agreement.disagreements_wanted.emit()


async def annotators(stage: Stage) -> None:
    page = await agreement_measured(stage)
    if not page._people.is_open():
        page.agreement.annotators_wanted.emit()
        await stage.until(lambda: page._people.is_open())


async def comparison(stage: Stage) -> None:
    page = await agreement_measured(stage)
    if not page._comparison.is_open():
        page.agreement.comparison_wanted.emit()


async def suggestion(stage: Stage) -> None:
    page = await agreement_measured(stage)
    if not page._suggestion.is_open():
        page.agreement.suggestion_wanted.emit()
        await stage.until(lambda: page._suggestion.is_open())


async def judging_run(stage: Stage) -> None:
    """Active run whose judge uses another rubric than the saved one."""
    page = await judge(stage)
    session = stage.session
    if page.editor._use.isVisible():
        return
    values = {"train.steps": 500, "train.validate_every": 0, "judge.enabled": True}
    session.start_run(StartRun(project=str(stage.backend.lab), overrides=values))
    await stage.until(lambda: session.run.state.active and session.run.state.rubric, 60)
    stage.page("judge")
    await session.client.save_rubric(str(stage.backend.lab), SaveRubric(source=f"{time.time()}"))
    stage.page("home")
    stage.page("judge")


JUDGE = [
    Scene(
        "starters",
        starters,
        [
            Row("StarterRubrics: Task completion", "enabled Button Discard"),
            Row("StarterRubrics: Answers from sources", "enabled Button Discard"),
            Row("StarterRubrics: Short text, no criteria", "enabled Button Discard"),
            Row("StarterRubrics: Conversation quality", "enabled Button Discard"),
            Row("StarterRubrics: Code changes", "enabled Button Discard"),
        ],
    ),
    Scene(
        "priced",
        plain,
        [
            Row("PriceButton._button of JudgeChoice", "POST /runs/.*/judge {"),
            Row("RubricEditor._as_sent", "shown QPlainTextEdit .*You compare attempts"),
            Row("RubricEditor._add", "enabled Button Discard"),
            Row("JudgeChoice._search", "GET /judges"),
            Row("GradingCard._by_queue", "checked Toggle Review queue order"),
            Row("GradingCard._by_queue", "unchecked Toggle Review queue order"),
            Row("GradingCard._next", "page trajectories"),
            Row("ToggleField._toggle of JudgeChoice", " /project .*judge.enabled"),
            Row("ToggleField._toggle of JudgeChoice", " /project .*judge.enabled"),
        ],
    ),
    Scene(
        "edited",
        edited,
        [
            Row("RubricEditor._discard", "disabled Button Discard"),
            Row("RubricEditor._save", "PUT /rubric|POST /rubric"),
        ],
    ),
    Scene(
        "versions",
        plain,
        [
            Row("RubricEditor._version", "shown QMenu Rubric 2 "),
            Row("RubricEditor._changes", "shown QPlainTextEdit"),
            Row("RubricEditor._changes", "shown CodeEditor"),
        ],
    ),
    Scene(
        "agreement",
        agreement,
        [
            Row("AgreementCard._show", "shown DisagreementSheet"),
            Row("AgreementCard._compare", "shown ComparisonSheet"),
            Row("AgreementCard._people", "shown AnnotatorSheet"),
            Row("AgreementCard._save", "shown QFileDialog Export labels"),
            Row("AgreementCard._load", "shown QFileDialog Import labels"),
            Row("AgreementCard._suggest", "shown SuggestionSheet"),
        ],
    ),
    Scene(
        "disagreements",
        disagreements,
        [
            Row("DisagreementSheet: Close", "hidden DisagreementSheet"),
            Row("Card: Open the group of DisagreementSheet", "page trajectories"),
        ],
    ),
    Scene("annotators", annotators, [Row("AnnotatorSheet: Close", "hidden AnnotatorSheet")]),
    Scene("comparison", comparison, [Row("ComparisonSheet: Close", "hidden ComparisonSheet")]),
    Scene(
        "suggestion",
        suggestion,
        [
            Row("SuggestionSheet: Close", "hidden SuggestionSheet"),
            Row("SuggestionSheet._take", "enabled Button Discard"),
        ],
    ),
    Scene(
        "judging",
        judging_run,
        [Row("RubricEditor._use", "POST .*/command .*use_rubric", rest=True)],
    ),
    Scene("slow", slow, [Row("PriceButton._cancel of JudgeChoice", "hidden IconButton Cancel")]),
    Scene("over budget", over_budget, [Row("PriceButton._raise of JudgeChoice", "page setup")]),
    Scene("naming", naming, [Row("JudgeChoice._use", " /project .*judge.models")]),
]

"""States of the window in which its buttons can be pressed, by page and scene.

A scene does what a person does before a button can be used. `every_button_rows.py` names the scene
of every button.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from PySide6.QtTest import QTest

from engine.protocol import events as e
from engine.protocol.machine import MemoryFix
from engine.protocol.problems import Problem
from engine.protocol.requests import StartEvaluation
from engine.protocol.tracking import TrackerList, TrackerView
from studio.app import Studio
from studio.pages.run.trackers import TrackersCard
from tests.studio import made_sft, shots_labels
from tests.studio.fake_engine import FakeEngine
from tests.studio.fake_hosts import UNREACHABLE, view
from tests.studio.shots import settle, wait_for

Scene = Callable[[Any, Studio, FakeEngine], Awaitable[None]]
"""Gets the page, which is in view."""


def page_of(studio: Studio, key: str) -> Any:
    """The page in view after showing it."""
    studio.window.show_page(key)
    return studio.pages[key]


async def plain(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await settle(0.6)


async def search(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await settle(0.3)
    line = page._search if hasattr(page, "_search") else page._panel.search
    QTest.keyClicks(line, "o")


# Setup


async def toml(page: Any, studio: Studio, engine: FakeEngine) -> None:
    page._choose(1)
    await settle(0.3)
    QTest.keyClicks(page._toml.editor, "# ")


async def scenarios(page: Any, studio: Studio, engine: FakeEngine) -> None:
    page._choose(2)
    await wait_for(lambda: page._scenarios.model.loaded)
    page._scenarios._add_row() if hasattr(page._scenarios, "_add_row") else None
    await settle(0.3)


async def demonstrations(page: Any, studio: Studio, engine: FakeEngine) -> None:
    engine.homes.demonstrations = made_sft.demonstrations()
    studio.actions.trigger("sft.open")
    await settle(0.6)


async def no_demonstrations(page: Any, studio: Studio, engine: FakeEngine) -> None:
    found = made_sft.Demonstrations(files=[made_sft.NOTHING], problem=made_sft.REFUSED)
    engine.homes.demonstrations = found
    studio.actions.trigger("sft.open")
    await settle(0.6)


async def teacher(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await demonstrations(page, studio, engine)
    studio.actions.trigger("sft.teacher")
    await settle(0.6)
    page._teacher.model.set_value("openai/gpt-5.4")
    page._teacher.model.edited.emit("openai/gpt-5.4")


async def advanced(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await settle(0.5)
    page._form._advanced._fold.click()
    page._form._backend._more.click()
    page._form._method._own.show()
    page._preflight.cards.offer_undo("rank = 8", {"model.rank": 16})
    fix = MemoryFix(words="rank = 8", values={"model.rank": 8}, peak_bytes=1, fits=True)
    page._preflight.cards._show_fixes([fix])
    await settle(0.3)


async def server_sheet(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await settle(0.5)
    page._tools.servers.add()
    await settle(0.5)


# Judge


async def priced(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await wait_for(lambda: "calls" in page.choice.price.accessibleName())


async def edited(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await priced(page, studio, engine)
    QTest.keyClicks(page.editor.text, "x")
    page.choice._ask_name(True)
    page._starter_box.show()


async def judging(page: Any, studio: Studio, engine: FakeEngine) -> None:
    engine.trials.pause_s = 0.2
    await priced(page, studio, engine)
    page.choice.price.pressed.emit()
    await settle(0.2)


async def over_budget(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await priced(page, studio, engine)
    page._soon.stop()
    page.choice.price.set_over_budget("Re-judge", "48 calls", "$0.31, $0.12 left")


async def disagreements(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await priced(page, studio, engine)
    page._sheet.open()
    await settle(0.5)


async def comparison(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await priced(page, studio, engine)
    page._comparison.open()
    await settle(0.5)


async def suggestion(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await priced(page, studio, engine)
    page._suggest()
    await settle(0.8)


# Run


async def log(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await settle(0.3)
    page.toggle_log()
    await settle(0.2)


async def branch(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await settle(0.3)
    page.open_branch()
    await settle(0.6)


async def review(page: Any, studio: Studio, engine: FakeEngine) -> None:
    run_id = page.session.run.run_id
    opened = e.ReviewOpened(step=47, until=time.time() + 1440, then="train")
    engine.runs[run_id].say(opened)
    await wait_for(lambda: not page._review.isHidden())


async def trackers(page: Any, studio: Studio, engine: FakeEngine) -> None:
    down = Problem(code="tracking.down", message="MLflow cannot be reached.")
    views = [
        TrackerView(name="wandb", state="in_step", url="https://wandb.ai/x"),
        TrackerView(name="mlflow", state="unsent", behind=2, problem=down),
    ]
    engine.tracking.views[page.session.run.run_id] = TrackerList(trackers=views)
    card: Any = page.findChild(TrackersCard)
    card.look()
    await wait_for(lambda: not card.isHidden())
    await settle(0.2)


async def away(page: Any, studio: Studio, engine: FakeEngine) -> None:
    run_id = page.session.run.run_id
    engine.servers.put(view(state="connected"))
    engine.servers.lives_on[run_id] = "box"
    engine.servers.meets["box"] = UNREACHABLE
    engine.summaries[run_id] = engine.summaries[run_id].model_copy(update={"host": "box"})
    studio.session.refresh()
    await settle(0.5)
    later = time.time() + 60
    engine.servers.change("box", state="reconnecting", failures=1, retry_at=later)
    await settle(0.6)


# Trajectories


def labels(*names: str) -> Scene:
    """The steps of tests.studio.shots_labels, one after another."""

    async def reach(page: Any, studio: Studio, engine: FakeEngine) -> None:
        shots_labels.engine = engine
        await wait_for(lambda: page._siblings is not None)
        page._home().setFocus()
        await settle(0.4)
        for name in names:
            await shots_labels.STATES[name](page)

    return reach


# Checkpoints


async def arena(page: Any, studio: Studio, engine: FakeEngine) -> None:
    engine._evaluate(StartEvaluation(project=str(engine.workspace / "inbox-scout")))
    studio.session.refresh()
    await settle(0.8)
    page._arena._ask.setText("Was the contract extended?")
    page._arena._put()
    await settle(1.2)


async def answering(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await settle(0.6)
    page._arena._ask.setText("Was the contract extended?")
    engine.held.add("POST /arena")
    page._arena._talk.asking = True
    page._arena._show()


async def export(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await settle(0.8)
    page._list.want_export(0)
    await settle(0.6)


async def fetching(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await settle(0.6)
    page._list._fetch.show()
    page._list._stop.show()


# Settings


async def settings(page: Any, studio: Studio, engine: FakeEngine) -> None:
    await settle(1.0)


SCENES: dict[str, Scene] = {
    "plain": plain,
    "search": search,
    "toml": toml,
    "scenarios": scenarios,
    "demonstrations": demonstrations,
    "no demonstrations": no_demonstrations,
    "teacher": teacher,
    "advanced": advanced,
    "server sheet": server_sheet,
    "priced": priced,
    "edited": edited,
    "judging": judging,
    "over budget": over_budget,
    "disagreements": disagreements,
    "comparison": comparison,
    "suggestion": suggestion,
    "log": log,
    "branch": branch,
    "review": review,
    "trackers": trackers,
    "away": away,
    "pending label": labels("pending"),
    "applied label": labels("pending", "asking", "committed"),
    "evidence": labels("sheet"),
    "raw": labels("sheet", "reader", "record", "raw"),
    "arena": arena,
    "answering": answering,
    "export": export,
    "fetching": fetching,
    "settings": settings,
}

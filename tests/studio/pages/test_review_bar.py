"""Review bar: shown on both pages, counts labelled groups, finishes the review."""

import time
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from engine.protocol.events import run as e
from engine.protocol.problems import Problem
from engine.protocol.requests.runs import TrajectoryQuery
from studio.pages.review_bar import review_words
from studio.pages.trajectories.views import COLUMNS
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.trajectories.labels.test_labels import (
    RUN,
    commit_label,
    press_key,
    trajectories_page,
    with_judged_run,
)

__all__ = ["with_judged_run"]


@pytest.mark.parametrize(
    ("until_s", "then", "told"),
    [
        (24 * 60, "train", "resumes automatically in 24 min"),
        (40, "pause", "pauses automatically in 40 s"),
        (-5, "train", "resumes automatically now"),
        (None, "train", "until you finish the review"),
    ],
)
def test_review_words(until_s: float | None, then: Any, told: str) -> None:
    end = None if until_s is None else 1000 + until_s
    review = e.ReviewOpened(step=12, until=end, then=then)
    words = "".join(span.words for span in review_words(review, (3, 8), 1000))
    assert words.startswith("Step 12 waits for your review")
    assert told in words
    assert words.endswith("3 of 8 groups labelled")


def test_review_is_opened_counted_and_finished(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            bar, made = page._review, with_judged_run.runs[RUN]
            assert bar.isHidden()
            made.say(e.ReviewOpened(step=2, until=time.time() + 600, then="train"))
            await until(lambda: not bar.isHidden())
            assert "Step 2 waits" in bar.words()
            bar._open.click()
            assert page._groups.query == TrajectoryQuery(split="train", step=2)
            assert page._view == COLUMNS
            await until(lambda: page._groups.is_loaded and page._siblings.group.step == 2)
            await until(lambda: not page.tasks.busy("siblings"))
            page._home().setFocus()
            press_key(page, Qt.Key.Key_F)
            await commit_label(page, with_judged_run, 1)
            await until(lambda: "1 of 3 groups labelled" in bar.words())
            studio.window.show_page("run")
            running: Any = studio.pages["run"]
            assert not running._review.isHidden()
            running._review._done.click()
            await until(lambda: bar.isHidden() and running._review.isHidden())
            assert [command.action for command in with_judged_run.commands] == ["reviewed"]

    run(job())


def test_failed_review_command_can_be_repeated(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            bar, made = page._review, with_judged_run.runs[RUN]
            made.say(e.ReviewOpened(step=2, until=None, then="train"))
            await until(lambda: not bar.isHidden())
            words = bar._done.accessibleName()
            path = f"/runs/{RUN}/command"
            with_judged_run.refuse[path] = Problem(code="run.locked", message="It is being copied.")
            bar._done.click()
            assert bar._done.is_busy()
            await until(lambda: "being copied" in studio.notifier.words())
            assert not bar._done.is_busy()
            assert bar._done.accessibleName() == words
            del with_judged_run.refuse[path]
            bar._done.click()
            assert bar._done.is_busy()
            await until(bar.isHidden)
            made.say(e.ReviewOpened(step=3, until=None, then="train"))
            await until(lambda: not bar.isHidden())
            assert not bar._done.is_busy()

    run(job())

"""Blind grading: scores are hidden until Enter and shown afterwards."""

import asyncio
from pathlib import Path
from typing import Any

from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.records.judging import Verdict
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import GroupSummary, Trajectory
from engine.protocol.requests.runs import Siblings
from studio.pages.trajectories.labels.blind_grading import agreement_words, blinded
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.trajectories.labels.test_labels import (
    SHIFT,
    Key,
    active_labels,
    press_key,
    trajectories_page,
    with_judged_run,
)
from tests.studio.screenshots.pages import open_project, studio_on

__all__ = ["with_judged_run"]


def group(*rewards: float) -> Siblings:
    attempts = [
        Trajectory(
            id=f"t{n}", split="train", step=1, group=0, index=n, scenario_id="s", title="s",
            reward=reward, advantage=reward, parts={"ruler": reward}, labels=("best",),
        )
        for n, reward in enumerate(rewards)
    ]  # fmt: skip
    summary = GroupSummary(
        split="train", step=1, group=0, scenario_id="s", title="s", rewards=list(rewards),
        mean=0.5, std=0.1, signal=True,
    )  # fmt: skip
    verdicts = [
        Verdict(trajectory_id=one.id, judge="a", rubric="r", score=one.reward) for one in attempts
    ]
    return Siblings(group=summary, trajectories=attempts, verdicts=verdicts)


def label(*words: Word) -> Label:
    return Label(id="x", step=1, group=0, words=words, blind=True)


def test_blinded_group_contains_no_scores_or_labels() -> None:
    bare = blinded(group(0.2, 0.9))
    assert not bare.verdicts
    assert not bare.labels
    text = bare.model_dump_json()
    assert all(figure not in text for figure in ("0.2", "0.9", "0.5", "ruler", "best"))
    assert [one.index for one in bare.trajectories] == [0, 1]


def test_agreement_is_reported_pair_by_pair() -> None:
    best = Word(kind="best", trajectory_id="t0")
    assert agreement_words(label(best), group(0.9, 0.2, 0.4)).startswith(
        "The judge agrees with you on all 2 pairs"
    )
    words = agreement_words(label(best), group(0.5, 0.2, 0.8))
    assert words.startswith(
        "The judge agrees with you on 1 of 2 pairs: it scores 3 at 0.80 and 1 at 0.50."
    )
    unjudged = group(0.9, 0.2).model_copy(update={"verdicts": []})
    assert agreement_words(label(best), unjudged).startswith(
        "The reward agrees with you on the pair"
    )
    flag = Word(kind="flag", trajectory_id="t0")
    assert "has not scored these pairs" in agreement_words(label(flag), group(0.9, 0.2))


def test_group_is_graded_blind_by_keys_then_revealed(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            press_key(page, Key.Key_B)
            await until(lambda: page._blind and page._labels.labelling.blind)
            await until(lambda: not page.tasks.busy("siblings"))
            heads = [column.head.accessibleName() for column in page._columns._columns]
            assert all("hidden until you label" in head for head in heads)
            assert not any("reward" in head or "judge" in head for head in heads)
            order = [one.index for one in page._columns.order()]
            assert order == sorted(order), "the order would reveal the ranks"
            assert page._panel.isHidden()
            assert not page._head._dots.isVisible()
            press_key(page, Key.Key_R)  # every other view would reveal scores
            assert page._view == 0
            press_key(page, Key.Key_2)
            press_key(page, Key.Key_1, SHIFT)
            await until(lambda: "Press Enter to see" in page._bar.sentence())
            assert not page._labels.labelling.outcomes(), "no preview: it would reveal scores"
            press_key(page, Key.Key_Return)
            await until(lambda: len(active_labels(with_judged_run)) == 1 and not page._blind)
            await until(lambda: "agrees with you on" in page._bar.sentence())
            (stored,) = active_labels(with_judged_run)
            assert (stored.blind, stored.effect) == (True, "none")
            heads = [column.head.accessibleName() for column in page._columns._columns]
            assert all("reward" in head for head in heads)
            assert page._panel.isVisible()

    run(job())


def test_judge_page_opens_group_blind(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    """The list of the page must not replace the group that was opened."""

    async def job() -> None:
        async with studio_on(with_judged_run, qapp, tmp_path) as studio:
            await open_project(studio, with_judged_run, "inbox-scout")
            studio.window.show_page("judge")
            lab: Any = studio.pages["judge"]
            await until(lambda: lab._groups)
            studio.window.activateWindow()
            await until(lambda: studio.window.isActiveWindow())
            lab.setFocus()
            QTest.keyClick(lab, Key.Key_B)
            page: Any = studio.pages["trajectories"]
            await until(lambda: page._siblings is not None and page.isVisible())
            await until(lambda: page._groups.total)
            await asyncio.sleep(0.2)
            assert page._blind
            assert page._labels.labelling.blind

    run(job())

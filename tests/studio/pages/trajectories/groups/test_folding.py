"""Identical trajectories share a column, and a label of it holds for all of them."""

from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from engine.protocol.records.conversations import Message
from engine.protocol.records.labels import Label, preferences
from engine.protocol.records.runs import Trajectory, TrajectorySummary
from studio.pages.trajectories.groups.folding import copies_of, folds_of
from studio.pages.trajectories.labels import wording
from studio.pages.trajectories.labels.draft import Draft
from tests.studio.conftest import Run, until
from tests.studio.fakes import labels as fake_labels
from tests.studio.fakes import reading
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import whole
from tests.studio.pages.trajectories.labels.test_labels import (
    Key,
    press_key,
    trajectories_page,
    with_judged_run,
)

__all__ = ["with_judged_run"]


def attempt(number: int, text: str, reward: float | None, call: str = "") -> Trajectory:
    function = {"name": "search", "arguments": "{}"}
    calls = [{"id": call, "type": "function", "function": function}] if call else []
    return Trajectory(
        id=f"t{number}", split="train", step=3, group=0, index=number - 1, scenario_id="s",
        title="t", reward=reward, messages=[
            Message(role="user", content="Where?"),
            Message(role="assistant", content=text, tool_calls=calls),
        ],
    )  # fmt: skip


GROUP = [
    attempt(1, "Here", 0.5),
    attempt(2, "There", 0.1),
    attempt(3, "Here", 0.5),
    attempt(4, "Here", 0.7),
]
NUMBERS = {one.id: one.index + 1 for one in GROUP}


def numbers(group: list[Trajectory], folded: bool = True) -> list[list[int]]:
    return [[one.index + 1 for one in fold.records] for fold in folds_of(group, folded)]


def test_odd_one_out_comes_before_most_of_a_group() -> None:
    assert numbers(GROUP) == [[2], [1, 3, 4]]
    assert numbers(GROUP, folded=False) == [[4], [1], [3], [2]]
    best_pair = [attempt(1, "a", 0.9), attempt(2, "a", 0.9), attempt(3, "b", 0.2)]
    assert numbers([*best_pair, attempt(4, "c", 0.4)]) == [[1, 2], [4], [3]]


def test_ids_of_tool_calls_do_not_make_a_difference_but_a_missing_reward_does() -> None:
    same = [attempt(1, "a", 0.5, "call_1"), attempt(2, "a", 0.5, "call_2"), attempt(3, "a", None)]
    assert numbers(same) == [[3], [1, 2]]


def test_fold_tells_its_members_and_their_rewards() -> None:
    alone, fold = folds_of(GROUP)
    assert fold.words() == "3 identical: 1, 3 and 4, rewards 0.50 to 0.70"
    assert alone.reward_words() == ""


@pytest.mark.parametrize(
    ("draft", "words", "pairs"),
    [
        (Draft().as_best("t2"), "2 labelled best", {("t2", n) for n in ("t1", "t3", "t4")}),
        (Draft().as_best("t1"), "1, 3 and 4 tied for best",
         {(n, "t2") for n in ("t1", "t3", "t4")}),
        (Draft().as_worst("t1"), "1, 3 and 4 tied for worst",
         {("t2", n) for n in ("t1", "t3", "t4")}),
        (Draft().as_best("t1").as_worst("t2"), "1, 3 and 4 tied for best, 2 labelled worst",
         {(n, "t2") for n in ("t1", "t3", "t4")}),
    ],
)  # fmt: skip
def test_label_of_a_fold_holds_for_all_its_members(
    draft: Draft, words: str, pairs: set[tuple[str, str]]
) -> None:
    said = draft.words(GROUP, copies_of(folds_of(GROUP)))
    label = Label(id="l", step=3, group=0, words=said)
    assert set(preferences(label.words, list(NUMBERS))) == pairs
    assert wording.gist(label, NUMBERS) == words


def test_rank_score_and_veto_of_a_fold() -> None:
    copies = copies_of(folds_of(GROUP))
    ranked = Draft().ranked(["t2", "t1"]).words(GROUP, copies)
    assert ranked[0].order == (("t2",), ("t1", "t3", "t4"))
    given = Draft().scored("t1", 0.4).marked("t1", "veto").marked("t1", "gold").words(GROUP, copies)
    assert [(word.kind, word.trajectory_id) for word in given] == [
        *[("score", name) for name in ("t1", "t3", "t4")],
        ("veto", "t1"),
        ("gold", "t1"),
        ("veto", "t3"),
        ("veto", "t4"),
    ]


def test_columns_fold_and_unfold(
    with_judged_run: FakeEngine,
    run: Run,
    qapp: QApplication,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All trajectories but the third say the same."""

    def alike(summary: TrajectorySummary) -> Trajectory:
        full = whole(summary)
        said = "Nowhere." if summary.index == 2 else "In the hall."
        messages = [*full.messages[:2], Message(role="assistant", content=said)]
        return full.model_copy(update={"messages": messages})

    for module in (reading, fake_labels):
        monkeypatch.setattr(module, "whole", alike)

    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            columns, head = page._columns, page._head
            total = len(page._siblings.trajectories)
            await until(lambda: head._fold.isVisible())
            assert columns.order()[0].index == 2
            assert len(columns.order()) == 2
            spoken = columns._columns[1].head.accessibleName()
            assert "3 identical: 1, 2 and 4" in spoken
            press_key(page, Key.Key_4)  # folded into the first
            assert page._labels.labelling.draft.best == (columns.order()[1].id,)
            await until(lambda: page._labels.labelling.preview is not None)
            outcomes = page._labels.labelling.outcomes()
            third = outcomes[2].new_reward
            assert all(one.new_reward > third for one in outcomes if one.index != 2)
            head._fold.link_activated.emit("fold")
            assert len(columns.order()) == total
            assert not page._labels.labelling.draft, "its columns are gone"
            head._fold.link_activated.emit("fold")
            assert len(columns.order()) == 2

    run(job())

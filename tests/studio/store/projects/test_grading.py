"""Order of groups for grading: new ones, informative ones, and occasionally a repeat."""

import random

from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import GroupSummary
from studio.store.projects.grading import REPEAT_EVERY, graded, half_width, next_group


def group(number: int, rewards: tuple[float | None, ...] = (0.1, 0.2)) -> GroupSummary:
    return GroupSummary(
        split="train", step=1, group=number, scenario_id="s", title="s", rewards=list(rewards),
        mean=0.1, std=0.1, signal=len(set(rewards)) > 1,
    )  # fmt: skip


def label(number: int, blind: bool = True) -> Label:
    word = Word(kind="best", trajectory_id="t")
    return Label(id=f"l{number}", step=1, group=number, words=(word,), blind=blind)


def pick(groups: list[GroupSummary], labels: list[Label]) -> int | None:
    choice = next_group(groups, labels, random.Random(0))
    return choice[2] if choice else None


def test_new_and_informative_groups_come_first() -> None:
    unscored = group(0, (None, None))
    assert pick([unscored, group(1)], []) == 1
    assert pick([group(0), group(1)], [label(1)]) == 0
    assert pick([unscored, group(1)], [label(1)]) == 0
    assert pick([group(1)], [label(1, blind=False)]) == 1, (
        "a label that was not blind does not count"
    )
    assert pick([], []) is None


def test_groups_with_equal_rewards_are_left_out() -> None:
    equal, alone = group(0, (0.4, 0.4, None)), group(1, (None,))
    assert pick([equal, alone], []) is None
    assert pick([equal, alone, group(2)], []) == 2


def test_graded_group_is_repeated_once_now_and_then() -> None:
    groups = [group(n) for n in range(9)]
    labels = [label(n) for n in range(REPEAT_EVERY - 1)]
    assert pick(groups, labels) == 0
    assert pick(groups, [*labels, label(0)]) not in (0, 1, 2)
    assert graded([*labels, label(0)]) == [("train", 1, n) for n in range(3)]


def test_groups_are_repeated_once_when_all_are_graded() -> None:
    groups = [group(0), group(1)]
    assert pick(groups, [label(0), label(1)]) == 0
    assert pick(groups, [label(0), label(1), label(0), label(1)]) is None


def test_half_width_shrinks_with_square_root_of_groups() -> None:
    assert half_width(5, 0.2, 15) == 0.1

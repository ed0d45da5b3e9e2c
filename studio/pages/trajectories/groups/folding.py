"""Folds of identical trajectories of a group (pure)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.protocol.identical import first_of_identical
from engine.protocol.records.runs import Trajectory
from studio.text import formatting

Copies = Mapping[str, tuple[str, ...]]
"""Id of the first of several identical trajectories → ids of all of them, in the group's order."""


@dataclass(frozen=True)
class Fold:
    """Identical trajectories, shown as one: the first stands for all."""

    records: tuple[Trajectory, ...]

    @property
    def first(self) -> Trajectory:
        return self.records[0]

    def words(self) -> str:
        """Describe the trajectories of a fold: "7 identical: 2, 3, 4, 5, 6, 7 and 8", with their
        rewards if they differ."""
        numbers = [str(one.index + 1) for one in self.records]
        listed = f"{', '.join(numbers[:-1])} and {numbers[-1]}"
        return f"{len(numbers)} identical: {listed}{self.reward_words()}"

    def reward_words(self) -> str:
        """Return the range of the rewards if they differ, else an empty text."""
        rewards = [one.reward for one in self.records if one.reward is not None]
        if not rewards or max(rewards) - min(rewards) < 1e-9:
            return ""
        return f", rewards {formatting.number(min(rewards))} to {formatting.number(max(rewards))}"


def folds_of(siblings: Sequence[Trajectory], folded: bool = True) -> list[Fold]:
    """Return a group's folds in display order: highest reward first, but a fold of more than half
    of the group last. A fold holds identical trajectories, either scored or unscored ones; if
    `folded` is false, each trajectory is its own fold."""
    first = first_of_identical(siblings)
    found: dict[tuple[str, bool], list[Trajectory]] = {}
    for one in siblings:
        key = (first[one.id] if folded else one.id, one.reward is None)
        found.setdefault(key, []).append(one)
    folds = [Fold(tuple(records)) for records in found.values()]
    half = len(siblings) / 2
    return sorted(folds, key=lambda fold: (len(fold.records) > half, -_reward(fold.first)))


def copies_of(folds: Sequence[Fold]) -> dict[str, tuple[str, ...]]:
    """Map the id of the first trajectory of each fold with several ones to the ids of all of
    them."""
    return {
        fold.first.id: tuple(one.id for one in fold.records)
        for fold in folds
        if len(fold.records) > 1
    }


def _reward(record: Trajectory) -> float:
    return record.reward if record.reward is not None else float("-inf")

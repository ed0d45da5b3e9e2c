"""Views of the Trajectories page, with the shortcuts muted in each."""

from collections.abc import Iterable

from engine.protocol.records.runs import GroupSummary, Split
from studio.actions.keymap import TRAJECTORIES

MODES = ("Columns", "Reader", "Table", "Compare", "Scenarios")
COLUMNS, READER, TABLE, COMPARE, SCENARIOS = range(5)


def muted_in(mode: int) -> set[str]:
    """Return the ids of shortcuts to disable in a view (`COLUMNS`, `READER`, …), because it lacks
    the action or handles the key itself."""
    moves = {"view.group_before", "view.group_after"}
    if mode == COLUMNS:
        return {"view.chat"}
    if mode == READER:
        return moves
    if mode == COMPARE:
        return moves | {"view.chat"}
    labels = {row.id for row in TRAJECTORIES if row.id.startswith("label.")} - {"label.discard"}
    labels -= {"label.undo", "label.redo"}
    return labels | moves | {"view.before", "view.after", "view.chat"}


def key_of(group: GroupSummary) -> tuple[Split, int, int]:
    """Return split, step and number of a group."""
    return group.split, group.step, group.group


def total_of(rewards: Iterable[float | None]) -> float:
    """Return the sum of the rewards, without the unscored (None)."""
    return sum(reward for reward in rewards if reward is not None)

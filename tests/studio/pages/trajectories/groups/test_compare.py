"""Comparison of two trajectories, aligned turn by turn."""

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import Trajectory
from studio.pages.trajectories.groups.alignment import differences, rows_of
from studio.pages.trajectories.groups.compare import base_of
from studio.pages.trajectories.views import COLUMNS, COMPARE
from tests.studio.conftest import Run
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.trajectories.labels.test_labels import (
    press_key,
    trajectories_page,
    with_judged_run,
)

__all__ = ["with_judged_run"]
Key = Qt.Key


def call(name: str, arguments: str = "{}", number: int = 0) -> Message:
    function = {"name": name, "arguments": arguments}
    return Message(role="assistant", tool_calls=[{"id": f"c{number}", "function": function}])


def trajectory(number: int, *messages: Message, reward: float | None = 0.5) -> Trajectory:
    return Trajectory(
        id=f"t{number}", split="train", step=1, group=0, index=number - 1, scenario_id="s",
        title="t", reward=reward, messages=[Message(role="user", content="q"), *messages],
    )  # fmt: skip


def test_turns_are_aligned_by_tool_calls() -> None:
    answer = Message(role="assistant", content="Done.")
    left = trajectory(1, call("search"), call("read", '{"id": 1}'), answer)
    right = trajectory(2, call("read", '{"id": 2}'), answer)
    rows = rows_of(left, right)
    titles = [(row.left and row.left.title, row.right and row.right.title) for row in rows]
    assert titles == [
        ("User", "User"),
        ("Turn 1", None),
        ("search", None),
        ("Turn 2", "Turn 1"),
        ("read", "read"),
        ("Turn 3", "Turn 2"),
    ]
    assert differences(rows) == [1, 2, 4]


def test_results_are_paired_also_for_thousands_of_turns() -> None:
    result = Message(role="tool", content="4 emails", tool_call_id="c0")
    rows = rows_of(trajectory(1, call("a"), result), trajectory(2, call("a"), result))
    assert [row.same for row in rows] == [True] * 4
    many = [call("a", number=n) for n in range(2000)]
    assert len(rows_of(trajectory(1, *many), trajectory(2, *many[:-1]))) == 1 + 2 * 2000


def test_base_is_best_trajectory_or_previously_focused() -> None:
    best, middle, failed = trajectory(1, reward=0.9), trajectory(2), trajectory(3, reward=None)
    group = [best, middle, failed]
    assert base_of(group, middle, None) is best
    assert base_of(group, failed, "t2") is best
    assert base_of(group, best, "t3") is failed
    assert base_of(group, best, None) is middle
    assert base_of([best], best, None) is None


def test_c_opens_comparison_and_arrows_navigate(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            press_key(page, Key.Key_Right)
            press_key(page, Key.Key_C)
            assert page._view == COMPARE
            best = page._columns.order()[0].id
            assert page._compare._shown == (best, page._columns.record().id)
            press_key(page, Key.Key_D)
            assert page._compare.rows._at >= 0
            press_key(page, Key.Key_Right)
            assert page._compare._shown == (best, page._columns.record().id)
            press_key(page, Key.Key_V)
            assert page._labels.labelling.draft, "labelling is possible while comparing"
            assert not page._bar.isHidden()
            press_key(page, Key.Key_Escape)
            press_key(page, Key.Key_C)
            assert page._view == COLUMNS

    run(job())

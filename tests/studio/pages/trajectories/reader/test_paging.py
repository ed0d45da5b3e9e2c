"""The reader turns to the next trajectory, the columns to the next screen of them."""

from pathlib import Path

from PySide6.QtWidgets import QApplication

from studio.pages.trajectories.views import COLUMNS, READER
from tests.studio.conftest import Run
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.trajectories.labels.test_labels import trajectories_page, with_judged_run

__all__ = ["with_judged_run"]


def test_reader_turns_one_trajectory_at_a_time(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            page.set_mode(READER)
            numbers = [one.index + 1 for one in page._columns.order()]
            assert page._head._shown.words() == f"{numbers[0]} of {len(numbers)}"
            page._head.paged.emit(1)
            assert page._reader._shown.record.index + 1 == numbers[1]
            assert page._head._shown.words() == f"{numbers[1]} of {len(numbers)}"
            page.set_mode(COLUMNS)
            assert page._head._shown.words().startswith(f"{numbers[0]}, {numbers[1]}")

    run(job())

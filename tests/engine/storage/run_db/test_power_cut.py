"""A power cut at any moment takes nothing that was acknowledged."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.protocol.events.run import LogWritten
from engine.storage.run_db.writer import RunWriter
from tests.engine.storage.run_db.power_cut import cut, record
from tests.engine.storage.run_db.test_store import trajectory

CUTS = 400


async def work(writer: RunWriter, tell: Callable[[str], None]) -> None:
    """Events and rows, in commits of one and of many."""

    async def say(word: str) -> None:
        await writer.say(LogWritten(level="info", source="t", text=word))
        tell(word)

    for number in range(40):
        await asyncio.gather(*(say(f"{number}.{place}") for place in range(1 + number % 4)))
        await writer.add_trajectory(trajectory(number, words="tell me more " * 40))


@pytest.fixture
def cuts(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "live").mkdir()
    (tmp_path / "cut").mkdir()
    return tmp_path / "live", tmp_path / "cut"


def test_nothing_acknowledged_is_lost(cuts: tuple[Path, Path]) -> None:
    recorder = record(cuts[0], work)
    assert not cut(recorder, cuts[1], CUTS, seed=1)


@pytest.mark.parametrize("pragma", ["synchronous = OFF", "synchronous = NORMAL"])
def test_the_harness_can_fail(cuts: tuple[Path, Path], pragma: str) -> None:
    recorder = record(cuts[0], work, pragma)
    assert cut(recorder, cuts[1], 60, seed=1)

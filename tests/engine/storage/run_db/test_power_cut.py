"""A power cut at any moment loses nothing that was acknowledged."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.protocol.events.run import LogWritten
from engine.storage.run_db.writer import RunWriter
from tests.engine.storage.run_db.power_cut import cut, record
from tests.engine.storage.run_db.test_store import trajectory

CUTS = 400


async def work(writer: RunWriter, acknowledge: Callable[[str], None]) -> None:
    """Write events and rows, in single and grouped commits."""

    async def log(text: str) -> None:
        await writer.say(LogWritten(level="info", source="t", text=text))
        acknowledge(text)

    for number in range(40):
        await asyncio.gather(*(log(f"{number}.{index}") for index in range(1 + number % 4)))
        await writer.add_trajectory(trajectory(number, words="tell me more " * 40))


@pytest.fixture
def cuts(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "live").mkdir()
    (tmp_path / "cut").mkdir()
    return tmp_path / "live", tmp_path / "cut"


def test_acknowledged_writes_survive_power_cuts(cuts: tuple[Path, Path]) -> None:
    recorder = record(cuts[0], work)
    assert not cut(recorder, cuts[1], CUTS, seed=1)


@pytest.mark.parametrize("pragma", ["synchronous = OFF", "synchronous = NORMAL"])
def test_power_cut_harness_detects_losses_without_full_sync(
    cuts: tuple[Path, Path], pragma: str
) -> None:
    recorder = record(cuts[0], work, pragma)
    assert cut(recorder, cuts[1], 60, seed=1)

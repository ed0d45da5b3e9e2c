"""Short run of every fuzz target, and tests of the runner."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import strategies as st

from tests.fuzz import runner
from tests.fuzz.runner import names, run

SHORT_S = 2.0


@pytest.mark.parametrize("name", names())
def test_target_has_no_crash_no_hang_and_no_file_outside(name: str) -> None:
    result = run(name, SHORT_S, seed=int(time.time()))
    print(result)
    assert not result.crashes, next(iter(result.crashes.values())).trace
    assert result.executions > 10
    assert result.refused < result.executions, "the target refuses everything, and tests nothing"
    assert result.outside == 0
    assert result.slowest_s < 5, repr(result.slowest)[:2000]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    module = ModuleType("fake")
    module.REFUSALS = (ValueError,)  # type: ignore[attr-defined]
    module.seeds = lambda: [b"seed"]  # type: ignore[attr-defined]
    monkeypatch.setattr(runner, "load", lambda name: module)
    return module


def test_crashes_are_grouped_by_place_and_refusals_do_not_count(fake: ModuleType) -> None:
    def execute(data: bytes) -> None:
        if data == b"seed":
            raise ValueError("refused")
        raise KeyError(data)

    fake.execute = execute  # type: ignore[attr-defined]
    result = run("fake", 0.2)
    assert result.refused >= 1
    assert result.crashed > 1
    assert len(result.crashes) == 1


def test_write_outside_is_prevented_and_counted(fake: ModuleType, tmp_path: Path) -> None:
    def execute(data: bytes, folder: Path) -> None:
        (folder / "inside").write_bytes(data)
        (folder / ".." / "escaped").write_bytes(data)

    fake.execute = execute  # type: ignore[attr-defined]
    result = run("fake", 0.2)
    assert result.outside == result.executions


def test_slow_execution_counts_as_hang(fake: ModuleType) -> None:
    fake.SLOW_S = 0.01  # type: ignore[attr-defined]
    fake.execute = lambda data: time.sleep(0.05)  # type: ignore[attr-defined]
    result = run("fake", 0.1)
    assert result.hangs == result.executions
    assert result.slowest_s >= 0.05


def test_runner_supports_strategy_and_coroutine(fake: ModuleType) -> None:
    inputs = []

    async def execute(data: int) -> None:
        inputs.append(data)

    fake.STRATEGY = st.integers()  # type: ignore[attr-defined]
    fake.execute = execute  # type: ignore[attr-defined]
    result = run("fake", 0.3)
    assert result.executions == len(inputs) > 10
    assert not result.crashes

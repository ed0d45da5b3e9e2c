"""Number of compute threads."""

import os

import pytest

from engine.hardware.machine import threads


@pytest.mark.parametrize(("value", "count"), [("1", 1), ("3", 3), (" 4,2", 4)])
def test_omp_num_threads_sets_the_thread_count(
    monkeypatch: pytest.MonkeyPatch, value: str, count: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert threads() == count


@pytest.mark.parametrize("value", ["", "0", "all", "-1"])
def test_invalid_omp_num_threads_falls_back_to_available_cores(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert 1 <= threads() <= (os.cpu_count() or 1)

"""How many threads compute."""

import os

import pytest

from engine.hardware.machine import threads


@pytest.mark.parametrize(("said", "count"), [("1", 1), ("3", 3), (" 4,2", 4)])
def test_who_says_how_many_is_heard(monkeypatch: pytest.MonkeyPatch, said: str, count: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert threads() == count


@pytest.mark.parametrize("said", ["", "0", "all", "-1"])
def test_else_all_that_we_may_use(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert 1 <= threads() <= (os.cpu_count() or 1)

"""Counts of killed and survived mutants in `bootstrap.py mutants`."""

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BLEND = "engine.reward.blend.x_blend__mutmut_"
SERIES = "studio.store.runs.series.xǁSeriesǁ__iter____mutmut_1"


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Module packaging/mutants.py; packaging is not a package."""
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))
    before = set(sys.modules)
    yield importlib.import_module("mutants")
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_module_of_mutant(mutants: Any) -> None:
    assert mutants.module_of(f"{BLEND}3") == "engine.reward.blend"
    assert mutants.module_of(SERIES) == "studio.store.runs.series"


@pytest.mark.parametrize(
    ("status", "found", "missed"),
    [
        ("killed", 1, 0),
        ("timeout", 1, 0),
        ("segfault", 1, 0),
        ("suspicious", 1, 0),
        ("caught by type check", 1, 0),
        ("survived", 0, 1),
        ("no tests", 0, 1),
        ("not checked", 0, 0),
        ("skipped", 0, 0),
        ("check was interrupted by user", 0, 0),
    ],
)
def test_status_counts_as_killed_survived_or_neither(
    mutants: Any, status: str, found: int, missed: int
) -> None:
    counted = mutants.count([f"    {BLEND}3: {status}\n"], [])
    assert counted == (
        Counter({"engine.reward.blend": found} if found else {}),
        Counter({"engine.reward.blend": missed} if missed else {}),
        [f"{BLEND}3"] if missed else [],
    )


def test_mutants_are_counted_by_module(mutants: Any) -> None:
    lines = [
        f"    {BLEND}1: killed",
        f"    {BLEND}2: survived",
        f"    {BLEND}3: timeout",
        f"    {SERIES}: no tests",
        "",
    ]
    blend, series = "engine.reward.blend", "studio.store.runs.series"
    assert mutants.count(lines, []) == (
        {blend: 2}, {blend: 1, series: 1}, [f"{BLEND}2", SERIES]
    )  # fmt: skip
    assert mutants.count(lines, [blend]) == ({blend: 2}, {blend: 1}, [f"{BLEND}2"])
    assert mutants.count(lines, ["engine.reward"]) == ({}, {}, [])


def test_share_of_killed_mutants(mutants: Any) -> None:
    assert [mutants.share(*counts) for counts in ((3, 1), (0, 4), (4, 0))] == [0.75, 0.0, 1.0]

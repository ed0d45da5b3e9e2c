"""Metric names accepted by an MLflow server."""

import posixpath
import re

import pytest

from engine.integrations.trackers.sinks.mlflow_names import LONGEST, named


@pytest.mark.parametrize(
    "name", ["reward/mean", "time_s/rolling_out", "script/val/a b: c-d.e", "ä"]
)
def test_valid_name_is_unchanged(name: str) -> None:
    assert named(name) == name


@pytest.mark.parametrize(
    "name",
    ["reward/part/pass@1", "script/val//x", "script/val/../x", "/x", "x/", ".", "a" * 300, "a\nb"],
)
def test_invalid_name_is_replaced_by_a_valid_one(name: str) -> None:
    replaced = named(name)
    assert re.fullmatch(r"[/\w.\- :]+", replaced)
    assert posixpath.normpath(replaced) == replaced
    assert not replaced.startswith(("..", "/"))
    assert len(replaced) <= LONGEST
    assert named(replaced) == replaced


def test_different_names_stay_different() -> None:
    names = ["pass@1", "pass#1", "pass_1", "a" * 300, "a" * 299 + "b"]
    assert len({named(name) for name in names}) == len(names)
    assert named("reward/part/pass@1").startswith("reward/part/pass_1-")

"""Names as an MLflow server takes them."""

import posixpath
import re

import pytest

from engine.integrations.trackers.sinks.mlflow_names import LONGEST, named


@pytest.mark.parametrize(
    "name", ["reward/mean", "time_s/rolling_out", "script/val/a b: c-d.e", "ä"]
)
def test_what_it_takes_stays_as_it_is(name: str) -> None:
    assert named(name) == name


@pytest.mark.parametrize(
    "name",
    ["reward/part/pass@1", "script/val//x", "script/val/../x", "/x", "x/", ".", "a" * 300, "a\nb"],
)
def test_what_it_refuses_goes_under_a_name_that_it_takes(name: str) -> None:
    taken = named(name)
    assert re.fullmatch(r"[/\w.\- :]+", taken)
    assert posixpath.normpath(taken) == taken
    assert not taken.startswith(("..", "/"))
    assert len(taken) <= LONGEST
    assert named(taken) == taken


def test_two_names_stay_two() -> None:
    names = ["pass@1", "pass#1", "pass_1", "a" * 300, "a" * 299 + "b"]
    assert len({named(name) for name in names}) == len(names)
    assert named("reward/part/pass@1").startswith("reward/part/pass_1-")

"""Command `atelier bench`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.bench.atelier import items_of, per_turn
from engine.bench.work import multi_turn, parse_shape

ROOT = Path(__file__).parents[3]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engine", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.long
def test_trl_gradients_agree_and_both_are_timed(tiny_model):
    done = bench(
        *("--against", "trl", "--model", str(tiny_model), "--shape", "24,6,4,2"),
        *("--dtype", "float32", "--repeats", "1", "--no-growth", "--json"),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    replay, live = report["replay"]["24/6/4/2"], report["live"]["24/6/4/2"]
    assert replay["gradient_error_vs_trl_best"] <= 1e-5
    for comparison in (replay, live):
        assert comparison["ratio_vs_trl_best"] > 0
        assert comparison["ratio_vs_trl_defaults"] > 0
        assert set(comparison["contenders"]) == {"atelier", "trl_best", "trl_defaults"}
        assert all(one["seconds"] > 0 for one in comparison["contenders"].values())


@pytest.mark.parametrize("shape", ["256,64", "a,b,c,d", "256,64,1,2", "0,1,2,3"])
def test_invalid_shape_is_reported_in_one_sentence(shape):
    done = bench("--shape", shape)
    assert done.returncode == 2
    assert repr(shape) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_shape_is_parsed_and_printed():
    assert parse_shape("256,64,8,2").words == "256/64/8/2"


def test_per_turn_rows_train_the_same_tokens():
    trajectories = multi_turn(100, base=10, turns=3, answer=4, observation=5, group=2, seed=0)
    trees, rows = items_of(trajectories), per_turn(trajectories)
    assert len(trees) == 2
    assert len(rows) == 6
    assert [len(row.tokens) for row in rows[:3]] == [14, 23, 32]
    assert sum(map(_trained, trees)) == sum(map(_trained, rows)) == 24


def _trained(item):
    return sum(end - start for start, end in item.spans)

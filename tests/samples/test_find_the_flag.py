"""Sample find_the_flag: reward, prompt and held-out flags."""

import asyncio
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.samples.conftest import (
    SAMPLES,
    Scripted,
    assert_make_data_is_reproducible,
    lines_of,
    load_module,
)

FOLDER = SAMPLES / "find_the_flag"


@pytest.fixture(scope="module")
def walk() -> ModuleType:
    return load_module(FOLDER, "agent")


@pytest.mark.parametrize(
    ("flag", "words", "reward", "reached"),
    [
        ((1, 2), ["up", " Right.", "UP"], 1.0, 1.0),
        ((1, 2), ["up", "up", "up"], 1 / 3, 0.0),
        ((0, -2), ["down", "I walk"], 0.5, 0.0),
        ((-3, 0), ["right", "right", "left"], 0.0, 0.0),
        ((2, 0), ["", "nowhere"], 0.0, 0.0),
    ],
)
def test_reward_is_share_of_distance_covered(
    walk: ModuleType,
    scripted: tuple[type[Scripted], SimpleNamespace],
    flag: tuple[int, int],
    words: list[str],
    reward: float,
    reached: float,
) -> None:
    model, address = scripted
    model.words = words
    result = asyncio.run(walk.rollout({"flag": flag}, address))
    assert result["reward"] == pytest.approx(reward)
    assert result["metrics"]["reached"] == reached
    assert [len(messages) for messages in model.asked] == [2 * n + 1 for n in range(len(words))]
    assert model.asked[0][0]["content"] == walk.describe(*flag)


@pytest.mark.parametrize(
    ("flag", "words"),
    [((1, 2), "2 up and 1 right"), ((-1, 0), "1 left"), ((0, -3), "3 down"), ((0, 0), "here")],
)
def test_flag_is_described(walk: ModuleType, flag: tuple[int, int], words: str) -> None:
    assert walk.describe(*flag) == f"The flag is {words}. {walk.QUESTION}"


def test_held_out_flags_are_disjoint() -> None:
    train, held_out = (
        {tuple(line["flag"]) for line in lines_of(FOLDER, f"scenarios/{name}.jsonl")}
        for name in ("train", "validation")
    )
    assert len(train) == 24
    assert len(held_out) == 12
    assert not train & held_out


def test_data_is_reproducible(
    walk: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "agent", walk)
    maker = load_module(FOLDER, "make_data")
    assert_make_data_is_reproducible(monkeypatch, maker, FOLDER, tmp_path)


def test_demonstrated_walker_is_mediocre() -> None:
    """The walker uses every word, and is right in about three of four steps."""
    words = [
        message["content"]
        for line in lines_of(FOLDER, "demonstrations.jsonl")
        for message in line["messages"]
        if message["role"] == "assistant"
    ]
    for word in ("up", "down", "left", "right"):
        assert 0.15 < words.count(word) / len(words) < 0.35

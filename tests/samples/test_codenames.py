"""Sample codenames: word table, rules, reward, and held-out words."""

import asyncio
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.samples.conftest import (
    SAMPLES,
    Scripted,
    assert_make_data_is_reproducible,
    lines_of,
    load_importable,
    load_module,
)

FOLDER = SAMPLES / "codenames"
DEALT: dict[str, Any] = {
    "table": ["dog", "rain", "cat", "coin", "piano", "moon", "song", "knife"],
    "clues": [
        {"word": "animal", "means": ["dog", "cat"]},
        {"word": "music", "means": ["piano", "song"]},
    ],
    "assassin": "knife",
}


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_importable(monkeypatch, FOLDER, "words")


@pytest.fixture
def game() -> ModuleType:
    return load_module(FOLDER, "agent")


@pytest.fixture
def maker(words: ModuleType, game: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "agent", game)
    return load_module(FOLDER, "make_data")


def lines(name: str) -> list[dict[str, Any]]:
    return lines_of(FOLDER, name)


def all_words(words: ModuleType) -> set[str]:
    return {word for fitting in words.FITS.values() for word in fitting}


# Word table


def test_word_table_is_large_and_consistent(words: ModuleType) -> None:
    assert len(all_words(words)) >= 250
    assert words.fits("tool", "nail")
    assert words.fits("body", "nail")
    for clue, fitting in words.FITS.items():
        assert len(set(fitting)) == len(fitting) >= 12
        assert clue not in all_words(words)
        assert all(word.isalpha() and word.islower() for word in fitting)


# Rules


@pytest.mark.parametrize(
    ("reply", "reward", "metrics"),
    [
        (["dog", " Cat.", "song", "piano\n"], 1.0, (0.0, 1.0, 1.0)),
        (["dog", "rain", "song", "piano"], 0.75, (0.0, 1.0, 0.75)),
        (["dog", "dog", "song", "piano"], 0.75, (0.0, 0.75, 0.75)),
        (["dog", "nothing", "moon"], 0.25, (0.0, 2 / 3, 0.25)),
        (["dog", "cat", "song", "knife"], 0.0, (1.0, 1.0, 0.75)),
        (["knife"], 0.0, (1.0, 1.0, 0.0)),
        (["", "dog cat"], 0.0, (0.0, 0.0, 0.0)),
        (["song", "piano", "cat", "dog"], 0.5, (0.0, 1.0, 0.5)),
    ],
)
def test_reward_and_metrics_of_a_game(
    game: ModuleType,
    scripted: tuple[type[Scripted], SimpleNamespace],
    reply: list[str],
    reward: float,
    metrics: tuple[float, float, float],
) -> None:
    model, address = scripted
    model.words = reply
    result = asyncio.run(game.rollout(DEALT, address))
    assert result["reward"] == reward
    names = ("assassin", "on_table", "found")
    assert result["metrics"] == pytest.approx(dict(zip(names, metrics, strict=True)))
    assert model.asked[0][1]["content"].splitlines() == [
        *DEALT["table"],
        "Which of these words is about animal?",
    ]


def test_message_after_each_guess(game: ModuleType) -> None:
    played = game.Game(DEALT)
    messages = []
    for word in ("dog", "moon", "piano", "song"):
        messages.append(played.show())
        played.guess(word)
    assert messages == [
        "\n".join([*DEALT["table"], "Which of these words is about animal?"]),
        "Yes. Which other word is about animal?",
        "No. Which of these words is about music?",
        "Yes. Which other word is about music?",
    ]
    assert played.over
    assert played.reward == 0.75


def test_clue_with_all_words_found_is_skipped(game: ModuleType) -> None:
    played = game.Game(DEALT)
    for word in ("song", "piano"):
        assert not played.over
        played.guess(word)
    assert played.over
    assert played.reward == 0.5


# Data


def test_clue_fits_exactly_its_words_on_the_table(words: ModuleType) -> None:
    for line in lines("scenarios/train.jsonl") + lines("scenarios/validation.jsonl"):
        meant = [word for clue in line["clues"] for word in clue["means"]]
        assert len(set(line["table"])) == len(line["table"]) == 7
        assert len(set(meant)) == 3
        assert line["assassin"] in set(line["table"]) - set(meant)
        for clue in line["clues"]:
            fitting = {word for word in line["table"] if words.fits(clue["word"], word)}
            assert fitting == set(clue["means"])


def test_validation_words_are_held_out(words: ModuleType) -> None:
    train, held_out = (
        {word for line in lines(f"scenarios/{name}.jsonl") for word in line["table"]}
        for name in ("train", "validation")
    )
    assert not train & held_out
    assert len(train) > 150
    assert len(held_out) > 80
    shown = {
        word
        for line in lines("demonstrations.jsonl")
        for message in line["messages"]
        for word in message["content"].split()
    }
    assert not shown & held_out


def test_data_is_reproducible(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_make_data_is_reproducible(monkeypatch, maker, FOLDER, tmp_path)


def test_demonstrated_player_is_mediocre(maker: ModuleType, game: ModuleType) -> None:
    """The player always says a word of the table; its first word is right in about 5 of 8 cases."""
    luck = random.Random(0)
    firsts = [maker.demonstrate(DEALT, luck)["messages"][2]["content"] for _ in range(1000)]
    assert set(firsts) == set(DEALT["table"])
    assert 0.57 < sum(word in ("dog", "cat") for word in firsts) / 1000 < 0.68

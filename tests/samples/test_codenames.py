"""The sample codenames: clues that mean what they should, rules, words that were held out."""

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
    assert_writes_its_data,
    imported,
    lines_of,
    module,
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
    return imported(monkeypatch, FOLDER, "words")


@pytest.fixture
def game() -> ModuleType:
    return module(FOLDER, "agent")


@pytest.fixture
def maker(words: ModuleType, game: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "agent", game)
    return module(FOLDER, "make_data")


def lines(name: str) -> list[dict[str, Any]]:
    return lines_of(FOLDER, name)


def everything(words: ModuleType) -> set[str]:
    return {word for fitting in words.FITS.values() for word in fitting}


# The table of words


def test_there_are_some_hundred_words_and_some_fit_two_clues(words: ModuleType) -> None:
    assert len(everything(words)) >= 250
    assert words.fits("tool", "nail")
    assert words.fits("body", "nail")
    for clue, fitting in words.FITS.items():
        assert len(set(fitting)) == len(fitting) >= 12
        assert clue not in everything(words)
        assert all(word.isalpha() and word.islower() for word in fitting)


# The rules


@pytest.mark.parametrize(
    ("said", "reward", "metrics"),
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
def test_the_reward_is_what_was_found(
    game: ModuleType,
    scripted: tuple[type[Scripted], SimpleNamespace],
    said: list[str],
    reward: float,
    metrics: tuple[float, float, float],
) -> None:
    model, address = scripted
    model.words = said
    result = asyncio.run(game.rollout(DEALT, address))
    assert result["reward"] == reward
    names = ("assassin", "on_table", "found")
    assert result["metrics"] == pytest.approx(dict(zip(names, metrics, strict=True)))
    assert model.asked[0][1]["content"].splitlines() == [
        *DEALT["table"],
        "Which of these words is about animal?",
    ]


def test_what_is_told_after_each_guess(game: ModuleType) -> None:
    played = game.Game(DEALT)
    told = []
    for word in ("dog", "moon", "piano", "song"):
        told.append(played.show())
        played.guess(word)
    assert told == [
        "\n".join([*DEALT["table"], "Which of these words is about animal?"]),
        "Yes. Which other word is about animal?",
        "No. Which of these words is about music?",
        "Yes. Which other word is about music?",
    ]
    assert played.over
    assert played.reward == 0.75


def test_a_clue_whose_words_are_all_found_is_not_given(game: ModuleType) -> None:
    played = game.Game(DEALT)
    for word in ("song", "piano"):
        assert not played.over
        played.guess(word)
    assert played.over
    assert played.reward == 0.5


# The data


def test_a_clue_fits_what_it_means_and_nothing_else_on_the_table(words: ModuleType) -> None:
    for line in lines("scenarios/train.jsonl") + lines("scenarios/validation.jsonl"):
        meant = [word for clue in line["clues"] for word in clue["means"]]
        assert len(set(line["table"])) == len(line["table"]) == 7
        assert len(set(meant)) == 3
        assert line["assassin"] in set(line["table"]) - set(meant)
        for clue in line["clues"]:
            fitting = {word for word in line["table"] if words.fits(clue["word"], word)}
            assert fitting == set(clue["means"])


def test_the_validation_has_words_of_its_own(words: ModuleType) -> None:
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


def test_the_data_is_what_the_script_writes(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_writes_its_data(monkeypatch, maker, FOLDER, tmp_path)


def test_the_demonstrated_guesser_is_mediocre(maker: ModuleType, game: ModuleType) -> None:
    """It always says a word of the table; blind or not, its first is meant in 5 of 8 cases."""
    luck = random.Random(0)
    firsts = [maker.demonstrate(DEALT, luck)["messages"][2]["content"] for _ in range(1000)]
    assert set(firsts) == set(DEALT["table"])
    assert 0.57 < sum(word in ("dog", "cat") for word in firsts) / 1000 < 0.68

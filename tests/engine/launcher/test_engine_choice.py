"""Which engine is started: never half a choice, and always a way back."""

from pathlib import Path

import pytest

from engine.launcher.interpreters import (
    choice_file,
    choose,
    chosen_interpreters,
    read_choice,
    write_choice,
)
from engine.protocol.problems import LaunchError
from engine.protocol.records.environments import ChosenEngine, EngineChoice

GPU = ChosenEngine(name="engine-gpu", home="/cache/gpu.1", python="/cache/gpu.1/bin/python")
NEWER = ChosenEngine(name="engine-gpu", home="/cache/gpu.2", python="/cache/gpu.2/bin/python")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_without_a_choice_it_is_the_built_in_engine() -> None:
    assert read_choice() == EngineChoice(current=ChosenEngine(), previous=None)


def test_the_one_before_is_kept_and_the_same_again_changes_nothing() -> None:
    assert choose(GPU) == EngineChoice(current=GPU, previous=ChosenEngine())
    assert choose(GPU) == read_choice()
    assert choose(NEWER) == EngineChoice(current=NEWER, previous=GPU)
    assert choose(GPU) == EngineChoice(current=GPU, previous=NEWER)
    assert [one.name for one in choice_file().parent.iterdir()] == ["engine.json"]


def test_cut_off_while_it_is_written_it_is_the_old_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(GPU)

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", cut_off)
        with pytest.raises(KeyboardInterrupt):
            write_choice(EngineChoice(current=NEWER))
    assert read_choice().current == GPU


def test_what_cannot_be_read_is_said_and_chosen_again() -> None:
    choose(GPU)
    choice_file().write_text('{"current": ')
    with pytest.raises(LaunchError, match="cannot be read"):
        read_choice()
    engines, told = chosen_interpreters()
    assert [one.name for one in engines] == ["built-in"]
    assert "Choose it again" in told[0]
    assert choose(NEWER).current == NEWER


def test_an_engine_that_is_gone_is_passed_over_in_words() -> None:
    choose(GPU)
    engines, told = chosen_interpreters()
    assert [one.name for one in engines] == ["built-in"]
    assert told == ["The GPU engine in /cache/gpu.1 is missing or incomplete."]

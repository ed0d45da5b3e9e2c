"""Choice of the engine to start: atomic writes, and fallback to the built-in engine."""

from pathlib import Path

import pytest

from engine.launcher.interpreters import (
    choice_file,
    choose,
    chosen_interpreters,
    own_interpreter,
    read_choice,
    write_choice,
)
from engine.protocol.problems import LaunchError
from engine.protocol.records.machine.environments import ChosenEngine, EngineChoice

GPU = ChosenEngine(name="engine-gpu", home="/cache/gpu.1", python="/cache/gpu.1/bin/python")
NEWER = ChosenEngine(name="engine-gpu", home="/cache/gpu.2", python="/cache/gpu.2/bin/python")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_built_in_engine_is_the_default() -> None:
    assert read_choice() == EngineChoice(current=ChosenEngine(), previous=None)


def test_previous_choice_is_kept_and_repeating_changes_nothing() -> None:
    assert choose(GPU) == EngineChoice(current=GPU, previous=ChosenEngine())
    assert choose(GPU) == read_choice()
    assert choose(NEWER) == EngineChoice(current=NEWER, previous=GPU)
    assert choose(GPU) == EngineChoice(current=GPU, previous=NEWER)
    assert [one.name for one in choice_file().parent.iterdir()] == ["engine.json"]


def test_interrupted_write_keeps_the_old_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(GPU)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_choice(EngineChoice(current=NEWER))
    assert read_choice().current == GPU


def test_unreadable_choice_is_reported_and_can_be_replaced() -> None:
    choose(GPU)
    choice_file().write_text('{"current": ')
    with pytest.raises(LaunchError, match="cannot be read"):
        read_choice()
    engines, messages = chosen_interpreters()
    assert [one.name for one in engines] == ["built-in"]
    assert "Choose the engine again" in messages[0]
    assert choose(NEWER).current == NEWER


def test_missing_engine_is_skipped_with_a_message() -> None:
    choose(GPU)
    engines, messages = chosen_interpreters()
    assert [one.name for one in engines] == ["built-in"]
    assert messages == ["The GPU engine in /cache/gpu.1 is missing or incomplete."]


def test_engine_does_not_inherit_the_key_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-canary")
    monkeypatch.setenv("ATELIER_OTHER", "kept")
    variables = own_interpreter().variables
    assert variables["ATELIER_OTHER"] == "kept"
    assert "tml-canary" not in variables.values()

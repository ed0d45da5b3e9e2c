"""`atelier models` against a hub on loopback."""

import json

import pytest

from engine.cli.parser import parse
from tests.engine.models.conftest import NAME
from tests.support.model_hub import ModelHub


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    chosen = parse(["models", *arguments])
    assert chosen.command(chosen) == 0
    return capsys.readouterr().out


def test_model_is_searched_shown_pulled_and_listed(
    hub: ModelHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert NAME in _run(capsys, "search", "llama")
    shown = _run(capsys, "show", NAME)
    assert "apache-2.0" in shown
    assert "fits on" in shown
    assert "yes, with tools" in shown
    folder = _run(capsys, "pull", NAME).splitlines()[-1]
    lines = _run(capsys, "list", "--json").splitlines()
    listed = {one["name"]: one for one in map(json.loads, lines)}
    assert listed[NAME]["path"] == folder
    assert listed[NAME]["bytes"] > 100_000
    assert _run(capsys, "path", NAME).strip() == folder


def test_unreachable_hub_is_one_sentence(
    hub: ModelHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    chosen = parse(["models", "search", "llama"])
    assert chosen.command(chosen) == 1
    assert "The Hugging Face hub cannot be reached." in capsys.readouterr().err

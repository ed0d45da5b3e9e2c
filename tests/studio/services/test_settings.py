"""Settings survive restarts, broken files, newer versions and full disks."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from PySide6.QtWidgets import QApplication

from studio.pages.settings.api_keys import judge_keys_card
from studio.runtime.tasks import TaskScope
from studio.services import api_keys
from studio.services.settings import Settings, SettingsStore, read, settings_path, to_toml, write
from studio.theme.theme import Theme
from tests.studio.conftest import Run, until


def test_settings_path_is_below_home(clean_home: Path) -> None:
    assert settings_path().is_relative_to(clean_home)


def test_updates_are_emitted_written_and_read_back(qapp: Any, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "studio.toml"
    store = SettingsStore(path)
    emitted: list[Settings] = []
    store.changed.connect(emitted.append)
    store.update(theme="dark", splitters={"setup/a": [3, 4]})
    store.update(theme="dark")
    for number in range(20):
        store.remember_project(f"/p/{number}")
    store.forget_project("/p/19")
    assert read(path) == store.current == emitted[-1]
    assert len(emitted) == 22
    assert store.current.recent_projects[0] == "/p/18"
    assert [p.name for p in path.parent.iterdir()] == ["studio.toml"]
    with pytest.raises(ValidationError):
        store.update(theme="purple")


@given(
    st.builds(
        Settings,
        recent_projects=st.lists(st.text(max_size=20), max_size=3),
        splitters=st.dictionaries(st.text(max_size=9), st.lists(st.integers(0, 9)), max_size=3),
        engine_python=st.text(max_size=20),
    )
)
def test_toml_round_trip(settings: Settings) -> None:
    import tomllib

    assert Settings.model_validate(tomllib.loads(to_toml(settings.model_dump()))) == settings


def test_invalid_settings_fall_back_to_defaults(tmp_path: Path) -> None:
    path = tmp_path / "studio.toml"
    path.write_text('theme = "purple"\nlast_page = "run"\nfrom_the_future = 1\n')
    assert read(path) == Settings(last_page="run")
    path.write_bytes(b"\xff\xfe not toml")
    assert read(path) == Settings()


def test_failed_write_emits_write_failed_and_keeps_value(
    qapp: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, settings: Settings) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("studio.services.settings.write", full)
    store = SettingsStore(tmp_path / "studio.toml")
    errors: list[str] = []
    store.write_failed.connect(errors.append)
    store.update(theme="light")
    assert errors
    assert store.current.theme == "light"
    assert write is not full


def test_missing_keyring_raises_keyring_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    import keyring.backends.fail

    monkeypatch.setattr(keyring, "get_keyring", keyring.backends.fail.Keyring)

    async def job() -> None:
        with pytest.raises(api_keys.KeyringError) as raised:
            await api_keys.get("openai")
        assert raised.value.problem.code == "keyring.none"

    run(job())


def test_unresponsive_keyring_times_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setattr(api_keys, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(api_keys, "_answer", lambda question: time.sleep(0.3))

    async def job() -> None:
        with pytest.raises(api_keys.KeyringError) as raised:
            await api_keys.put("openai", "secret")
        assert raised.value.problem.code == "keyring.silent"

    run(job())


def test_pasted_key_stays_in_field_until_stored(
    qapp: QApplication, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Theme.install(qapp, mode="dark")
    stored_keys: dict[str, str] = {}
    locked, answer = [True], asyncio.Event()

    async def put(name: str, key: str) -> None:
        await answer.wait()
        if locked:
            raise api_keys.KeyringError.of("keyring.failed", "It is locked.", "Unlock it.")
        stored_keys[name] = key

    async def get(name: str) -> str | None:
        return stored_keys.get(name)

    monkeypatch.setattr(api_keys, "put", put)
    monkeypatch.setattr(api_keys, "get", get)

    async def job() -> None:
        tasks = TaskScope()
        card = judge_keys_card(tasks)
        card._key.set_value("sk-secret")
        card._keep.click()
        assert card._key.value() == "sk-secret"
        answer.set()
        await until(lambda: card._words.words() == "It is locked. Unlock it.")
        assert card._words.property("tone") == "bad"
        assert card._key.value() == "sk-secret"

        locked.clear()
        answer.clear()
        card._keep.click()
        card._provider.set_value("anthropic")
        card.look()
        await until(lambda: card._words.words() == "No key for Anthropic is stored.")
        answer.set()
        await until(lambda: stored_keys == {"openai": "sk-secret"})
        await until(lambda: not card._key.value())
        assert card._words.words() == "No key for Anthropic is stored."
        await tasks.close()
        card.deleteLater()

    run(job())

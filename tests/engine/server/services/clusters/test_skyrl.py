"""SkyRL's server on this machine, before anything is installed or started."""

import asyncio
import socket
from pathlib import Path

import pytest

from engine.protocol.problems import ConfigError, ModelError, Refused
from engine.protocol.requests.clusters import StartSkyrl, skyrl_settings
from engine.runtime.locks import released, take_lock
from engine.server.services.clusters.skyrl import SkyrlService, _plan, launch_command, skyrl_folder


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def request(model: str) -> StartSkyrl:
    return StartSkyrl(cluster="box", settings=skyrl_settings(model))


def test_model_keeps_its_name_and_the_server_its_port(tmp_path: Path) -> None:
    """A snapshot of the hub is in a folder that is named by a commit."""
    commit = tmp_path / "snapshots" / "0123abcd"
    commit.mkdir(parents=True)
    plan = _plan(request("Qwen/Qwen3-8B"), lambda name: commit)
    assert plan.model.name == "Qwen3-8B"
    assert plan.model.resolve() == commit
    assert _plan(request("Qwen/Qwen3-8B"), lambda name: commit).port == plan.port
    with socket.socket() as other:
        other.bind(("127.0.0.1", plan.port))
        other.listen()
        moved = _plan(request("Qwen/Qwen3-8B"), lambda name: commit)
    assert moved.port != plan.port
    assert moved.state == plan.state
    assert f"--port {plan.port}" in launch_command(plan)


def test_settings_out_of_range_are_named() -> None:
    with pytest.raises(ConfigError) as refused:
        skyrl_settings("m", adapters=1)
    assert refused.value.problem.where == "adapters"
    assert "greater than or equal to 2" in refused.value.problem.message


def test_missing_model_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    service = SkyrlService()
    with pytest.raises(ModelError):
        asyncio.run(service.start(request("nobody/nothing")))
    assert not service.busy
    assert service.view.state == "off"
    assert not list((tmp_path / "data").rglob("running.json"))


def test_model_folder_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert _plan(request("."), Path).model.name == "tiny"
    assert _plan(request(f"{folder}/"), Path).model.resolve() == folder


def test_start_after_a_kill_names_what_is_missing_and_is_not_tried_for_ever(tmp_path: Path) -> None:
    wanted = skyrl_folder() / "running.json"
    wanted.parent.mkdir(parents=True)
    wanted.write_text(request("nobody/nothing").model_dump_json())
    service = SkyrlService()
    asyncio.run(service.open())
    assert (service.view.state, service.view.cluster) == ("failed", "box")
    assert service.view.problem is not None
    assert "nobody/nothing" in service.view.problem.message
    assert not wanted.exists()


def test_engine_without_a_server_leaves_that_of_another_one_alone(tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    model.mkdir()
    state = skyrl_folder() / "box"
    wanted = state.parent / "running.json"
    state.mkdir(parents=True)
    wanted.write_text(request(str(model)).model_dump_json())
    lock = take_lock(state / "lock")  # as the engine that runs it
    service = SkyrlService(Path)
    with released(lock):
        asyncio.run(service.open())
        assert service.view.state == "off"
        with pytest.raises(Refused, match="Another engine of yours"):
            asyncio.run(service.start(request(str(model))))
        asyncio.run(service.close())
    assert wanted.exists()


def test_unusable_folder_is_refused_in_words(tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    model.mkdir()
    skyrl_folder().parent.mkdir(parents=True)
    skyrl_folder().write_text("")  # a file where the folder should be
    with pytest.raises(Refused, match="cannot be used"):
        asyncio.run(SkyrlService(Path).start(request(str(model))))

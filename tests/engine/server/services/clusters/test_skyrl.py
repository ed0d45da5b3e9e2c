"""SkyRL's server on this machine, before anything is installed or started."""

import asyncio
import socket
from pathlib import Path

import pytest

from engine.protocol.problems import ConfigError, ModelError
from engine.protocol.requests.clusters import StartSkyrl, skyrl_settings
from engine.server.services.clusters.skyrl import SkyrlService, _plan, launch_command


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

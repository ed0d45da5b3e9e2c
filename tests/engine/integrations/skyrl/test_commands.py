"""Commands that start SkyRL by hand."""

import json
import shlex

from engine.integrations.skyrl.commands import launch_commands
from engine.protocol.requests.clusters import LaunchRequest, SkyrlSettings

SETTINGS = SkyrlSettings(model="org/Model 7B", gpus=8, sequences=64)


def words_after(command: str, option: str) -> str:
    words = shlex.split(command)
    return words[words.index(option) + 1]


def test_one_node_gets_no_coordinator() -> None:
    prepare, server = launch_commands(LaunchRequest(settings=SETTINGS, port=9000))
    assert "uv sync" in prepare.command
    assert words_after(server.command, "--base-model") == "org/Model 7B"
    assert words_after(server.command, "--host") == "127.0.0.1"
    assert words_after(server.command, "--port") == "9000"
    backend = json.loads(words_after(server.command, "--backend-config"))
    assert backend["tensor_parallel_size"] == 8
    assert backend["sample_max_num_sequences"] == 64
    assert "coordinator_address" not in backend


def test_starter_is_named_as_on_the_hub() -> None:
    settings = SETTINGS.model_copy(update={"model": "smollm2-135m-instruct"})
    _, server = launch_commands(LaunchRequest(settings=settings))
    name = words_after(server.command, "--base-model")
    assert name == "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_every_further_node_gets_its_number() -> None:
    _, server, *others = launch_commands(LaunchRequest(settings=SETTINGS, nodes=3))
    backend = json.loads(words_after(server.command, "--backend-config"))
    assert backend["num_processes"] == 3
    assert [words_after(one.command, "--process-id") for one in others] == ["1", "2"]
    assert all(words_after(one.command, "--num-processes") == "3" for one in others)
    assert {words_after(one.command, "--coordinator-address") for one in others} == {
        backend["coordinator_address"]
    }

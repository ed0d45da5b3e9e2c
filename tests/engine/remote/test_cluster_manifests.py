"""Manifests of the help page on clusters: their syntax, and the options and fields they rely on."""

import json
import re
import shlex
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from engine.environments import python_of
from engine.runtime.paths import RESOURCES

PAGE = RESOURCES / "help" / "how-to" / "clusters.md"
OPTIONS = {
    "base-model", "backend", "backend-config", "checkpoints-base", "database-url", "host", "port",
}  # fmt: skip
"""Options of SkyRL's server that the manifests use."""
CONFIG = {
    "tensor_parallel_size", "max_lora_adapters", "train_micro_batch_size",
    "sample_max_num_sequences",
}  # fmt: skip
"""Settings of its JAX backend that they use; the page names those of several nodes too."""
SEVERAL_NODES = {"coordinator_address", "num_processes"}
SKYPILOT = {"name", "num_nodes", "resources", "envs", "setup", "run"}
"""Fields of a SkyPilot task: https://docs.skypilot.co/en/latest/reference/yaml-spec.html."""
FIELDS = """
import json, sys, typing, typing_extensions
typing.TypedDict = typing_extensions.TypedDict  # Python 3.11
from skyrl.backends.jax import JaxBackendConfig
from skyrl.tinker.config import EngineConfig
names = [name.replace("_", "-") for name in EngineConfig.model_fields]
json.dump([names, list(JaxBackendConfig.model_fields)], sys.stdout)
"""


def blocks() -> list[list[dict[str, Any]]]:
    """Documents of each YAML block of the page."""
    found = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    return [list(yaml.safe_load_all(block)) for block in found]


def skypilot() -> dict[str, Any]:
    [task], _ = blocks()
    return task


def kubernetes() -> dict[str, dict[str, Any]]:
    _, documents = blocks()
    return {one["kind"]: one for one in documents}


def container() -> dict[str, Any]:
    [found] = kubernetes()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def scripts() -> dict[str, str]:
    """Shell scripts that start a server."""
    [script] = container()["args"]
    return {"skypilot": skypilot()["run"], "kubernetes": script}


def server_options(script: str) -> dict[str, str]:
    """Options of SkyRL's server in a script."""
    words = shlex.split(script.replace("\\\n", " ").partition("skyrl.tinker.api")[2])
    assert all(word.startswith("--") for word in words[::2])
    return dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))


@pytest.mark.parametrize("name", ["skypilot", "kubernetes"])
def test_server_listens_on_loopback_and_its_options_exist(name: str) -> None:
    options = server_options(scripts()[name])
    assert set(options) == OPTIONS
    assert (options["host"], options["port"], options["backend"]) == ("127.0.0.1", "8000", "jax")
    assert set(json.loads(options["backend-config"])) == CONFIG


def test_scripts_are_valid_shell() -> None:
    for script in (*scripts().values(), skypilot()["setup"]):
        checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr


def test_both_install_the_packages_that_the_sdk_fits() -> None:
    script = skypilot()["setup"]
    heredoc = re.search(r"<<'END'\n(.*?)^END$", script, re.M | re.S)
    assert heredoc
    here, there = heredoc[1], kubernetes()["ConfigMap"]["data"]["pyproject.toml"]
    assert tomllib.loads(here) == tomllib.loads(there)
    project = tomllib.loads(here)["project"]
    assert project["dependencies"] == ["skyrl[gpu,jax,tinker]==0.3.0", "tinker==0.24.1"]
    assert set(project["optional-dependencies"]) == {"jax", "tinker"}
    lock = (RESOURCES.parent / "packaging" / "locks" / "tinker-json.txt").read_text("utf-8")
    assert re.search(r"^tinker==0\.24\.1 ", lock, re.M)


def test_skypilot_task_opens_no_port() -> None:
    task = skypilot()
    assert set(task) == SKYPILOT
    assert set(task["resources"]) == {"accelerators", "disk_size"}
    count = int(task["resources"]["accelerators"].partition(":")[2])
    options = server_options(scripts()["skypilot"])
    assert json.loads(options["backend-config"])["tensor_parallel_size"] == count
    assert options["base-model"] == "$MODEL"
    assert list(task["envs"]) == ["MODEL"]


def test_kubernetes_objects_refer_to_each_other() -> None:
    objects = kubernetes()
    assert set(objects) == {"ConfigMap", "PersistentVolumeClaim", "Deployment"}
    assert {one["apiVersion"] for one in objects.values()} == {"v1", "apps/v1"}
    spec = objects["Deployment"]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    volumes = {one["name"]: one for one in spec["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container()["volumeMounts"]} == set(volumes)
    claim = objects["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["state"]["persistentVolumeClaim"]["claimName"] == claim
    assert volumes["project"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    gpus = container()["resources"]["limits"]["nvidia.com/gpu"]
    options = server_options(scripts()["kubernetes"])
    assert json.loads(options["backend-config"])["tensor_parallel_size"] == gpus
    assert "ports" not in container()
    assert f"deployment/{objects['Deployment']['metadata']['name']} 8000:8000" in PAGE.read_text()


@pytest.mark.long
def test_options_are_those_of_the_installed_server() -> None:
    done = subprocess.run(
        [python_of("skyrl-cpu"), "-c", FIELDS], capture_output=True, text=True, check=True
    )
    names, fields = json.loads(done.stdout.splitlines()[-1])
    assert set(names) >= OPTIONS - {"host", "port"}  # those two are the API server's own
    assert set(fields) >= CONFIG | SEVERAL_NODES
    for name in SEVERAL_NODES:
        assert f"`{name}`" in PAGE.read_text("utf-8")

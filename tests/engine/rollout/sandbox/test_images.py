"""Sandboxes with the files of a container image, which Podman keeps: one per rollout, as in the
sandbox of a process."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.protocol.config.agent import AgentConfig
from engine.protocol.problems import ConfigError
from engine.rollout.agents.processes import AgentResult, Attempt
from engine.rollout.sandbox import launcher
from engine.rollout.sandbox.images import find_image, python_in, unpack
from engine.rollout.sandbox.machine import agent_checks
from engine.rollout.sandbox.pool import agent_pool, check_link
from tests.support.container_image import MARK, needs_podman, python_image
from tests.support.namespaces import needs_namespaces

pytestmark = [pytest.mark.timeout(180)]

AGENT = """
import json, os, subprocess, sys

def seen(path):
    try:
        return sorted(os.listdir(path)) if os.path.isdir(path) else open(path).read()[:40]
    except OSError as error:
        return type(error).__name__

def rollout(scenario, model):
    open(os.path.join(model.scratch, "answer"), "w").write("7")
    shell = subprocess.run(["sh", "-c", "cat /etc/image-mark"], capture_output=True, text=True)
    try:
        open("/usr/written", "w")
        written = True
    except OSError:
        written = False
    found = [seen(path) for path in scenario["paths"]]
    print("RESULT " + json.dumps([found, shell.stdout, written, os.getcwd(), sys.executable]))
    return {"metrics": {"users": len(open("/etc/passwd").readlines())}}
"""
REWARDS = """
import os

def answered(scenario, result, scratch):
    assert open("/etc/image-mark").read()
    return float(open(os.path.join(scratch, "answer")).read() == scenario["answer"])
"""


@pytest.fixture(scope="module")
def image() -> str:
    return python_image()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "scenarios").mkdir(parents=True)
    (folder / "agent.py").write_text(AGENT)
    (folder / "rewards.py").write_text(REWARDS)
    return folder


def run(project: Path, config: AgentConfig, scenario: dict[str, object]) -> AgentResult:
    async def go() -> AgentResult:
        pool = agent_pool(project, config, project / "agent.log")
        await pool.start()
        try:
            return await pool.run(Attempt(scenario, "http://127.0.0.1:9/v1", "key", "policy"))
        finally:
            await pool.close()

    return asyncio.run(go())


@needs_podman
@needs_namespaces
def test_agent_sees_the_image_and_its_project(image: str, project: Path) -> None:
    paths = ["/project", "/etc/image-mark", "/opt", "/etc/shadow", str(project)]
    paths.append("/project/rewards.py")
    config = AgentConfig(sandbox="container", image=image)
    result = run(project, config, {"paths": paths, "answer": "7"})
    line = next(one for one in result.output.splitlines() if one.startswith("RESULT "))
    found, shell, written, folder, python = json.loads(line.removeprefix("RESULT "))
    assert found == [
        ["agent.log", "agent.py", "rewards.py", "scenarios"], MARK,
        *["FileNotFoundError"] * 3, "PermissionError",
    ]  # fmt: skip
    assert (shell, written, folder, python) == (MARK, False, "/project", "/usr/bin/python3")
    assert result.parts == {"answered": 1.0}, "rewards.py ran in the image, on the scratch folder"
    assert result.metrics == {"users": 1.0}, "accounts of the image are not visible"


@needs_podman
@needs_namespaces
def test_image_is_unpacked_once(image: str) -> None:
    found = find_image(image)
    folder = unpack(found)
    assert (folder / "etc" / "image-mark").read_text() == MARK
    mark = folder / "usr" / "mark"
    mark.touch()
    assert unpack(find_image(found.id)) == folder
    assert mark.exists()
    mark.unlink()


@needs_podman
@needs_namespaces
def test_machine_says_what_is_missing(image: str, tmp_path: Path) -> None:
    (check,) = agent_checks(AgentConfig(sandbox="container", image=image))
    assert (check.state, f"with the files of {image}" in check.words) == ("good", True)
    (check,) = agent_checks(AgentConfig(sandbox="container", image="localhost/no-such:1"))
    assert check.state == "bad"
    assert check.words.startswith("The image localhost/no-such:1 is not on this machine (podman: ")
    assert "podman pull localhost/no-such:1" in check.hint
    with pytest.raises(ConfigError, match="The image has no /opt/python"):
        python_in(unpack(find_image(image)), {}, "/opt/python")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="The image has no python3 on its PATH"):
        python_in(tmp_path / "empty", {"PATH": "/usr/bin"}, None)


def test_link_that_leaves_the_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hidden.py").touch()
    for target in ("hidden.py", str(tmp_path / "hidden.py"), "../hidden.py"):
        (tmp_path / "rewards.py").unlink(missing_ok=True)
        (tmp_path / "rewards.py").symlink_to(target)
        if target == "hidden.py":
            check_link(tmp_path / "rewards.py")
        else:
            with pytest.raises(ConfigError, match=f"rewards.py is a link to {target}"):
                check_link(tmp_path / "rewards.py")


def test_folder_of_settings_that_is_a_link_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, secrets = tmp_path / "image", tmp_path / "secrets"
    for folder in (image / "usr", secrets, tmp_path / "root"):
        folder.mkdir(parents=True)
    (secrets / "key").write_text("of this machine")
    (image / "etc").symlink_to(secrets)
    shown: list[tuple[str, str]] = []
    monkeypatch.setattr(launcher, "ROOT", str(tmp_path / "root"))
    monkeypatch.setattr(launcher, "show", lambda *places: shown.append(places))
    launcher.show_image(str(image))
    assert shown == [(str(image / "usr"), "/usr")]


def test_machine_without_podman_and_docker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="neither Podman nor Docker"):
        find_image("python:3.12-slim")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "no image: set agent.image"),
        ({"image": "--help"}, "image"),
        ({"image": "a b"}, "image"),
        ({"image": "a", "requirements": "requirements.txt"}, "both an image and requirements"),
    ],
)
def test_settings_that_contradict_are_refused(more: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        AgentConfig.model_validate({"sandbox": "container", **more})

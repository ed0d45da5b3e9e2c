"""Projects and runs from elsewhere over a real engine: readable and labelled, never run or sent."""

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.protocol.problems import Refused
from engine.protocol.requests.runs import Command, StartEvaluation, TryJudge
from engine.protocol.requests.trust import AddressConfirmation, FileConfirmation, TrustProject
from engine.storage.run_folder.run import read_spec
from engine.trust.projects import trust_project
from engine.trust.store import FILE, trust_folder
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import AGENT, Engine, make_project, start_engine, stop_engine, until

MARK = "ran.txt"
RUNS_CODE = (
    f"""
from pathlib import Path
Path(__file__).with_name("{MARK}").write_text("it ran")
"""
    + AGENT
)


def untrusted_project(folder: Path, model: Path, toml: str = "", agent: str = RUNS_CODE) -> Path:
    """Write a project to the workspace that is not trusted."""
    other = make_project(folder.with_name(f"{folder.name}-source"), model, agent, toml)
    (other / "rubric.md").write_text("More letters are better.\n")
    shutil.copytree(other, folder)
    shutil.rmtree(other)
    return folder


def send_request(
    engine: Engine, method: str, route: str, body: Any = None, **params: str
) -> httpx.Response:
    url = f"http://127.0.0.1:{engine.port}{route}"
    headers = {"Authorization": f"Bearer {engine.token}"}
    return httpx.request(
        method, url, headers=headers, json=body, params=params, timeout=30, verify=False
    )


def test_untrusted_project_is_readable_but_does_not_run(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    project = untrusted_project(workspace / "theirs", tiny_model)
    (project / "mcp.json").write_text(
        json.dumps({"mcpServers": {"x": {"command": "touch", "args": [str(project / MARK)]}}})
    )
    view = engine.call(lambda client: client.project(str(project)))
    assert (view.trusted, view.splits[0].count) == (False, 4)
    starts: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", "/runs", {"project": str(project)}, {}),
        ("POST", "/runs", {"project": str(project), "host": "far"}, {}),
        ("POST", "/runs", {"project": str(project), "kind": "sft"}, {}),
        ("POST", "/evaluations", {"project": str(project), "models": ["base"]}, {}),
        ("POST", "/project/servers", None, {"path": str(project)}),
        ("PUT", "/drafts/environment", {"folder": str(project)}, {}),
    ]
    for method, path, body, params in starts:
        refused = send_request(engine, method, path, body, **params)
        assert refused.status_code == 409, (path, refused.text)
        assert refused.json()["code"] == "project.untrusted"
    assert not (project / MARK).exists()
    assert not (project / "runs").exists()
    confirmation = TrustProject.model_validate_json(refused.json()["detail"])
    engine.call(lambda client: client.confirm(confirmation))
    assert engine.call(lambda client: client.project(str(project))).trusted
    run = engine.train(project, **{"train.steps": 1})
    engine.wait(run)
    assert (project / MARK).read_text() == "it ran"


def test_changed_run_is_not_resumed_in_trusted_project(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    project = make_project(workspace / "mine", tiny_model)
    run = engine.train(project, **{"train.steps": 2})
    engine.wait(run)
    spec = read_spec(Path(run.path))
    until(lambda: engine.call(lambda client: client.info()).living_runs == 0)
    command = f"touch {workspace / MARK}"
    agent = spec.config.agent.model_copy(update={"command": command})
    config = spec.config.model_copy(update={"agent": agent})
    (Path(run.path) / "run.json").write_text(
        spec.model_copy(update={"config": config}).model_dump_json()
    )
    more = Command(action="extend", steps=4)
    with pytest.raises(Refused, match="not trusted"):
        engine.call(lambda client: client.command(run.id, more))
    assert not (workspace / MARK).exists()


def test_queued_run_from_elsewhere_waits_for_trust(workspace: Path, tiny_model: Path) -> None:
    """The queued run starts when its project is trusted."""
    project = make_project(workspace / "mine", tiny_model, RUNS_CODE)
    engine = start_engine(workspace)
    try:
        first = engine.train(project, **{"train.steps": 500})
        queue = {"project": str(project), "queue": True, "overrides": {"train.steps": 1}}
        waiting = send_request(engine, "POST", "/runs", queue).json()["id"]
        engine.call(lambda client: client.command(first.id, Command(action="pause")))
        engine.kill()
        shutil.copytree(project, workspace / "theirs")
        shutil.rmtree(project)
        (workspace / "theirs" / MARK).unlink(missing_ok=True)
        engine = start_engine(workspace)
        theirs = workspace / "theirs"
        view = engine.call(lambda client: client.project(str(theirs)))
        assert not view.trusted
        with pytest.raises(Refused, match="not trusted"):
            engine.call(lambda client: client.command(first.id, Command(action="resume")))
        assert engine.call(lambda client: client.run(waiting)).state == "queued"
        assert not (theirs / MARK).exists()
        engine.call(lambda client: client.confirm(TrustProject(project=str(theirs))))
        until(lambda: engine.call(lambda client: client.run(waiting)).state == "finished", 60)
        assert (theirs / MARK).exists()
    finally:
        stop_engine(engine)


JUDGED = """
[judge]
enabled = true
models = ["openai/scripted"]
base_url = "{url}"
price_prompt = 1
price_completion = 1
"""


def test_unconfirmed_judge_address_gets_neither_key_nor_text(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    """The project is trusted, but its judge address must be confirmed before a run starts."""
    evil = "http://192.0.2.1:9/v1"
    project = make_project(workspace / "judged", tiny_model, toml=JUDGED.format(url=evil))
    (project / "rubric.md").write_text("x")
    engine.call(lambda client: client.lend_keys({"openai": "sk-planted"}))
    refused = send_request(engine, "POST", "/runs", {"project": str(project)})
    assert (refused.status_code, refused.json()["code"]) == (422, "address.unconfirmed")
    assert evil in refused.json()["message"]
    codes = [one.code for one in engine.call(lambda client: client.project(str(project))).problems]
    assert codes == ["address.unconfirmed"]
    confirmation = AddressConfirmation.model_validate_json(refused.json()["detail"])
    assert confirmation == AddressConfirmation(provider="openai", address=evil)
    engine.call(lambda client: client.confirm(confirmation))
    assert not engine.call(lambda client: client.project(str(project))).problems


@pytest.mark.parametrize("key", ["judge.rubric", "scenarios.train", "agent.file", "sft.data"])
def test_file_outside_of_the_project_is_not_read(
    engine: Engine, workspace: Path, tiny_model: Path, key: str
) -> None:
    project = make_project(workspace / "reader", tiny_model)
    (project / "link").symlink_to("/etc/passwd")
    for name in ("/etc/passwd", "link", "../../../../../../etc/passwd"):
        body = {"project": str(project), "overrides": {key: name}}
        if key == "sft.data":
            body["kind"] = "sft"
        refused = send_request(engine, "POST", "/runs", body)
        assert refused.status_code == 422
        assert refused.json()["code"] == "file.outside"
        assert "root:" not in refused.text
        FileConfirmation.model_validate_json(refused.json()["detail"])
    edit = {"values": {key: "/etc/passwd"}}
    edited = send_request(engine, "PUT", "/project", edit, path=str(project))
    assert edited.status_code == 200, edited.text
    texts = [send_request(engine, "GET", path, path=str(project), split="train").text
            for path in ("/project", "/rubric", "/scenarios")]  # fmt: skip
    assert not any("root:x" in text for text in texts)
    assert not any("/bin/bash" in text for text in texts)


def test_judge_address_of_a_request_must_be_confirmed(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    project = make_project(workspace / "asked", tiny_model)
    (project / "rubric.md").write_text("x")
    run = engine.train(project, **{"train.steps": 1})
    engine.wait(run)
    bad = [
        TryJudge(models=["openai/x"], base_url="http://evil.example/v1", source="x"),
        TryJudge(models=["openai/http://evil.example/v1"], source="x"),
    ]
    for trial in bad:
        body = trial.model_dump(mode="json")
        refused = send_request(engine, "POST", f"/runs/{run.id}/judge/price", body)
        assert refused.status_code == 422, refused.text
        assert refused.json()["code"] in ("address.unconfirmed", "model.bad_name")
    request = StartEvaluation(
        project=str(project), models=["openai/x"], overrides={"evaluate.base_url": "http://a.b/v1"}
    )
    with pytest.raises(Refused, match=r"a\.b"):
        engine.call(lambda client: client.start_evaluation(request))


def test_judging_a_foreign_run_needs_trust_and_sends_nothing(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    """The run's project is not trusted: not even a price is computed."""
    with provider(Script()) as script:
        project = untrusted_project(
            workspace / "run", tiny_model, JUDGED.format(url=script.url), AGENT
        )
        trust_project(project)
        run = engine.train(project, **{"train.steps": 1, "judge.enabled": False})
        engine.wait(run)
        until(lambda: engine.call(lambda client: client.info()).living_runs == 0)
        moved = workspace / "moved"
        shutil.copytree(project, moved)
        shutil.rmtree(project)
        engine.call(lambda client: client.project(str(moved)))
        body = TryJudge(source="x").model_dump(mode="json")
        for path in ("judge/price", "judge/suggest"):
            refused = send_request(engine, "POST", f"/runs/{run.id}/{path}", body)
            assert refused.json()["code"] == "project.untrusted", refused.text
        assert script.asked == []
        print(f"{len(script.asked)} requests reached the judge")


def test_trust_file_is_private_and_outside_of_projects(workspace: Path, tiny_model: Path) -> None:
    project = make_project(workspace / "mine", tiny_model)
    file = trust_folder() / FILE
    assert not file.is_relative_to(project)
    assert file.stat().st_mode & 0o777 == 0o600

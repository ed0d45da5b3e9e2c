"""Models over HTTP: search, facts, downloads that survive the engine, deletion."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol.problems import Refused
from engine.protocol.requests.models import ActOnDownload, ModelDownload
from tests.engine_http.conftest import Engine, make_project, start_engine, stop_engine, until
from tests.support.model_hub import ModelHub, model_hub
from tests.support.namespaces import NAMESPACES
from tests.support.processes import is_alive

NAME = "tiny/llama"
WEIGHTS = "model.safetensors"


@pytest.fixture
def hub(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelHub]:
    with model_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        hub.add_folder(NAME, tiny_model, parameters={"F32": 91_000})
        yield hub


@pytest.fixture
def hub_engine(hub: ModelHub, workspace: Path) -> Iterator[Engine]:
    """Engine whose hub is on loopback; started by exec, since the hub's address is read once."""
    engine = start_engine(workspace, before=["env"])
    yield engine
    stop_engine(engine)


def _act(engine: Engine, action: str, name: str = NAME) -> list[ModelDownload]:
    request = ActOnDownload(name=name, action=action)  # type: ignore[arg-type]
    return engine.call(lambda client: client.act_on_download(request))


def _downloads(engine: Engine) -> list[ModelDownload]:
    return engine.call(lambda client: client.model_downloads())


def test_search_download_use_and_delete(hub: ModelHub, hub_engine: Engine) -> None:
    engine = hub_engine
    (found,) = engine.call(lambda client: client.search_models("llama"))
    assert (found.id, found.path) == (NAME, None)
    facts = engine.call(lambda client: client.model_facts(NAME))
    assert (facts.problem, facts.fit.verdict, facts.page) == (None, "fits", f"{hub.url}/{NAME}")
    assert facts.fit.peak_bytes is not None
    with pytest.raises(Refused) as error:
        _act(engine, "start", "../../etc")
    assert error.value.problem.code == "models.bad_name"

    _act(engine, "start")
    until(lambda: not _downloads(engine))
    here = engine.call(lambda client: client.local_models())
    (model,) = [one for one in here.models if one.name == NAME]
    assert (model.kind, model.problem, model.runs) == ("hub", None, 0)
    assert here.free_bytes > 0

    project = make_project(engine.workspace / "letters", Path(NAME))
    assert 'name = "tiny/llama"' in (project / "project.toml").read_text()
    run = engine.train(project)
    with pytest.raises(Refused) as error:
        engine.call(lambda client: client.delete_model(NAME))
    assert error.value.problem.code == "models.in_use"
    engine.stop_runs(engine.workspace)
    until(lambda: not engine.call(lambda client: client.info()).living_runs)
    listed = engine.call(lambda client: client.local_models()).models
    (model,) = [one for one in listed if one.name == NAME]
    assert (model.projects, model.runs) == (("letters",), 1)
    deleted = engine.call(lambda client: client.delete_model(NAME))
    assert (deleted.freed_bytes, deleted.runs) == (model.bytes, 1)
    assert Path(run.path).is_dir()


def test_download_of_a_killed_engine_is_resumed_by_the_next(hub: ModelHub, workspace: Path) -> None:
    hub.block_s = 0.05
    engine = start_engine(workspace, before=["env"])
    _act(engine, "start")
    size = len(hub.repos[NAME].files[WEIGHTS])
    rest = sum(map(len, hub.repos[NAME].files.values())) - size
    until(lambda: _downloads(engine)[0].done_bytes > rest + 40_000)
    children = engine.child_processes("engine.models.serve")
    assert children
    engine.kill()
    until(lambda: not any(is_alive(child) for child in children))

    hub.requests.clear()
    hub.block_s = 0.0
    engine = start_engine(workspace, before=["env"])
    try:
        (left,) = _downloads(engine)
        assert (left.state, left.problem) == ("interrupted", None)
        assert left.done_bytes > rest + 40_000
        _act(engine, "start")
        until(lambda: not _downloads(engine))
        (resumed,) = hub.ranges(WEIGHTS)
        assert int(resumed.removeprefix("bytes=").removesuffix("-")) >= 40_000
    finally:
        stop_engine(engine)


def test_gated_and_unreachable_are_one_sentence(hub: ModelHub, hub_engine: Engine) -> None:
    hub.repos[NAME].gated = True
    _act(hub_engine, "start")
    until(lambda: _downloads(hub_engine)[0].state == "failed")
    problem = _downloads(hub_engine)[0].problem
    assert problem is not None
    assert problem.code == "models.gated"
    assert f"{hub.url}/{NAME}" in problem.hint
    assert _act(hub_engine, "cancel") == []
    hub.fails = 503
    with pytest.raises(Refused) as error:
        hub_engine.call(lambda client: client.search_models("llama"))
    assert error.value.problem.code == "models.hub_failed"


def test_chat_format_of_a_project_is_checked(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    path = str(make_project(workspace / "checked", tiny_model))
    check, agent = engine.call(lambda client: client.model_checks(path))
    assert (check.name, check.state) == ("Chat format", "good")
    assert (agent.name, agent.words) == ("Sandbox", "None: the agent runs with your rights.")
    (*_, agent) = engine.call(
        lambda client: client.model_checks(path, {"agent.sandbox": "process"})
    )
    offered = "Each rollout runs in its own: it reaches the model alone"
    assert agent.words.startswith(offered if NAMESPACES else "agent.sandbox is process, and this")
    values = {"model.template_variables": {"effort": "high"}, "model.thinking": "on"}
    checks = engine.call(lambda client: client.model_checks(path, values))
    assert [one.state for one in checks] == ["good", "warn", "warn", "good"]
    with pytest.raises(Refused) as error:
        engine.call(lambda client: client.model_checks(path, {"model.tool_syntax": "hermess"}))
    assert "'hermes'" in error.value.problem.message
    missing = {"model.name": str(workspace / "no-model")}
    (agent,) = engine.call(lambda client: client.model_checks(path, missing))
    assert agent.name == "Sandbox"

"""Download from a hub on loopback: interrupted, continued by ranges, verified, discarded."""

import asyncio
from pathlib import Path

import pytest

from engine.hardware.memory_plan import preflight
from engine.models.download import pull_model
from engine.models.facts import known_here
from engine.models.hub_download import Progress
from engine.models.jobs import DownloadQueue
from engine.models.local import delete_model, local_models
from engine.models.partial import PART, record_of, repo_folder
from engine.models.registry import find_model, hub_models, model_for, model_of
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ModelError
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.models import ModelDownload
from tests.engine.models.conftest import NAME
from tests.support.model_hub import COMMIT, ModelHub

WEIGHTS = "model.safetensors"


def _pull(name: str = NAME) -> tuple[Path, list[Progress]]:
    seen: list[Progress] = []
    return pull_model(name, lambda _: None, seen.append), seen


def test_download_is_whole_listed_and_found(hub: ModelHub) -> None:
    folder, seen = _pull()
    assert folder == find_model(NAME) == hub_models()[NAME]
    assert (folder / WEIGHTS).read_bytes() == hub.repos[NAME].files[WEIGHTS]
    assert seen[-1].done == seen[-1].total == sum(map(len, hub.repos[NAME].files.values()))
    assert (repo_folder(NAME) / "refs" / "main").read_text() == COMMIT
    assert record_of(NAME) is None
    listed = next(one for one in local_models() if one.name == NAME)
    assert listed.problem is None
    assert listed.bytes == seen[-1].total
    known = known_here(NAME)
    assert known is not None
    assert known.counts is not None
    assert delete_model(NAME) == seen[-1].total
    assert NAME not in hub_models()


def test_tokenizer_alone_is_found_for_clusters_and_completed_later(hub: ModelHub) -> None:
    folder = pull_model(NAME, lambda _: None, weights=False)
    assert not list(folder.glob("*.safetensors"))
    assert not hub.ranges(WEIGHTS)
    assert find_model(NAME, weights=False) == folder
    with pytest.raises(ModelError, match="is not on this machine"):
        find_model(NAME)
    assert NAME not in hub_models()
    config = ProjectConfig.model_validate({"model": {"name": NAME}})
    at_cluster = ProjectConfig.model_validate(
        {"model": {"name": NAME}, "backend": {"cluster": "box"}}
    )
    assert model_for(at_cluster) == folder
    assert preflight(at_cluster, folder, [], folder).disk_bytes is None
    with pytest.raises(ModelError):
        model_for(config)
    spec = RunSpec(
        id="r", name="n", kind="train", project="p", started_at=0.0, config=at_cluster,
        model_path=str(folder),
    )  # fmt: skip
    assert model_of(spec) == folder
    with pytest.raises(ModelError, match="is not on this machine"):
        model_of(spec, here=True)  # as evaluation and export ask
    whole, _ = _pull()
    assert (whole / WEIGHTS).exists()
    assert model_of(spec, here=True) == whole


def test_cut_connection_is_continued_by_a_range_request(hub: ModelHub) -> None:
    hub.cut_after = 50_000
    folder, _ = _pull()
    assert (folder / WEIGHTS).read_bytes() == hub.repos[NAME].files[WEIGHTS]
    assert hub.ranges(WEIGHTS) == ["", "bytes=50000-"]


def test_another_process_continues_the_partial_file(hub: ModelHub) -> None:
    body = hub.repos[NAME].files[WEIGHTS]
    _pull()
    blob = (hub_models()[NAME] / WEIGHTS).resolve()
    delete_model(NAME)
    blob.parent.mkdir(parents=True)
    part = blob.with_name(blob.name + PART)
    part.write_bytes(body[:70_000])
    (blob.parent / f"outdated{PART}").write_bytes(b"other version")
    hub.requests.clear()
    folder, seen = _pull()
    assert hub.ranges(WEIGHTS) == ["bytes=70000-"]
    assert seen[0].done >= 70_000
    assert (folder / WEIGHTS).read_bytes() == body
    assert not list(blob.parent.glob(f"*{PART}"))


def test_damaged_partial_file_is_deleted_and_named(hub: ModelHub) -> None:
    _pull()
    blob = (hub_models()[NAME] / WEIGHTS).resolve()
    delete_model(NAME)
    blob.parent.mkdir(parents=True)
    blob.with_name(blob.name + PART).write_bytes(b"\1" * 70_000)
    with pytest.raises(ModelError) as error:
        _pull()
    assert error.value.problem.code == "models.damaged_download"
    assert NAME not in hub_models()
    _pull()


def test_full_disk_is_refused_before_the_first_byte(
    hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.models.partial.free_bytes", lambda _: 1_000_100_000)
    with pytest.raises(ModelError) as error:
        _pull()
    assert error.value.problem.code == "models.disk_full"
    assert not hub.ranges(WEIGHTS)


def test_download_without_a_network_is_interrupted_and_can_be_resumed(
    hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def job() -> None:
        queue = DownloadQueue()
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        queue.start(NAME)
        await _settled(queue)
        (lost,) = queue.view()
        assert lost.state == "interrupted"
        assert lost.problem is not None
        assert lost.problem.code == "models.hub_unreachable"
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        queue.start(NAME)
        await _settled(queue)
        assert queue.view() == []
        assert find_model(NAME)

    asyncio.run(job())


def test_queue_pauses_resumes_and_cancels_in_real_processes(
    hub: ModelHub, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    hub.add_folder("tiny/second", tiny_model)
    hub.block_s = 0.1
    asyncio.run(_pause_and_resume(hub))


async def _pause_and_resume(hub: ModelHub) -> None:
    queue = DownloadQueue()
    queue.start(NAME)
    queue.start("tiny/second")
    seen = await _until(queue, lambda one: one.speed is not None and one.done_bytes > 40_000)
    assert seen.total_bytes == sum(map(len, hub.repos[NAME].files.values()))
    assert seen.rest_s is not None
    assert [one.state for one in queue.view()] == ["downloading", "queued"]
    await queue.pause("tiny/second")
    await queue.pause(NAME)
    first, second = queue.view()
    assert (first.state, second.state) == ("paused", "paused")
    assert not queue.pids
    assert first.done_bytes >= seen.done_bytes

    await queue.cancel("tiny/second")
    assert not repo_folder("tiny/second").exists()
    hub.block_s, hub.requests[:] = 0.0, []
    other = DownloadQueue()  # as after a restart of the engine
    other.start(NAME)
    while other.view():
        assert other.view()[0].problem is None
        await asyncio.sleep(0.05)
    (resumed,) = hub.ranges(WEIGHTS)
    assert resumed.startswith("bytes=")
    assert find_model(NAME)
    await other.close()


async def _settled(queue: DownloadQueue) -> None:
    """Wait until no download proceeds."""
    for _ in range(1000):
        if not queue.busy:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(queue.view())


async def _until(queue: DownloadQueue, holds: object) -> ModelDownload:
    assert callable(holds)
    for _ in range(400):
        found = queue.view()[0]
        assert found.problem is None, found.problem
        if holds(found):
            return found
        await asyncio.sleep(0.025)
    raise AssertionError(queue.view())

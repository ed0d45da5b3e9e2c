"""Connection tests of clusters: what they are given, and how long their results hold."""

import asyncio
from pathlib import Path

import pytest

from engine.policy.tinker.cluster import ClusterAccess
from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import PolicyLoaded
from engine.protocol.problems import ConfigError, PolicyError, Refused
from engine.protocol.records.clusters import ClusterProfile
from engine.protocol.requests.clusters import (
    CheckCluster,
    ClusterList,
    ClusterModel,
    ClusterReport,
    ClusterSpec,
    ClusterView,
)
from engine.remote.registry import HostService
from engine.server.services.clusters.checks import cluster_checks
from engine.server.services.clusters.service import ClusterService
from engine.server.services.clusters.skyrl import SkyrlService
from engine.server.services.runs.work import ActiveRuns
from engine.server.services.summaries import summarise
from engine.storage.run_folder.run import Run, read_spec
from tests.engine.storage.run_db.test_repair import RUN, make

HOSTED = ClusterSpec(name="hosted", address="https://tinker.example")
REPORT = ClusterReport(models=[ClusterModel(name="m", max_context=4096)], client="t 1", seconds=0.1)


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


class Cluster:
    """Connection test that succeeds with one key and waits while it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[ClusterSpec, str]] = []
        self.begun, self.answers = asyncio.Event(), asyncio.Event()
        self.answers.set()

    async def check(self, access: ClusterAccess) -> ClusterReport:
        spec, key = access.spec, access.key
        self.asked.append((spec, key))
        self.begun.set()
        await self.answers.wait()
        if key != "right":
            raise PolicyError.of("cluster.key", "The cluster refused the API key.", "Enter it.")
        return REPORT


async def _service(cluster: Cluster, keys: dict[str, str]) -> ClusterService:
    hosts = HostService(Path("/nowhere"), list, list, lambda run, tick: None, {})
    service = ClusterService(keys, ActiveRuns(), hosts, SkyrlService(), cluster.check)
    await service.put(HOSTED)
    return service


def only(listed: ClusterList) -> ClusterView:
    [view] = listed.clusters
    return view


def test_result_is_listed_until_key_or_settings_change() -> None:
    async def run() -> None:
        cluster, keys = Cluster(), {}
        service = await _service(cluster, keys)
        view = await service.check("hosted")
        assert view.report is None
        assert view.problem
        assert view.problem.code == "cluster.key"
        assert only(await service.listed()) == view
        await service.lend_key("hosted", "right")
        assert only(await service.listed()) == ClusterView(spec=HOSTED, has_key=True)
        view = await service.check("hosted")
        assert (view.report, view.problem) == (REPORT, None)
        await service.lend_key("hosted", "right")
        assert only(await service.listed()) == view
        assert cluster.asked == [(HOSTED, ""), (HOSTED, "right")]
        changed = HOSTED.model_copy(update={"client": "tinker-json"})
        await service.put(changed)
        assert only(await service.listed()) == ClusterView(spec=changed, has_key=True)
        await service.put(changed.model_copy(update={"address": "https://other.example"}))
        assert keys == {}

    asyncio.run(run())


def test_second_request_joins_the_test_that_runs() -> None:
    async def run() -> None:
        cluster = Cluster()
        service = await _service(cluster, {"hosted": "right"})
        cluster.answers.clear()
        request = CheckCluster(spec=HOSTED, key="right")
        both = [asyncio.create_task(service.check_settings(request)) for _ in range(2)]
        await cluster.begun.wait()
        assert service.busy
        cluster.answers.set()
        assert [view.report for view in await asyncio.gather(*both)] == [REPORT, REPORT]
        assert len(cluster.asked) == 1
        assert not service.busy

    asyncio.run(run())


def test_result_for_an_earlier_key_is_not_listed() -> None:
    async def run() -> None:
        cluster = Cluster()
        service = await _service(cluster, {"hosted": "right"})
        cluster.answers.clear()
        check = asyncio.create_task(service.check("hosted"))
        await cluster.begun.wait()
        await service.lend_key("hosted", "wrong")
        cluster.answers.set()
        assert (await check).report == REPORT
        assert only(await service.listed()) == ClusterView(spec=HOSTED, has_key=True)

    asyncio.run(run())


def test_settings_are_tested_before_they_are_saved() -> None:
    async def run() -> None:
        cluster, new = Cluster(), HOSTED.model_copy(update={"name": "new"})
        service = await _service(cluster, {"hosted": "right"})
        view = await service.check_settings(CheckCluster(spec=new, key="right"))
        assert view == ClusterView(spec=new, has_key=True, report=REPORT)
        assert [one.spec.name for one in (await service.listed()).clusters] == ["hosted"]
        await service.put(new)
        await service.lend_key("new", "right")
        assert (await service.listed()).clusters[1] == view
        changed = HOSTED.model_copy(update={"client": "tinker-json"})
        elsewhere = HOSTED.model_copy(update={"address": "https://other.example"})
        for spec, key in ((changed, "right"), (elsewhere, "")):
            await service.check_settings(CheckCluster(spec=spec))
            assert cluster.asked[-1] == (spec, key)
        plain = new.model_copy(update={"address": "http://gpu.example"})
        with pytest.raises(ConfigError, match="not encrypted"):
            await service.check_settings(CheckCluster(spec=plain))

    asyncio.run(run())


def test_measurement_of_the_newest_run_is_shown(tmp_path: Path) -> None:
    profile = ClusterProfile(
        name="hosted", client="tinker 0.38.0", model="m", sequences="sum", tokens="sum", clips=True,
        pinned=True, repeats=False, alpha=32, logprob_gap=0.0,
    )  # fmt: skip
    folder = make(tmp_path / "runs" / RUN, 1)

    async def run() -> None:
        await (await _service(Cluster(), {})).close()
        stored = Run(folder, read_spec(folder), lambda _: None)
        await stored.say(
            PolicyLoaded(parameters=1, trainable=1, dtype="-", seconds=1, cluster=profile)
        )
        stored.close()

    asyncio.run(run())
    config = ProjectConfig.model_validate({"backend": {"cluster": "hosted"}})
    here = summarise(folder)
    there = here.model_copy(update={"settings": {"backend.cluster": "hosted"}})
    damaged = there.model_copy(update={"path": str(tmp_path)})
    (check,) = cluster_checks(config, [here, damaged])
    assert check.words == "hosted samples and trains at tinker.example."
    (check,) = cluster_checks(config, [damaged, there])
    assert check.state == "good"
    assert check.words.endswith(f"Measured in {there.name}: {profile.words}.")
    assert cluster_checks(ProjectConfig(), [there]) == []


def test_closing_ends_a_test_that_hangs() -> None:
    async def run() -> None:
        cluster = Cluster()
        service = await _service(cluster, {})
        cluster.answers.clear()
        check = asyncio.create_task(service.check("hosted"))
        await cluster.begun.wait()
        await service.close()
        with pytest.raises(Refused, match="being stopped"):
            await check
        assert not service.busy

    asyncio.run(run())

"""Clusters with planted faults: each is compensated, named in the profile, or refused in words."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from engine.policy import base
from engine.policy.tinker import cluster as cluster_module
from engine.policy.tinker import open_models
from engine.policy.tinker.check import check_cluster
from engine.policy.tinker.cluster import ClusterAccess
from engine.policy.tinker.policy import TinkerPolicy
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import AtelierError, PolicyError
from engine.protocol.requests.clusters import ClusterSpec
from engine.runtime.child import ChildDied
from tests.support.tinker_server import MODEL, Fault, TinkerServer, tinker_server
from tests.support.tiny_model import make_tiny_model

pytestmark = pytest.mark.long
KEY = "tml-canary-4f1d2e"
BATCH = base.TrainBatch(
    items=[
        base.TrainItem(
            tokens=[5, 9, 7, 3, 8, 4, 6], spans=[(2, 4), (5, 7)], logprobs=[-4.0, -5.0, -6.0, -5.5],
            advantages=[1.0, 1.0, -0.5, -0.5],
        ),
        base.TrainItem(
            tokens=[5, 9, 2], spans=[(2, 3)], logprobs=[-5.0], advantages=[-1.5], weight=0.5
        ),
    ],
    normaliser=5,
)  # fmt: skip


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return make_tiny_model(tmp_path / "model")


def spec_of(server: TinkerServer) -> ClusterSpec:
    return ClusterSpec(name="box", address=server.address, client="tinker-json")


@contextlib.asynccontextmanager
async def policy_at(server: TinkerServer, model: Path) -> AsyncIterator[TinkerPolicy]:
    log = model.parent / "log"
    policy = await TinkerPolicy.start(log, MODEL, ClusterAccess(spec_of(server), server.key))
    try:
        yield policy
    finally:
        await policy.close()


async def load(policy: TinkerPolicy, model: Path) -> base.PolicyInfo:
    shape = ModelConfig(name=MODEL, rank=4, max_context=64)
    return await policy.load(
        base.PolicySpec(model_path=str(model), model=shape, seed=1, batch_tokens=256)
    )


def problem_of_run(model: Path, *faults: Fault, steps: int = 2) -> str:
    """Load, publish and train; return the problem that ends it."""

    async def work(server: TinkerServer) -> None:
        async with policy_at(server, model) as policy:
            await load(policy, model)
            await policy.publish(0)
            for step in range(steps):
                await policy.forward_backward(BATCH)
                await policy.optim_step(base.AdamStep(lr=0.1))
                await policy.publish(step + 1)

    with tinker_server(*faults) as server, pytest.raises(AtelierError) as caught:
        asyncio.run(work(server))
    print(caught.value.problem.message)
    return f"{caught.value.problem.code}: {caught.value.problem.message}"


@pytest.mark.parametrize("sequences", ["sum", "mean"])
@pytest.mark.parametrize("tokens", ["sum", "mean"])
def test_gradient_arrives_whatever_the_reduction(model: Path, sequences: str, tokens: str) -> None:
    async def work(server: TinkerServer) -> None:
        async with policy_at(server, model) as policy:
            info = await load(policy, model)
            assert info.cluster is not None
            assert (info.cluster.sequences, info.cluster.tokens) == (sequences, tokens)
            assert info.cluster.clips
            assert info.cluster.pinned
            await policy.forward_backward(BATCH)
            (rows,) = policy._gradients
            await policy._send_gradients()
            (trained,) = server.models.values()
            added = trained.gradient / (trained.sequences if sequences == "mean" else 1)
            expected = gradient_of_table(rows.rows)
            assert (added - expected).norm() <= 1e-6 * expected.norm()

    def gradient_of_table(rows: list[list[float]]):  # type: ignore[no-untyped-def]
        import torch

        from tests.support.tinker_server import VOCABULARY, _logprobs

        table = torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.float64, requires_grad=True)
        total = torch.zeros((), dtype=torch.float64)
        for item, row in zip(BATCH.items, rows, strict=True):
            tokens = torch.tensor(item.tokens)
            chosen = [n - 1 for start, end in item.spans for n in range(start, end)]
            logprobs = _logprobs(table, tokens[:-1], tokens[1:])[chosen]
            total = total + (logprobs * torch.tensor(row, dtype=torch.float64)).sum()
        total.backward()  # type: ignore[no-untyped-call]
        return table.grad

    with tinker_server(sequences=sequences, tokens=tokens) as server:
        asyncio.run(work(server))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("batch_mean", "cluster.cannot_be_trusted"),
        ("unsigned", "opposite advantages do not cancel"),
        ("no_norm", "return no gradient norm"),
        ("wrong_logprobs", "off by 1 nats"),
        ("no_logprobs", "log-probs that are no numbers"),
        ("moves_always", "changed the weights in training"),
        ("stale", "policy.stale_adapter"),
        ("other_protocol", "cluster.protocol"),
    ],
)
def test_fault_is_refused_in_words(model: Path, fault: Fault, words: str) -> None:
    assert words in problem_of_run(model, fault)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("ignores_clipping", "ignores clipping"), ("moves_trainer", "snapshots not pinned")],
)
def test_deviation_is_named(model: Path, fault: Fault, words: str) -> None:
    async def work(server: TinkerServer) -> None:
        async with policy_at(server, model) as policy:
            info = await load(policy, model)
            assert info.cluster is not None
            assert words in info.cluster.words
            await policy.publish(0)
            await policy.forward_backward(BATCH)
            await policy.optim_step(base.AdamStep(lr=0.1))
            request = base.SampleRequest(tokens=[5], max_tokens=2, seed=0)
            if fault == "moves_trainer":  # the older snapshot would overwrite the update
                with pytest.raises(PolicyError, match="staleness"):
                    await anext(policy.sample(request))
            await policy.publish(1)
            assert await anext(policy.sample(request))

    with tinker_server(fault) as server:
        asyncio.run(work(server))


def test_silent_cluster_is_found_by_its_health(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "CALL_S", 3.0)
    words = problem_of_run(model, "hangs")
    assert words.startswith("cluster.no_answer")
    assert "answers its health check" in words


def test_dead_cluster_is_found_long_before_the_deadline(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "LOOK_S", 0.2)

    async def work(server: TinkerServer) -> None:
        async with policy_at(server, model) as policy:
            server.sick = True
            with pytest.raises(ChildDied, match="does not answer its health check"):
                await load(policy, model)  # its first gradient is never completed

    with tinker_server("hangs") as server:
        asyncio.run(work(server))


def test_lost_gradient_is_not_sent_again(model: Path) -> None:
    """The server has added it: a second one would count twice."""

    async def work(server: TinkerServer) -> None:
        async with policy_at(server, model) as policy:
            await load(policy, model)
            server.cuts = True
            before = server.gradient_requests
            await policy.forward_backward(BATCH)
            with pytest.raises(ChildDied, match="cannot be reached"):
                await policy.optim_step(base.AdamStep(lr=0.1))
            assert server.gradient_requests == before + 1

    with tinker_server() as server:
        asyncio.run(work(server))


def test_checkpoint_continues_exactly(model: Path, tmp_path: Path) -> None:
    async def work(server: TinkerServer) -> None:
        async with policy_at(server, model) as policy:
            await load(policy, model)
            await policy.publish(0)
            await policy.forward_backward(BATCH)
            await policy.optim_step(base.AdamStep(lr=0.1))
            await policy.publish(1)
            folder = tmp_path / "checkpoint"
            folder.mkdir()
            await policy.save(folder)
            saved = json.loads((folder / "adapter" / "adapter_config.json").read_text())
            assert saved["target_modules"] == ["q_proj", "v_proj"]
            assert saved["base_model_name_or_path"] == MODEL
            assert not (tmp_path / "escaped").exists()
            await policy.forward_backward(BATCH)
            await policy.optim_step(base.AdamStep(lr=0.1))
            item = BATCH.items[0]
            went_on = await policy.score(base.ScoreBatch(items=[item]))
            await policy.restore(folder)
            await policy.forward_backward(BATCH)
            await policy.optim_step(base.AdamStep(lr=0.1))
            assert await policy.score(base.ScoreBatch(items=[item])) == went_on
            assert len(server.models) == 1
        assert not server.models

    with tinker_server() as server:
        asyncio.run(work(server))


def test_states_of_deleted_checkpoints_are_deleted_unless_a_branch_has_them(model: Path) -> None:
    runs = model.parent / "runs"

    async def work(server: TinkerServer) -> None:
        async with policy_at(server, model) as policy:
            await load(policy, model)
            await policy.publish(0)

            async def checkpoint(step: int) -> Path:
                scratch = runs / "one" / "checkpoints" / f".writing-{step}"
                scratch.mkdir(parents=True)
                await policy.save(scratch)
                return scratch.rename(scratch.with_name(f"step-{step}"))

            first, second = await checkpoint(1), await checkpoint(2)
            assert len(server.states) == 2
            shutil.copytree(second, runs / "branch" / "checkpoints" / "step-2")
            for folder in (first, second):
                shutil.rmtree(folder)
            await checkpoint(3)
            left = sorted(path.rpartition("/")[2].partition("-")[0] for path in server.states)
            assert left == ["state", "state"]  # of the branch and of step 3
            kept = json.loads((runs / "branch/checkpoints/step-2/trainer/cluster.json").read_text())
            assert kept["path"] in server.states
            damaged = runs / "branch" / "checkpoints" / "step-9" / "trainer"
            damaged.mkdir(parents=True)
            (damaged / "cluster.json").write_text("{")
            shutil.rmtree(runs / "one" / "checkpoints" / "step-3")
            await checkpoint(4)
            assert len(server.states) == 3  # what cannot be read may need any of them

    with tinker_server() as server:
        asyncio.run(work(server))


def test_server_that_forgot_the_model_counts_as_restarted(model: Path) -> None:
    async def work(server: TinkerServer) -> None:
        async with policy_at(server, model) as policy:
            await load(policy, model)
            server.models.clear()
            with pytest.raises(ChildDied) as died:
                await policy.forward_backward(BATCH)
            assert died.value.problem.code == "cluster.restarted"
            assert "no longer knows the model" in died.value.problem.message

    with tinker_server() as server:
        asyncio.run(work(server))


def test_model_of_a_killed_client_is_unloaded(model: Path) -> None:
    async def killed(server: TinkerServer) -> None:
        policy = await TinkerPolicy.start(
            model.parent / "log", MODEL, ClusterAccess(spec_of(server))
        )
        await load(policy, model)
        os.kill(policy._cluster.pid, signal.SIGKILL)
        await policy.close()
        assert len(server.models) == 1

    async def next_one(server: TinkerServer) -> None:
        async with policy_at(server, model):
            pass

    with tinker_server() as server:
        asyncio.run(killed(server))
        assert len(json.loads(open_models.list_file().read_text())) == 1
        asyncio.run(next_one(server))
        assert not server.models
        assert json.loads(open_models.list_file().read_text()) == []


def test_key_goes_to_the_cluster_alone(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def work(server: TinkerServer) -> None:
        async with policy_at(server, model) as policy:
            await load(policy, model)
            pid = policy._cluster.pid
            process = psutil.Process(pid)
            assert KEY not in " ".join(process.cmdline())
            assert KEY not in str(process.environ() if os.geteuid() == 0 else "")
            peers = {c.raddr.ip for c in process.net_connections("inet") if c.raddr}
            assert peers == {"127.0.0.1"}
        assert server.telemetry == 0

    with tinker_server(key=KEY) as server:
        asyncio.run(work(server))
        assert set(server.keys) == {KEY}
    files = [file for file in model.parent.rglob("*") if file.is_file()]
    assert not [file for file in files if KEY.encode() in file.read_bytes()]
    assert KEY not in "".join(capfd.readouterr())


def test_redirect_does_not_take_the_key_elsewhere(model: Path) -> None:
    with (
        tinker_server() as other,
        tinker_server("redirects", key=KEY, elsewhere=other.address) as server,
    ):
        with pytest.raises(PolicyError):
            asyncio.run(check_cluster(ClusterAccess(spec_of(server), KEY)))
        assert other.keys == []


def test_wrong_key_is_named_without_showing_it(model: Path) -> None:
    with tinker_server(key=KEY) as server, pytest.raises(PolicyError) as caught:
        asyncio.run(check_cluster(ClusterAccess(spec_of(server), "tml-wrong-key")))
    assert caught.value.problem.code == "cluster.key"
    assert "tml-wrong-key" not in str(caught.value.problem)


def test_connection_test_lists_the_models(model: Path) -> None:
    with tinker_server() as server:
        report = asyncio.run(check_cluster(ClusterAccess(spec_of(server))))
    assert [(one.name, one.max_context) for one in report.models] == [(MODEL, 512)]
    assert report.client == "tinker 0.24.1"

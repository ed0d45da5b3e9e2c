"""Forked policy processes: equal to newly started ones in everything but start-up time."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from engine.policy import fork_server
from engine.policy.base import AdamStep, SampleRequest
from engine.policy.worker import ROOT, TorchPolicy
from engine.runtime import preloaded
from engine.runtime.child import ChildDied
from tests.engine.policy.test_data_parallel import STEM, batch, spec, tokens_of
from tests.support.processes import is_alive, process_properties

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="policies are forked on Linux only")
ENGINE = """
import asyncio, sys
from pathlib import Path
from engine.policy import fork_server
from engine.policy.worker import TorchPolicy

async def main():
    async with fork_server.forking():
        policy = await TorchPolicy.start(Path(sys.argv[1]), "tiny", start=fork_server.launcher())
        await policy._child.ask("hold", held=False)
        print(*policy.pids, *fork_server.server_pids(), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def children() -> set[int]:
    """PIDs of this process's children, including those of fixtures of other tests."""
    return {child.pid for child in psutil.Process().children()}


async def work_of(policy: TorchPolicy, model: Path, folder: Path) -> list[object]:
    """Tokens and metrics of a sample and an update; the policy is saved to `folder`."""
    await policy.load(spec(model))
    requests = [SampleRequest(tokens=STEM, max_tokens=20, seed=n) for n in range(6)]
    before = await asyncio.gather(*(tokens_of(policy, request) for request in requests))
    metrics = await policy.forward_backward(batch())
    metrics |= await policy.optim_step(AdamStep(lr=1e-2))
    metrics |= await policy.publish(1)
    after = await asyncio.gather(*(tokens_of(policy, request) for request in requests))
    folder.mkdir()
    await policy.save(folder)
    timed = ("goodput/train", "hardware/train")
    exact_metrics = {name: value for name, value in metrics.items() if name not in timed}
    return [before, exact_metrics, after]


def assert_same_files(one: Path, two: Path) -> None:
    """Compare two saved policies; JSON lists may differ in order (layers are saved as a set)."""
    names = [file.relative_to(one) for file in one.rglob("*") if file.is_file()]
    assert names
    for name in names:
        first, second = (folder / name for folder in (one, two))
        if name.suffix == ".json":
            assert sort_lists(json.loads(first.read_text())) == sort_lists(
                json.loads(second.read_text())
            )
        else:
            assert first.read_bytes() == second.read_bytes(), name


def sort_lists(settings: dict[str, object]) -> dict[str, object]:
    return {key: sorted(v) if isinstance(v, list) else v for key, v in settings.items()}


def test_forked_policy_computes_the_same_bytes(tiny_model: Path, tmp_path: Path) -> None:
    before = children()

    async def work() -> None:
        async with fork_server.forking():
            log = tmp_path / "log"
            plain = await TorchPolicy.start(log, "tiny")
            forked = await TorchPolicy.start(log, "tiny", start=fork_server.launcher())
            try:
                assert fork_server.server_pids()
                for policy in (plain, forked):
                    await policy._child.ask("hold", held=False)  # the process is set up by now
                assert process_properties(forked.pids[0]) == process_properties(plain.pids[0])
                one, two = [
                    await work_of(policy, tiny_model, tmp_path / name)
                    for policy, name in ((plain, "plain"), (forked, "forked"))
                ]
                assert one == two
                assert_same_files(tmp_path / "plain", tmp_path / "forked")
            finally:
                await plain.close()
                await forked.close()
        assert children() <= before

    asyncio.run(work())


def test_killed_policy_is_reported_and_killed_server_is_replaced(
    tiny_model: Path, tmp_path: Path
) -> None:

    async def work() -> None:
        async with fork_server.forking():
            log = tmp_path / "log"
            policy = await TorchPolicy.start(log, "tiny", start=fork_server.launcher())
            os.kill(policy.pids[0], signal.SIGKILL)
            with pytest.raises(ChildDied, match="SIGKILL: out of memory, or killed"):
                await policy.load(spec(tiny_model))
            await policy.close()

            (server,) = fork_server.server_pids()
            running_policy = await TorchPolicy.start(log, "tiny", start=fork_server.launcher())
            os.kill(server, signal.SIGKILL)
            assert (await running_policy.load(spec(tiny_model))).parameters  # needs no server
            await running_policy.close()
            for _ in range(2):  # the first may discover that the server is gone
                started = await TorchPolicy.start(log, "tiny", start=fork_server.launcher())
                await started.hold()
                await started.close()
            assert fork_server.server_pids() not in ([], [server])

    asyncio.run(work())


def test_policy_with_own_variables_runs_in_a_new_process(tmp_path: Path) -> None:
    """OMP_NUM_THREADS and the like are read while libraries are loaded."""

    async def work() -> None:
        async with fork_server.forking():
            variables = {"OMP_NUM_THREADS": "3"}
            policy = await TorchPolicy.start(
                tmp_path / "log", "tiny", variables, start=fork_server.launcher()
            )
            await policy.hold()  # wait until the process runs with its variables
            assert psutil.Process(policy.pids[0]).environ()["OMP_NUM_THREADS"] == "3"
            await policy.close()

    asyncio.run(work())


def test_policy_starts_when_the_fork_server_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "PROGRAM", (sys.executable, "-c", "raise SystemExit(3)"))

    async def work() -> None:
        async with fork_server.forking():
            policy = await TorchPolicy.start(tmp_path / "log", "tiny", start=fork_server.launcher())
            assert fork_server.server_pids() == []
            await policy.hold()
            await policy.close()

    asyncio.run(work())


def test_cancelled_start_leaves_no_process_and_server_is_reused(tmp_path: Path) -> None:
    before = children()

    async def work() -> None:
        async with fork_server.forking():
            log = tmp_path / "log"
            await fork_server.warm_up()
            (server,) = fork_server.server_pids()
            starting = asyncio.create_task(
                TorchPolicy.start(log, "tiny", start=fork_server.launcher())
            )
            await asyncio.sleep(0.2)  # the imports take seconds
            assert not starting.done()
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            policy = await TorchPolicy.start(log, "tiny", start=fork_server.launcher())
            await policy.hold()
            assert fork_server.server_pids() == [server]
            await policy.close()
        assert children() <= before

    asyncio.run(work())


def test_server_and_policy_exit_with_the_engine(tmp_path: Path) -> None:
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path / "log")], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert engine.stdout is not None
    with engine.stdout as out:
        processes = [psutil.Process(int(pid)) for pid in out.readline().split()]
    assert len(processes) == 2
    engine.kill()
    engine.wait()
    end = time.monotonic() + 10
    while any(is_alive(one) for one in processes):
        assert time.monotonic() < end, "a process outlived the engine"
        time.sleep(0.02)


def test_idle_server_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life, engine_end = os.pipe()
    monkeypatch.setattr(preloaded, "IDLE_S", 0.05)
    with requests, server_end:
        preloaded.answer_requests(server_end, life)  # returns
        monkeypatch.setattr(preloaded, "IDLE_S", 60)
        os.close(engine_end)
        preloaded.answer_requests(server_end, life)  # also returns when the engine ends
    os.close(life)

"""Policy processes that are forked: as if newly started, in everything but the time it takes."""

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
from engine.policy.torch import preloaded
from engine.policy.worker import ROOT, TorchPolicy
from engine.runtime.child import ChildDied
from tests.engine.policy.test_data_parallel import STEM, batch, spec, tokens_of

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
    """PIDs of the children of this process; fixtures of other tests keep some of theirs."""
    return {child.pid for child in psutil.Process().children()}


def facts(pid: int) -> dict[str, object]:
    """Properties of a process that what it does and may do depends on."""
    process, own = psutil.Process(pid), f"/proc/{pid}"
    status = Path(f"{own}/status").read_text().splitlines()
    names = [os.readlink(f"{own}/fd/{number}") for number in os.listdir(f"{own}/fd")]
    return {
        "parent": process.ppid(),
        "command": [word for word in process.cmdline() if word and not word.isdecimal()],
        "folder": process.cwd(),
        "descriptors": sorted(name.partition(":")[0] for name in names),
        "limits": Path(f"{own}/limits").read_text(),
        "session": os.getsid(pid) == pid,
        "signals": [line for line in status if line.startswith(("SigBlk", "SigIgn", "Umask"))],
    }


async def work_of(policy: TorchPolicy, model: Path, folder: Path) -> list[object]:
    """Tokens and metrics of a sample and an update, which is saved to `folder`."""
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
    exact = {name: value for name, value in metrics.items() if name not in timed}
    return [before, exact, after]


def assert_same_files(one: Path, two: Path) -> None:
    """The adapter's settings list its layers in the order of a set, other in each process."""
    names = [file.relative_to(one) for file in one.rglob("*") if file.is_file()]
    assert names
    for name in names:
        first, second = (folder / name for folder in (one, two))
        if name.suffix == ".json":
            assert ordered(json.loads(first.read_text())) == ordered(json.loads(second.read_text()))
        else:
            assert first.read_bytes() == second.read_bytes(), name


def ordered(settings: dict[str, object]) -> dict[str, object]:
    return {key: sorted(v) if isinstance(v, list) else v for key, v in settings.items()}


def test_a_forked_policy_computes_the_same_bytes(tiny_model: Path, tmp_path: Path) -> None:
    before = children()

    async def work() -> None:
        async with fork_server.forking():
            log = tmp_path / "log"
            plain = await TorchPolicy.start(log, "tiny")
            forked = await TorchPolicy.start(log, "tiny", start=fork_server.launcher())
            try:
                assert fork_server.server_pids()
                for policy in (plain, forked):
                    await policy._child.ask("hold", held=False)  # its process is set up by then
                assert facts(forked.pids[0]) == facts(plain.pids[0])
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


def test_a_death_is_reported_and_the_server_replaced(tiny_model: Path, tmp_path: Path) -> None:

    async def work() -> None:
        async with fork_server.forking():
            log = tmp_path / "log"
            policy = await TorchPolicy.start(log, "tiny", start=fork_server.launcher())
            os.kill(policy.pids[0], signal.SIGKILL)
            with pytest.raises(ChildDied, match="SIGKILL: out of memory, or killed"):
                await policy.load(spec(tiny_model))
            await policy.close()

            (server,) = fork_server.server_pids()
            living = await TorchPolicy.start(log, "tiny", start=fork_server.launcher())
            os.kill(server, signal.SIGKILL)
            assert (await living.load(spec(tiny_model))).parameters  # it needs no server
            await living.close()
            for _ in range(2):  # the first may be the one that finds the server gone
                started = await TorchPolicy.start(log, "tiny", start=fork_server.launcher())
                await started.hold()
                await started.close()
            assert fork_server.server_pids() not in ([], [server])

    asyncio.run(work())


def test_other_variables_need_a_process_of_their_own(tmp_path: Path) -> None:
    """OMP_NUM_THREADS and the like are read while libraries are loaded."""

    async def work() -> None:
        async with fork_server.forking():
            variables = {"OMP_NUM_THREADS": "3"}
            policy = await TorchPolicy.start(
                tmp_path / "log", "tiny", variables, start=fork_server.launcher()
            )
            await policy.hold()  # it runs: while it was being executed it had no variables
            assert psutil.Process(policy.pids[0]).environ()["OMP_NUM_THREADS"] == "3"
            await policy.close()

    asyncio.run(work())


def test_without_a_server_that_starts_a_policy_starts_anyway(
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


def test_a_cancelled_start_leaves_nothing_and_the_next_gets_its_own(tmp_path: Path) -> None:
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


def test_server_and_policy_end_with_the_engine(tmp_path: Path) -> None:
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path / "log")], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert engine.stdout is not None
    with engine.stdout as out:
        family = [psutil.Process(int(pid)) for pid in out.readline().split()]
    assert len(family) == 2
    engine.kill()
    engine.wait()
    end = time.monotonic() + 10
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family):
        assert time.monotonic() < end, "a process outlived the engine"
        time.sleep(0.02)


def test_an_idle_server_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life, ours = os.pipe()
    monkeypatch.setattr(preloaded, "IDLE_S", 0.05)
    with requests, theirs:
        preloaded.answer_requests(theirs, life)  # returns
        monkeypatch.setattr(preloaded, "IDLE_S", 60)
        os.close(ours)
        preloaded.answer_requests(theirs, life)  # without the engine too
    os.close(life)

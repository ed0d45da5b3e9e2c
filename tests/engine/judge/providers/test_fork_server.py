"""Forked judge workers: equal to newly started ones in everything but start-up time."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.judge.providers import fork_server
from engine.judge.providers.access import BoundWorker, start_worker
from engine.runtime.child import ChildDied
from engine.runtime.life_pipe import adopt_orphans
from engine.trust.addresses import confirm_address
from tests.engine.judge.conftest import KEYS
from tests.engine.judge.scripted import Script, provider
from tests.support.processes import process_properties

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="judges are forked on Linux only")
PROMPT = [{"role": "system", "content": "Grade."}, {"role": "user", "content": "Nothing."}]


async def judged(worker: BoundWorker, url: str) -> Any:
    """Answer of the worker to one judge call."""
    return await worker.ask(
        "ask",
        key="k",
        model="openai/scripted",
        provider="openai",
        messages=PROMPT,
        base_url=url,
        max_tokens=20,
        temperature=0.0,
        timeout_s=20,
        attempt=0,
    )


def open_properties(pid: int) -> list[object]:
    """Properties and variables of a worker, which hides them from other processes of its user:
    only root can compare them."""
    if os.geteuid() != 0:
        return []
    return [process_properties(pid), psutil.Process(pid).environ()]


def test_forked_worker_equals_a_new_one_and_shares_no_keys(tmp_path: Path) -> None:
    adopt_orphans()

    async def work(script: Script) -> None:
        confirm_address("openai", script.url)
        async with fork_server.forking():
            forked = await start_worker("judge", tmp_path / "log")
            (server,) = fork_server.server_pids()
            await forked.ask("keys", keys=KEYS)
            without_keys = await start_worker("judge", tmp_path / "log")
            assert fork_server.server_pids() == [server]
        assert not psutil.pid_exists(server)  # and its workers continue
        plain = await start_worker("judge", tmp_path / "log")
        await plain.ask("keys", keys=KEYS)
        found = []
        for worker in (forked, plain):
            count = await worker.ask("count", model="openai/gpt-4o", questions=[PROMPT])
            price = await worker.ask("price", model="openai/gpt-4o")
            answer = await judged(worker, script.url)
            assert answer["metered"]
            found.append([count, price, answer, *open_properties(worker.pid)])
        assert found[0] == found[1]
        assert script.asked[0] == script.asked[1]
        assert script.headers[0] == script.headers[1]
        assert script.headers[0]["authorization"] == f"Bearer {KEYS['openai']}"
        await judged(without_keys, script.url)
        assert KEYS["openai"] not in str(script.headers[2])
        os.kill(forked.pid, signal.SIGKILL)
        with pytest.raises(ChildDied, match="SIGKILL"):
            await forked.ask("price", model="openai/gpt-4o")
        for worker in (forked, plain, without_keys):
            await worker.close()

    with provider(Script()) as script:
        asyncio.run(work(script))

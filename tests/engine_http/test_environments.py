"""The GPU engine of a small checkout: interrupted at any moment it is the old engine or the new
one, both working; chosen, it starts where our studio is not seen; broken, another takes its place,
and says so.
"""

import asyncio
import itertools
import json
import random
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from engine.client import EngineClient
from engine.protocol.problems import Refused
from engine.protocol.records.environments import EnvironmentList, EnvironmentView
from tests.support.tiny_environments import Checkout, at_work, make_checkout, until

NAME = "engine-gpu"
pytestmark = pytest.mark.long
SEED = 20261121
T = TypeVar("T")

START = """
import asyncio, json, sys
from pathlib import Path
from engine.launcher.local import start
endpoint = asyncio.run(start(Path(sys.argv[1]), *sys.argv[2:]))
print(json.dumps([endpoint.port, endpoint.token, endpoint.pid, endpoint.notice]))
"""
TRY = """
from engine.launcher.interpreters import read_choice
from engine.launcher.interpreters import chosen_interpreters, why_broken
engines, told = chosen_interpreters()
print(read_choice().current.name, engines[0].name, repr(why_broken(engines[0])), told)
"""


class Started:
    """An engine as studio and CLI start it, from the checkout."""

    def __init__(self, checkout: Checkout, *python: str) -> None:
        workspace = checkout.variables["ATELIER_WORKSPACE"]
        code = START.replace("sys.argv[1]", repr(workspace)).replace(
            "*sys.argv[2:]", repr(python)[1:-1]
        )
        self.port, self.token, self.pid, self.notice = json.loads(checkout.python(code))

    def call(self, work: Callable[[EngineClient], Awaitable[T]]) -> T:
        async def run() -> T:
            async with EngineClient(self.port, self.token) as client:
                return await work(client)

        return asyncio.run(run())

    def view(self) -> EnvironmentView:
        return gpu(self.call(lambda client: client.environments()))

    def act(self, action: str) -> EnvironmentView:
        return gpu(self.call(lambda client: client.act_on_environment(NAME, action)))  # type: ignore[arg-type]

    def end(self, checkout: Checkout) -> None:
        self.call(lambda client: client.shut_down())
        until(lambda: not at_work(checkout))


def gpu(found: EnvironmentList) -> EnvironmentView:
    return next(one for one in found.environments if one.name == NAME)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = make_checkout(tmp_path_factory.mktemp("engines"))
    yield made
    made.index.shutdown()
    made.index.server_close()


def await_moment(process: "subprocess.Popen[str]", moment: str, chance: random.Random) -> None:
    """While it is tried out, or a while after a sign of progress."""
    assert process.stdout is not None
    if moment == "any":
        signs = chance.randint(1, 6)
        list(itertools.islice(process.stdout, signs))
        time.sleep(chance.uniform(0.0, 0.3))
    else:
        next((line for line in process.stdout if '"testing"' in line), None)


def await_mark(process: "subprocess.Popen[str]", place: Path) -> None:
    until(lambda: list(place.glob(f"{NAME}-*.*/ready")) or process.poll() is not None)


@pytest.fixture(scope="module")
def installed(checkout: Checkout) -> Checkout:
    """With the GPU engine, killed at five moments on its way; the moments are of the seed, but for
    two: while it is tried out, and between its mark and the switch."""
    chance, begun = random.Random(SEED), set[str]()
    place = checkout.cache / "environments"
    for moment in ("any", "testing", "any", "mark", "any"):
        process = checkout.start("environments", "install", NAME, "--use", "--json")
        await_moment(process, moment, chance)
        if moment == "mark":
            await_mark(process, place)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        until(lambda: not at_work(checkout))
        said = checkout.python(TRY)
        assert said in ("built-in built-in '' []", f"{NAME} {NAME} '' []"), said
        begun.add(said.split()[0])
    done = checkout.run("environments", "install", NAME, "--use")
    assert done.returncode == 0, done.stderr
    assert checkout.python(TRY) == f"{NAME} {NAME} '' []"
    assert "built-in" in begun
    return checkout


def test_killed_at_any_moment_it_is_the_old_engine_or_the_new_one(installed: Checkout) -> None:
    assert len(installed.homes(NAME)) == 1
    assert not list(installed.cache.glob("downloads/*"))
    assert max(installed.index.fetched.values()) <= 5


def test_the_chosen_engine_starts_and_never_sees_our_studio(installed: Checkout) -> None:
    assert (installed.folder / "studio" / "app.py").exists()
    engine = Started(installed)
    try:
        assert engine.notice == ""
        found = engine.call(lambda client: client.environments())
        assert found.running.name == NAME
        assert found.running.home == gpu(found).home
        seen = Path(f"/proc/{engine.pid}/cwd").readlink()
        assert sorted(one.name for one in seen.iterdir()) == ["engine", "packaging", "resources"]
        code = "import studio, engine; print(studio.OWNER, engine.__path__[0])"
        told = subprocess.run(
            [found.running.python, "-c", code], cwd=seen, capture_output=True, text=True, check=True
        )
        assert told.stdout.split() == ["unsloth", str(seen / "engine")]
        engine.act("remove")
        problem = until_idle(engine).problem
        assert problem is not None
        assert problem.message == "The GPU engine is the one in use."
        assert (
            engine.call(lambda client: client.use_engine(NAME)) == found.choice
        )  # again: the same
    finally:
        engine.end(installed)


def until_idle(engine: Started) -> EnvironmentView:
    until(lambda: engine.view().action is None)
    return engine.view()


def test_a_broken_engine_gives_place_and_says_so(installed: Checkout) -> None:
    home = Path(
        json.loads(installed.run("environments", "list", "--json").stdout)["choice"]["current"][
            "home"
        ]
    )
    packages = next(home.glob("lib/*/site-packages"))
    (packages / "below.pth").rename(packages / "below.off")  # what the engine needs is not found
    try:
        engine = Started(installed)
        assert "The GPU engine did not start (ModuleNotFoundError" in engine.notice
        assert "The built-in engine was started instead." in engine.notice
        assert engine.call(lambda client: client.environments()).running.built_in
        engine.end(installed)
    finally:
        (packages / "below.off").rename(packages / "below.pth")
    python = home / "bin" / "python"
    python.rename(home / "gone")
    try:
        engine = Started(installed)
        assert engine.notice.startswith("The GPU engine in ")
        engine.end(installed)
        assert engine.pid
    finally:
        (home / "gone").rename(python)


def test_repair_puts_a_whole_one_in_its_place(installed: Checkout) -> None:
    before = json.loads(installed.run("environments", "list", "--json").stdout)["choice"]
    damaged = next(Path(before["current"]["home"]).glob("lib/*/site-packages/vllm_data.bin"))
    damaged.write_bytes(b"")
    done = installed.run("environments", "repair", NAME)
    assert done.returncode == 0, done.stderr
    after = json.loads(installed.run("environments", "list", "--json").stdout)["choice"]
    assert after["current"]["home"] != before["current"]["home"]
    assert after["previous"] == before["previous"]
    assert installed.python(TRY) == f"{NAME} {NAME} '' []"


def test_the_way_back_and_removal(installed: Checkout) -> None:
    assert "built-in" in installed.run("environments", "rollback").stdout
    assert installed.python(TRY) == "built-in built-in '' []"
    assert "GPU engine" in installed.run("environments", "rollback").stdout
    refused = installed.run("environments", "remove", NAME)
    assert refused.returncode == 1
    assert "The GPU engine is the one in use." in refused.stderr
    assert installed.run("environments", "use", "built-in").returncode == 0
    removed = installed.run("environments", "remove", NAME)
    assert removed.returncode == 0, removed.stderr
    assert not installed.homes(NAME)
    done = installed.run("environments", "rollback")
    assert done.returncode == 1
    assert "No engine was in use before this one." in done.stderr


def test_a_job_of_the_engine_is_seen_cancelled_and_resumed(checkout: Checkout) -> None:
    """Also when the engine is killed: nothing of its job outlives it, and the next goes on."""
    for command in (("use", "built-in"), ("remove", NAME)):
        assert checkout.run("environments", *command).returncode == 0
    checkout.index.fetched.clear()
    checkout.index.delay_s = 0.3
    engine = Started(checkout)
    assert engine.act("install").action == "install"
    assert engine.act("install").action == "install"  # is under way
    until(lambda: (tick := engine.view().tick) and tick.done >= 1)
    assert engine.view().tick.share > 0.02  # type: ignore[union-attr]
    with pytest.raises(Refused, match="another job is running"):
        engine.act("repair")
    with pytest.raises(Refused, match="is not installed"):
        engine.call(lambda client: client.use_engine(NAME))
    with pytest.raises(Refused, match="There is no environment nothing"):
        engine.call(lambda client: client.act_on_environment("nothing", "install"))
    cancelled = engine.act("cancel")
    assert (cancelled.state, cancelled.action) == ("partial", None)
    assert cancelled.arrived >= 1
    engine.act("install")
    until(lambda: engine.view().arrived > cancelled.arrived)
    subprocess.run(["kill", "-9", str(engine.pid)], check=True)
    until(lambda: not at_work(checkout))
    checkout.index.delay_s = 0.0
    engine = Started(checkout)
    try:
        assert engine.view().state == "partial"
        engine.act("install")
        assert until_idle(engine).state == "ready"
        assert checkout.index.fetched["torch"] == 1
    finally:
        engine.end(checkout)

"""GPU engine in a small checkout.

An interrupted installation leaves the old or the new engine, both working; a selected engine
starts without the studio package; a broken one is replaced by the built-in engine, with a notice.
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
from engine.protocol.records.machine.environments import EnvironmentList, EnvironmentView
from tests.support.tiny_environments import Checkout, make_checkout, running_processes, until

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
engines, message = chosen_interpreters()
print(read_choice().current.name, engines[0].name, repr(why_broken(engines[0])), message)
"""


class Started:
    """Engine started from the checkout, like studio and CLI start it."""

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
        return gpu_environment(self.call(lambda client: client.environments()))

    def act(self, action: str) -> EnvironmentView:
        return gpu_environment(self.call(lambda client: client.act_on_environment(NAME, action)))  # type: ignore[arg-type]

    def end(self, checkout: Checkout) -> None:
        self.call(lambda client: client.shut_down())
        until(lambda: not running_processes(checkout))


def gpu_environment(found: EnvironmentList) -> EnvironmentView:
    return next(one for one in found.environments if one.name == NAME)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = make_checkout(tmp_path_factory.mktemp("engines"))
    yield made
    made.index.shutdown()
    made.index.server_close()


def wait_for_moment(process: "subprocess.Popen[str]", moment: str, chance: random.Random) -> None:
    """Wait for the self-test of the environment, or for a random sign of progress."""
    assert process.stdout is not None
    if moment == "any":
        signs = chance.randint(1, 6)
        list(itertools.islice(process.stdout, signs))
        time.sleep(chance.uniform(0.0, 0.3))
    else:
        next((line for line in process.stdout if '"testing"' in line), None)


def wait_for_ready_mark(process: "subprocess.Popen[str]", place: Path) -> None:
    until(lambda: list(place.glob(f"{NAME}-*.*/ready")) or process.poll() is not None)


@pytest.fixture(scope="module")
def checkout_with_gpu_engine(checkout: Checkout) -> Checkout:
    """Install the GPU engine, killed at five moments: three random ones, during the self-test, and
    between ready mark and switch."""
    chance, engines_seen = random.Random(SEED), set[str]()
    place = checkout.cache / "environments"
    for moment in ("any", "testing", "any", "mark", "any"):
        process = checkout.start("environments", "install", NAME, "--use", "--json")
        wait_for_moment(process, moment, chance)
        if moment == "mark":
            wait_for_ready_mark(process, place)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        until(lambda: not running_processes(checkout))
        choice = checkout.python(TRY)
        assert choice in ("built-in built-in '' []", f"{NAME} {NAME} '' []"), choice
        engines_seen.add(choice.split()[0])
    done = checkout.run("environments", "install", NAME, "--use")
    assert done.returncode == 0, done.stderr
    assert checkout.python(TRY) == f"{NAME} {NAME} '' []"
    assert "built-in" in engines_seen
    return checkout


def test_killed_installation_leaves_old_or_new_engine(checkout_with_gpu_engine: Checkout) -> None:
    assert len(checkout_with_gpu_engine.homes(NAME)) == 1
    assert not list(checkout_with_gpu_engine.cache.glob("downloads/*"))
    assert max(checkout_with_gpu_engine.index.fetched.values()) <= 5


def test_selected_engine_starts_without_the_studio_package(
    checkout_with_gpu_engine: Checkout,
) -> None:
    assert (checkout_with_gpu_engine.folder / "studio" / "app.py").exists()
    engine = Started(checkout_with_gpu_engine)
    try:
        assert engine.notice == ""
        listing = engine.call(lambda client: client.environments())
        assert listing.running.name == NAME
        assert listing.running.home == gpu_environment(listing).home
        folder = Path(f"/proc/{engine.pid}/cwd").readlink()
        assert sorted(one.name for one in folder.iterdir()) == ["engine", "packaging", "resources"]
        code = "import studio, engine; print(studio.OWNER, engine.__path__[0])"
        completed = subprocess.run(
            [listing.running.python, "-c", code],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert completed.stdout.split() == ["unsloth", str(folder / "engine")]
        engine.act("remove")
        problem = until_idle(engine).problem
        assert problem is not None
        assert problem.message == "The GPU engine is the current engine."
        assert (
            engine.call(lambda client: client.use_engine(NAME)) == listing.choice
        )  # repeated: no change
    finally:
        engine.end(checkout_with_gpu_engine)


def until_idle(engine: Started) -> EnvironmentView:
    until(lambda: engine.view().action is None)
    return engine.view()


def test_broken_engine_is_replaced_by_built_in_with_notice(
    checkout_with_gpu_engine: Checkout,
) -> None:
    home = Path(
        json.loads(checkout_with_gpu_engine.run("environments", "list", "--json").stdout)["choice"][
            "current"
        ]["home"]
    )
    packages = next(home.glob("lib/*/site-packages"))
    (packages / "below.pth").rename(packages / "below.off")  # hides packages that the engine needs
    try:
        engine = Started(checkout_with_gpu_engine)
        assert "The GPU engine did not start (ModuleNotFoundError" in engine.notice
        assert "The built-in engine was started instead." in engine.notice
        assert engine.call(lambda client: client.environments()).running.built_in
        engine.end(checkout_with_gpu_engine)
    finally:
        (packages / "below.off").rename(packages / "below.pth")
    python = home / "bin" / "python"
    python.rename(home / "gone")
    try:
        engine = Started(checkout_with_gpu_engine)
        assert engine.notice.startswith("The GPU engine in ")
        engine.end(checkout_with_gpu_engine)
        assert engine.pid
    finally:
        (home / "gone").rename(python)


def test_repair_replaces_damaged_environment(checkout_with_gpu_engine: Checkout) -> None:
    before = json.loads(checkout_with_gpu_engine.run("environments", "list", "--json").stdout)[
        "choice"
    ]
    damaged = next(Path(before["current"]["home"]).glob("lib/*/site-packages/vllm_data.bin"))
    damaged.write_bytes(b"")
    done = checkout_with_gpu_engine.run("environments", "repair", NAME)
    assert done.returncode == 0, done.stderr
    after = json.loads(checkout_with_gpu_engine.run("environments", "list", "--json").stdout)[
        "choice"
    ]
    assert after["current"]["home"] != before["current"]["home"]
    assert after["previous"] == before["previous"]
    assert checkout_with_gpu_engine.python(TRY) == f"{NAME} {NAME} '' []"


def test_rollback_and_removal(checkout_with_gpu_engine: Checkout) -> None:
    assert "built-in" in checkout_with_gpu_engine.run("environments", "rollback").stdout
    assert checkout_with_gpu_engine.python(TRY) == "built-in built-in '' []"
    assert "GPU engine" in checkout_with_gpu_engine.run("environments", "rollback").stdout
    refused = checkout_with_gpu_engine.run("environments", "remove", NAME)
    assert refused.returncode == 1
    assert "The GPU engine is the current engine." in refused.stderr
    assert checkout_with_gpu_engine.run("environments", "use", "built-in").returncode == 0
    removed = checkout_with_gpu_engine.run("environments", "remove", NAME)
    assert removed.returncode == 0, removed.stderr
    assert not checkout_with_gpu_engine.homes(NAME)
    done = checkout_with_gpu_engine.run("environments", "rollback")
    assert done.returncode == 1
    assert "No engine was in use before this one." in done.stderr


def test_installation_job_is_cancelled_and_resumed(checkout: Checkout) -> None:
    """Cancel and resume an installation.

    Killing the engine ends its job too, and the next engine resumes it.
    """
    for command in (("use", "built-in"), ("remove", NAME)):
        assert checkout.run("environments", *command).returncode == 0
    checkout.index.fetched.clear()
    checkout.index.delay_s = 0.3
    engine = Started(checkout)
    assert engine.act("install").action == "install"
    assert engine.act("install").action == "install"  # already running
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
    until(lambda: not running_processes(checkout))
    checkout.index.delay_s = 0.0
    engine = Started(checkout)
    try:
        assert engine.view().state == "partial"
        engine.act("install")
        assert until_idle(engine).state == "ready"
        assert checkout.index.fetched["torch"] == 1
    finally:
        engine.end(checkout)

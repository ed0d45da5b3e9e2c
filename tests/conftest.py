"""What all tests share: a tiny model made on the spot, and nothing of ours left running."""

import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.support.engine_starter import remember_variables, starter_pid
from tests.support.tiny_model import make_tiny_model

if TYPE_CHECKING:
    from tests.support.ssh_server import FarSide, Keys

settings.register_profile(  # nothing is timed here
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every engine compiles itself anew
sys.dont_write_bytecode = False  # and every worker all tests
gc.disable()  # until the tests are collected, with all that they import
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers share the cores already


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the tests marked `slow`, so that none of them is left at the end; skip those
    marked `long`, unless ATELIER_LONG is set (`bootstrap.py test --long`)."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if os.environ.get("ATELIER_LONG"):
        return
    skipped = pytest.mark.skip(reason="long: run it with ATELIER_LONG=1")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skipped)


def pytest_collection_finish() -> None:
    """Leave what has been imported out of collections: to walk through all of torch and Qt would
    take most of a test. Remember the variables for engines that are forked."""
    remember_variables()
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def own_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that a test trusts or confirms is kept in the person's own configuration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 130 000 parameters with a byte tokenizer and a chat template."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def ssh_keys(tmp_path_factory: pytest.TempPathFactory) -> "Keys":
    """Of a person and of servers, by name, made when they are first asked for."""
    from tests.support.ssh_server import Keys

    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory, ssh_keys: "Keys") -> Iterator["FarSide"]:
    """One for all tests; take `far`."""
    from tests.support.ssh_server import FarSide

    far = FarSide(tmp_path_factory.mktemp("far"), ssh_keys).start()
    yield far
    far.stop()


@pytest.fixture
def far(ssh_server: "FarSide") -> Iterator["FarSide"]:
    """A server on loopback that lets the key `user` in; afterwards it is as it was."""
    yield ssh_server
    ssh_server.reset()


@pytest.fixture
def may_stay() -> Callable[[psutil.Process], bool]:
    """Which of the processes that a test has started may go on after it: none."""
    return lambda process: False


@pytest.fixture(autouse=True)
def no_stray_processes(may_stay: Callable[[psutil.Process], bool]) -> Iterator[None]:
    """A child process that outlives its test fails it."""
    before = set(psutil.pids())
    yield
    end = time.monotonic() + 5
    while strays := [child for child in children_since(before) if is_stray(child, may_stay)]:
        if time.monotonic() > end:
            for stray in strays:
                stray.kill()
            raise AssertionError(f"processes left behind: {strays}")
        time.sleep(0.05)


def children_since(before: set[int]) -> list[psutil.Process]:
    """Descendants of this process whose PID is new; only new ones are asked for their parents,
    since a walk through all processes takes longer than most tests."""
    own, found = os.getpid(), []
    for pid in set(psutil.pids()) - before:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if any(parent.pid == own for parent in process.parents()):
                found.append(process)
    return found


def is_stray(child: psutil.Process, may_stay: Callable[[psutil.Process], bool]) -> bool:
    if child.pid == starter_pid():
        return False
    try:
        return child.status() != psutil.STATUS_ZOMBIE and not may_stay(child)
    except psutil.NoSuchProcess:
        return False

"""Fixtures of studio tests: offscreen Qt, clean home, and checks for leftovers, warnings and
stalls."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")

from PySide6.QtCore import QMessageLogContext, QTimer, QtMsgType, qInstallMessageHandler

from tests.studio.fakes.engine import FakeEngine

HARMLESS = (
    "This plugin does not support propagateSizeHints",
    "This plugin does not support raise()",
    "This plugin does not support grabbing",
    "Cannot find font directory",
)
LOOP_S = 60.0


@pytest.fixture(autouse=True)
def clean_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary home folder and XDG directories."""
    home = tmp_path / "home"
    for name, folder in {
        "HOME": "",
        "XDG_CONFIG_HOME": ".config",
        "XDG_STATE_HOME": ".state",
        "XDG_CACHE_HOME": ".cache",
        "XDG_DATA_HOME": ".data",
        "XDG_RUNTIME_DIR": ".runtime",
        "XDG_DOCUMENTS_DIR": "Documents",
    }.items():
        (home / folder).mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(name, str(home / folder))
    (home / ".runtime").chmod(0o700)
    for name in ("ATELIER_WORKSPACE", "DBUS_SESSION_BUS_ADDRESS"):  # no word on a real desktop
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(autouse=True, scope="module")
def keep_what_is_loaded() -> None:
    """Exempt objects that stay alive, such as imported modules, from garbage collection.

    Garbage of earlier tests is collected first, otherwise it would be frozen too.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def collect_here() -> Iterator[None]:
    """Collect cycles with Qt objects in this thread, never in a server's
    (studio.runtime.garbage_collector).
    """
    gc.disable()
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def quiet_qt() -> Iterator[None]:
    """Fail the test when Qt prints a warning."""
    messages: list[str] = []

    def handle(kind: QtMsgType, context: QMessageLogContext, text: str) -> None:
        is_warning = kind not in (QtMsgType.QtDebugMsg, QtMsgType.QtInfoMsg)
        if is_warning and not any(harmless in text for harmless in HARMLESS):
            messages.append(text)

    before = qInstallMessageHandler(handle)
    yield
    qInstallMessageHandler(before)
    assert not messages, f"Qt messages: {messages}"


@pytest.fixture(autouse=True)
def no_stray_threads() -> Iterator[None]:
    """Fail the test when a thread outlives it (except pools of asyncio and Qt)."""
    before = set(threading.enumerate())
    yield
    end = time.monotonic() + 3
    while strays := [t for t in threading.enumerate() if t not in before and not _pooled(t)]:
        if time.monotonic() > end:
            raise AssertionError(f"threads left behind: {strays}")
        time.sleep(0.02)


def _pooled(thread: threading.Thread) -> bool:
    return thread.name.startswith(("asyncio_", "ThreadPool", "Dummy", "QThread"))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[FakeEngine]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    fake = FakeEngine(workspace).start()
    yield fake
    fake.stop()


Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run(qapp: Any, request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a coroutine on a qasync loop; tasks that outlive the test fail it."""
    longer = request.node.get_closest_marker("timeout")
    limit_s = longer.args[0] if longer else LOOP_S
    import qasync

    qapp.setQuitOnLastWindowClosed(False)
    loop = qasync.QEventLoop(qapp)
    asyncio.set_event_loop(loop)
    strays: list[asyncio.Task[Any]] = []

    def run_now(job: Coroutine[Any, Any, Any]) -> Any:
        async def limited() -> Any:
            async with asyncio.timeout(limit_s):
                result = await job
            await asyncio.sleep(0)
            mine = asyncio.current_task()
            strays.extend(t for t in asyncio.all_tasks() if t is not mine and not t.done())
            return result

        return loop.run_until_complete(limited())

    yield run_now
    for task in strays:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*strays, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    asyncio.set_event_loop(None)
    gc.collect()
    names = [task.get_coro() for task in strays]
    assert not strays, f"tasks left behind: {names}"


class StallWatch:
    """Longest time between two rounds of the GUI event loop, and most CPU time used between two
    rounds;

    the rest was spent waiting for a core.
    """

    def __init__(self) -> None:
        self.worst_s = self.most_work_s = 0.0
        self._last, self._used = time.monotonic(), time.thread_time()
        self._timer = QTimer()
        self._timer.setInterval(5)
        self._timer.timeout.connect(self._beat)

    def start(self) -> None:
        self._last, self._used = time.monotonic(), time.thread_time()
        self.worst_s = self.most_work_s = 0.0
        self._timer.start()

    def stop(self) -> float:
        self._timer.stop()
        return self.worst_s

    def _beat(self) -> None:
        now, used = time.monotonic(), time.thread_time()
        self.worst_s = max(self.worst_s, now - self._last)
        self.most_work_s = max(self.most_work_s, used - self._used)
        self._last, self._used = now, used


@pytest.fixture
def stall_watch(qapp: Any) -> Iterator[StallWatch]:
    watch = StallWatch()
    yield watch
    watch.stop()


async def until(check: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait on the running loop until `check()` is true."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "timeout"
        await asyncio.sleep(0.01)

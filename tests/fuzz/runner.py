"""Run a fuzz target for a time and count executions, crashes, hangs and files outside."""

import asyncio
import importlib
import inspect
import pkgutil
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import HypothesisException

from tests.fuzz import targets
from tests.fuzz.mutation import mutate
from tests.fuzz.watch import WroteOutsideError, watch_writes

SLOW_S = 1.0
LONGEST_S = 20.0
"""Seconds after which an execution is ended and counted as a crash."""
MOST_KEPT = 20


class HangError(BaseException):
    """An execution took longer than LONGEST_S."""


@dataclass
class Crash:
    """Exception that is not a clean rejection, and the input that raised it."""

    error: str
    trace: str
    data: Any


@dataclass
class Result:
    """Outcome of one run of a target."""

    target: str
    executions: int = 0
    refused: int = 0
    crashes: dict[str, Crash] = field(default_factory=dict)
    """First crash at each source location."""
    crashed: int = 0
    slowest_s: float = 0.0
    slowest: Any = None
    hangs: int = 0
    """Executions longer than the target's SLOW_S."""
    outside: int = 0
    peak_mb: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.target}: {self.executions} executions ({self.refused} refused), "
            f"{self.crashed} crashes, slowest {self.slowest_s:.3f} s, {self.hangs} hangs, "
            f"{self.outside} files outside, peak {self.peak_mb:.0f} MB"
        )


def names() -> list[str]:
    """Return the names of all targets."""
    return sorted(module.name for module in pkgutil.iter_modules(targets.__path__))


def load(name: str) -> ModuleType:
    return importlib.import_module(f"tests.fuzz.targets.{name}")


def run(name: str, seconds: float, seed: int = 0) -> Result:
    """Feed inputs to a target until the time is over."""
    module, result = load(name), Result(name)
    box = Path(tempfile.mkdtemp(prefix="fuzz-"))
    end = time.monotonic() + seconds
    try:
        execution = _Execution(module, result, box / "inside")
        (box / "beside").write_text("not to be touched")
        if hasattr(module, "STRATEGY"):
            _by_strategy(module, execution, end, seed)
        else:
            _by_mutation(module, execution, end, seed)
        execution.close()
        entries = sorted(path.name for path in box.iterdir())
        intact = (box / "beside").read_text() == "not to be touched"
        result.outside += len(set(entries) - {"inside", "beside"}) + (not intact)
    finally:
        shutil.rmtree(box, ignore_errors=True)
        if hasattr(module, "close"):
            module.close()
    result.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result


def _by_mutation(module: ModuleType, execution: "_Execution", end: float, seed: int) -> None:
    rng, seeds = random.Random(seed), list(module.seeds())
    for data in seeds:
        execution(data)
    own: Callable[[bytes, random.Random], bytes] | None = getattr(module, "mutate", None)
    while time.monotonic() < end:
        one = rng.choice(seeds)
        execution(own(one, rng) if own else mutate(one, rng, seeds))


def _by_strategy(module: ModuleType, execution: "_Execution", end: float, seed: int) -> None:
    for number in _count_up():
        if time.monotonic() >= end:
            return

        @seeded(seed + number)
        @settings(
            max_examples=200,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(module.STRATEGY)
        def one(data: Any) -> None:
            if time.monotonic() < end:
                execution(data)

        try:
            one()
        except HypothesisException as error:
            raise AssertionError(f"the strategy of {execution.name} is wrong: {error}") from error


def _count_up() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


class _Execution:
    """Call a target with one input after another, and record the outcome."""

    def __init__(self, module: ModuleType, result: Result, folder: Path) -> None:
        self.name = result.target
        self._module, self._result, self._folder = module, result, folder
        self._takes_folder = len(inspect.signature(module.execute).parameters) > 1
        self._loop = asyncio.Runner() if inspect.iscoroutinefunction(module.execute) else None
        self._slow_s: float = getattr(module, "SLOW_S", SLOW_S)
        self._fresh()

    def __call__(self, data: Any) -> None:
        result = self._result
        result.executions += 1
        started_at = time.perf_counter()
        try:
            with watch_writes(self._folder) as outside, _limited():
                self._execute(data)
        except self._module.REFUSALS:
            result.refused += 1
        except (KeyboardInterrupt, SystemExit, HypothesisException):
            raise
        except BaseException as error:  # noqa: BLE001 - every other end is a finding
            self._keep(error, data)
        finally:
            result.outside += len(outside)
            if self._takes_folder and any(self._folder.iterdir()):
                self._fresh()
        took = time.perf_counter() - started_at
        result.hangs += took > self._slow_s
        if took > result.slowest_s:
            result.slowest_s, result.slowest = took, data

    def close(self) -> None:
        if self._loop:
            self._loop.close()

    def _execute(self, data: Any) -> None:
        arguments = (data, self._folder) if self._takes_folder else (data,)
        if self._loop:
            self._loop.run(self._module.execute(*arguments))
        else:
            self._module.execute(*arguments)

    def _fresh(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()

    def _keep(self, error: BaseException, data: Any) -> None:
        self._result.crashed += 1
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {last.filename}:{last.lineno}"
        if isinstance(error, WroteOutsideError):
            place = str(error)
        if place not in self._result.crashes and len(self._result.crashes) < MOST_KEPT:
            trace = "".join(traceback.format_exception(error)[-12:])
            self._result.crashes[place] = Crash(f"{type(error).__name__}: {error}", trace, data)


class _limited:
    """Raise HangError in the main thread after LONGEST_S."""

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, _raise_hang)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


def _raise_hang(number: int, frame: object) -> None:
    raise HangError(f"longer than {LONGEST_S:.0f} s")


def report(result: Result, keep: Path | None = None) -> None:
    """Print the figures and each crash; write the inputs that crashed to `keep`."""
    print(result, flush=True)
    for number, (place, crash) in enumerate(result.crashes.items()):
        print(f"\n{place}\n{crash.trace}\ninput: {crash.data!r:.1000}", file=sys.stderr)
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            data = crash.data if isinstance(crash.data, bytes) else repr(crash.data).encode()
            (keep / f"{result.target}-{number}").write_bytes(data)

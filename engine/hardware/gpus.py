"""Graphics cards by the driver's own library, NVML. A machine without one is no error.

Each figure is asked for alone: what a card or a container does not tell is None.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psutil
import pynvml

from engine.protocol.records.hardware import Card, CardProcess


class Found(NamedTuple):
    """The cards, and in words why there are none."""

    cards: tuple[Card, ...]
    reason: str = ""


def read_gpus() -> Found:
    """All NVIDIA cards of this machine, as they are now."""
    try:
        with open_nvml():
            count = pynvml.nvmlDeviceGetCount()
            if not count:
                return Found((), "The NVIDIA driver finds no GPU.")
            ours = _our_pids()
            driver = _ask(pynvml.nvmlSystemGetDriverVersion)
            cuda = _ask(pynvml.nvmlSystemGetCudaDriverVersion)
            seen = [_card(index, ours, driver, cuda) for index in range(count)]
            return Found(tuple(card for card in seen if card is not None))
    except pynvml.NVMLError_LibraryNotFound:
        return Found((), "There is no NVIDIA driver on this machine.")
    except pynvml.NVMLError_DriverNotLoaded:
        return Found((), "The NVIDIA driver is installed, but not loaded.")
    except pynvml.NVMLError as error:
        return Found((), f"The NVIDIA driver does not respond: {error}.")


@contextlib.contextmanager
def open_nvml() -> Iterator[None]:
    """Keeps the library open, which makes each `read_gpus` inside cheap. Raises NVMLError."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


@contextlib.contextmanager
def open_gpu_reader() -> Iterator[Callable[[], tuple[Card, ...]] | None]:
    """`read_gpus` for a while, with the library open in between; None on a machine without."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(open_nvml())
        except pynvml.NVMLError:
            yield None
        else:
            yield lambda: read_gpus().cards


def _card(index: int, ours: frozenset[int], driver: str | None, cuda: int | None) -> Card | None:
    """None for one that cannot be reached at all."""
    handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return None
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return Card(
        index=index,
        uuid=_ask(pynvml.nvmlDeviceGetUUID, handle) or f"card-{index}",
        name=_ask(pynvml.nvmlDeviceGetName, handle) or f"NVIDIA card {index}",
        total_bytes=memory.total if memory else None,
        used_bytes=memory.used if memory else None,
        free_bytes=memory.free if memory else None,
        busy_percent=rates.gpu if rates else None,
        temperature_c=_temperature(handle),
        power_w=_watts(_ask(pynvml.nvmlDeviceGetPowerUsage, handle)),
        power_limit_w=_watts(_ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        capability=_ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle),
        driver=driver,
        cuda=(cuda // 1000, cuda % 1000 // 10) if cuda else None,
        processes=_processes(handle, ours),
    )


def _temperature(handle: Any) -> float | None:
    """By the older question too: drivers know one of the two."""
    sensor = pynvml.NVML_TEMPERATURE_GPU
    said = _ask(pynvml.nvmlDeviceGetTemperatureV, handle, sensor)
    return said if said is not None else _ask(pynvml.nvmlDeviceGetTemperature, handle, sensor)


def _processes(handle: Any, ours: frozenset[int]) -> tuple[CardProcess, ...] | None:
    """Programs that compute on it or draw with it."""
    computing = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    drawing = _ask(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle)
    if computing is None and drawing is None:
        return None
    found = {p.pid: p.usedGpuMemory for p in [*(drawing or []), *(computing or [])]}
    return tuple(
        CardProcess(pid=pid, bytes=held, name=_name(pid), ours=pid in ours)
        for pid, held in found.items()
    )


def _name(pid: int) -> str:
    """Name of a program; in a container, programs outside of it have no readable name."""
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        path = _ask(pynvml.nvmlSystemGetProcessName, pid)
        return os.path.basename(path.split(" ")[0]) if path else ""


def _our_pids() -> frozenset[int]:
    me = psutil.Process()
    return frozenset({me.pid, *(child.pid for child in me.children(recursive=True))})


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None where the driver has none to give."""
    try:
        return question(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None

"""Reader of NVIDIA GPUs through the driver's library NVML. A machine without one is no error.

Values that a GPU or a container does not report are None.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psutil
import pynvml

from engine.protocol.records.machine.hardware import Card, CardProcess


class Found(NamedTuple):
    """GPUs, or the reason why there are none as a sentence."""

    cards: tuple[Card, ...]
    reason: str = ""


def read_gpus() -> Found:
    """Return all NVIDIA GPUs of this machine with current readings."""
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
    """Keep NVIDIA's library open for the block, which makes `read_gpus` cheap. Raises NVMLError."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


@contextlib.contextmanager
def open_gpu_reader() -> Iterator[Callable[[], tuple[Card, ...]] | None]:
    """Keep the NVIDIA library open for the block, and yield a function that reads the GPUs; None
    without a driver."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(open_nvml())
        except pynvml.NVMLError:
            yield None
        else:
            yield lambda: read_gpus().cards


def _card(index: int, ours: frozenset[int], driver: str | None, cuda: int | None) -> Card | None:
    """Return one GPU, or None if it cannot be accessed."""
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
    """Return the temperature in °C, by the new or the old call: drivers support one of them."""
    sensor = pynvml.NVML_TEMPERATURE_GPU
    celsius = _ask(pynvml.nvmlDeviceGetTemperatureV, handle, sensor)
    return celsius if celsius is not None else _ask(pynvml.nvmlDeviceGetTemperature, handle, sensor)


def _processes(handle: Any, ours: frozenset[int]) -> tuple[CardProcess, ...] | None:
    """Return processes that compute or render on a GPU; None if unreported."""
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
    """Return the name of a process; empty if not readable from inside a container."""
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
    """Call NVML; None if the driver does not report the value."""
    try:
        return question(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None

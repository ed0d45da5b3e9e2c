"""Description of the machine and its GPUs, and measured peak performance."""

import platform
from collections.abc import Callable
from typing import Any

import pynvml
import torch

from engine.bench.gpu.report import NONE, Job, Outcome, Table, gib, rate
from engine.hardware.gpus import open_nvml, read_gpus
from engine.hardware.machine import threads
from engine.policy.torch.machine_limits import measure_bandwidth, measure_peak
from engine.policy.torch.model.model import pick_device, pick_dtype

PRODUCTS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CLOCKS = {"graphics": pynvml.NVML_CLOCK_SM, "memory": pynvml.NVML_CLOCK_MEM}


def run(job: Job, say: Callable[[str], None]) -> Outcome:
    """Measure matrix products and memory; fails if torch cannot use a GPU that the driver lists.
    `say` receives progress."""
    device = pick_device()
    if device.type == "cpu" and not job.on_processor:
        return Outcome(
            state="failed",
            words="The driver lists a GPU, but torch cannot use it: "
            f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no device.",
        )
    say("measuring matrix products and memory bandwidth")
    figures = {f"peak_{name}_flops": _peak(kind, device) for name, kind in PRODUCTS.items()}
    figures = {name: value for name, value in figures.items() if value}
    figures["bandwidth_bytes_s"] = measure_bandwidth(device)
    facts = _processor() if device.type == "cpu" else _cards()
    best = max(figures[name] for name in figures if name.endswith("flops"))
    return Outcome(
        state="passed",
        words=f"Peak rates: {best / 1e12:.3g} TFLOP/s, "
        f"{figures['bandwidth_bytes_s'] / 1e9:,.0f} GB/s memory read.",
        figures=figures,
        facts=facts,
        tables=[
            Table(title="Machine", head=["", ""], rows=[[k, v] for k, v in facts.items()]),
            Table(
                title="Measured peak rates",
                head=["", "value", "unit"],
                rows=_measured(figures),
                note="Shares below refer to these rates: goodput (also known as MFU) counts only "
                "necessary work; hardware utilization also counts padding and repeated "
                "computation.",
            ),
        ],
    )


def _peak(dtype: torch.dtype, device: torch.device) -> float:
    """Measured FLOP/s of a data type; 0 if the machine only emulates it."""
    native = dtype == torch.float32 or pick_dtype("auto", device) == dtype
    return measure_peak(dtype, device) if native else 0.0


def _measured(figures: dict[str, float]) -> list[list[str]]:
    names = {
        "peak_bfloat16_flops": ("matrix product, bfloat16", 1e12, "TFLOP/s"),
        "peak_float32_flops": ("matrix product, float32 without TF32", 1e12, "TFLOP/s"),
        "bandwidth_bytes_s": ("memory, read", 1e9, "GB/s"),
    }
    return [
        [words, f"{figures[name] / scale:,.4g}", unit]
        for name, (words, scale, unit) in names.items()
        if name in figures
    ]


def _processor() -> dict[str, str]:
    return {
        "processor": f"{_name()} · {threads()} threads",
        "torch": f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}",
        "system": platform.platform(terse=True),
    }


def _name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            named = (line.partition(":")[2].strip() for line in lines if "model name" in line)
            return next(named, platform.machine())
    except OSError:
        return platform.processor() or platform.machine()


def _cards() -> dict[str, str]:
    """Describe the GPUs by driver and CUDA; unreported values are a dash."""
    facts: dict[str, str] = {}
    with open_nvml():
        for card in read_gpus().cards:
            watts = f"at most {card.power_limit_w:.0f} W" if card.power_limit_w else NONE
            clocks = ", ".join(_clock(card.index, name, kind) for name, kind in CLOCKS.items())
            facts[f"GPU {card.index}"] = f"{card.name}, {gib(card.total_bytes)}, {watts}"
            facts[f"clocks of GPU {card.index}"] = clocks
        first = read_gpus().cards[0]
    version = torch.backends.cudnn.version()
    about = torch.cuda.get_device_properties(0)
    newest = ".".join(map(str, first.cuda)) if first.cuda else NONE
    return facts | {
        "driver": f"{first.driver or NONE}, supports CUDA up to {newest}",
        "torch": f"{torch.__version__}, built for CUDA {torch.version.cuda}, cuDNN {version}",
        "architecture": f"{about.multi_processor_count} multiprocessors, compute capability "
        f"{about.major}.{about.minor}; torch was built for {', '.join(torch.cuda.get_arch_list())}",
        "processor": f"{_name()} · {threads()} threads",
        "system": platform.platform(terse=True),
    }


def _clock(index: int, name: str, kind: int) -> str:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    now = _reading(pynvml.nvmlDeviceGetClockInfo, handle, kind)
    most = _reading(pynvml.nvmlDeviceGetMaxClockInfo, handle, kind)
    return f"{name} {now} of {most} MHz"


def _reading(question: Callable[..., Any], *arguments: Any) -> str:
    try:
        return rate(question(*arguments))
    except pynvml.NVMLError:
        return NONE

